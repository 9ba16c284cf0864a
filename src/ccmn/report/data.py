"""Data sets and their characteristics as tables for a terminal (rich)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from ccmn.data.characteristics import Characteristics
from ccmn.data.datasets import Dataset, Printed

_MEANINGS = {
    "n": "rows",
    "d": "features",
    "q": "labels",
    "cardinality": "labels per row",
    "label_density": "share of labels that are 1",
    "feature_density": "share of features that are not 0",
    "candidate_size": "candidates per row",
    "positives_min": "positives of the rarest label",
    "positives_median": "positives of the median label",
    "positives_max": "positives of the commonest label",
    "rows_without_features": "rows whose features are all 0",
    "duplicate_rows": "rows with the features of one above",
}
_HERE = {"folder": "in the folder", "cache": "in the cache", "labels only": "labels only", "": "-"}


def data_sets_table(rows: Mapping[str, Dataset], places: Mapping[str, str]) -> Table:
    """Every data set, its size, and whether it is on this machine."""
    table = Table(caption="a data set that is not here is downloaded when it is used")
    for column in ("name", "domain"):
        table.add_column(column, no_wrap=True)
    for column in ("rows", "features", "labels"):
        table.add_column(column, justify="right")
    table.add_column("here", no_wrap=True)
    table.add_column("note")
    for name, row in rows.items():
        sizes = (str(size) for size in (row.n, row.paper.d, row.paper.q))
        here = "no features" if row.bundle is None and not places[name] else _HERE[places[name]]
        table.add_row(name, row.domain, *sizes, here, row.note)
    return table


def appendix_table(found: Sequence[tuple[Characteristics, Printed | None]]) -> Table:
    """The paper's appendix table, a row per data set: measured, and in brackets what is printed, where it differs."""
    table = Table(caption="measured; in brackets what the paper prints, where it differs")
    table.add_column("data", no_wrap=True)
    table.add_column("domain")
    for column in ("n", "d", "q", "labels\nper row", "candidates\nper row"):
        table.add_column(column, justify="right")
    for figures, paper in found:
        fields = (_beside(figures, paper, field) for field in ("n", "d", "q", "cardinality"))
        table.add_row(figures.name, figures.domain, *fields, _figure(figures.candidate_size))
    return table


def characteristics_table(figures: Characteristics, paper: Printed | None) -> Table:
    """All figures of one data set, beside those that the paper prints."""
    table = Table(title=figures.name or None)
    table.add_column("")
    table.add_column("measured", justify="right")
    if paper is not None:
        table.add_column("printed", justify="right")
    for field, meaning in _MEANINGS.items():
        value = getattr(figures, field)
        printed = [_figure(getattr(paper, field, None))] if paper is not None else []
        if value is not None:
            table.add_row(meaning, _figure(value), *printed)
    return table


def _beside(figures: Characteristics, paper: Printed | None, field: str) -> str:
    value, printed = getattr(figures, field), getattr(paper, field, None)
    # The paper cuts its cardinalities off after two decimals.
    same = printed is None or (int(value * 100) / 100 if isinstance(value, float) else value) == printed
    return _figure(value) if same else f"{_figure(value)} ({printed})"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")
