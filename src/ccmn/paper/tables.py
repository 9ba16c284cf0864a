"""Tables of the paper and of its journal version: methods, datasets, protocols, metrics and printed values.

The characteristics of the datasets (appendix of the paper) are in :mod:`ccmn.data`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from ccmn._registry import Registry
from ccmn.losses import LOSSES, MultiLabelLoss
from ccmn.paper.protocols import INJECTED, LITERAL, MODERATE, REAL, Protocol

GREATER_IS_BETTER: Registry[bool] = Registry(
    "metric", {"hamming_loss": False, "ranking_loss": False, "average_precision": True, "coverage": False}
)
"""Metrics of the tables and their direction. Only the journal version has coverage, which is normalized."""
TABLE_METRICS = ("hamming_loss", "ranking_loss", "average_precision")
"""Metrics of tables 1 to 3."""
SELECTIONS = ("clean", "noisy")
"""Validation labels that epochs and learning rates are selected on: clean ones as in the paper, or noisy ones."""

Rates = Literal["none", "known", "estimated"]


@dataclass(frozen=True)
class Method:
    """Row of tables 1 and 2, such as "unbiased-ranking-sigmoid"; with the rates "none" its loss is not corrected."""

    name: str
    loss: str
    surrogate: str
    rates: Rates

    def make_loss(self) -> MultiLabelLoss:
        """Return the loss on real-valued targets; the training debiases them."""
        make: Callable[[str], MultiLabelLoss] = LOSSES[self.loss]
        return make(self.surrogate)


_LOSSES = (
    *(("hamming", "square"), ("hamming", "hinge")),
    *(("ranking", "square"), ("ranking", "hinge"), ("ranking", "sigmoid")),
)
_KINDS: tuple[tuple[str, str, Rates], ...] = (
    ("unbiased", "", "known"),
    ("plain", "", "none"),
    ("unbiased", "-estimated", "estimated"),
)
_METHODS = [
    Method(f"{kind}-{loss}-{phi}{suffix}", loss, phi, rates) for kind, suffix, rates in _KINDS for loss, phi in _LOSSES
]
METHODS: Registry[Method] = Registry("method", {method.name: method for method in _METHODS})
"""Methods that are trained as a fleet (together as one batch): the ten methods of the paper, and the unbiased methods
with estimated rates."""
PAPER_METHODS = tuple(name for name in METHODS if not name.endswith("-estimated"))
"""Rows of tables 1 and 2, in their order."""
PML_METHODS = ("PMLNI", "PMLLRS", "PARVLS", "PARMAP", "fPML")
"""Partial multi-label methods that tables 3 and J2 compare with. PMLNI has its authors' scaling of the features."""


def is_proposed(method: str) -> bool:
    """Return whether a method is one of those that the paper proposes."""
    return method.startswith("unbiased-")


@dataclass(frozen=True)
class PaperTable:
    """Table of the paper: datasets and methods under one or more protocols.

    An additional column is an additional name (or path of a file) in ``datasets``, an additional row an additional
    name in ``methods``. Datasets in ``real`` have real candidate sets; they are run under the protocol "real", the
    others under the remaining protocols. Datasets in ``files`` are loaded under another name. The labels with the
    numbers ``dropped_labels``, starting at 0, are left out. Rows of the datasets ``unit_rows`` are scaled to unit
    length; other features are not scaled.
    """

    name: str
    title: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    protocols: tuple[Protocol, ...]
    model: str = "linear"
    metrics: tuple[str, ...] = TABLE_METRICS
    repeats: int = 5
    real: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    dropped_labels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Rows of mirflickr have lengths from 6 to 20, on which the unbiased hinge and ranking losses diverge: they are not
    # convex under noise.
    unit_rows: tuple[str, ...] = ("mirflickr",)

    def protocols_for(self, dataset: str) -> tuple[Protocol, ...]:
        """Return the protocols that apply to a dataset."""
        if not any(p.name == "real" for p in self.protocols):
            return self.protocols
        return tuple(p for p in self.protocols if (p.name == "real") == (dataset in self.real))


AS_PRINTED = ("enron_as_printed", "slashdot_as_printed")
"""The two datasets as the paper most likely read them, see :func:`ccmn.data.catalog.cut_labels_last`."""
_TEN_DATASETS = (
    *("yeast", "enron", "enron_as_printed", "scene", "slashdot", "slashdot_as_printed"),
    *("music_emotion", "music_style", "mirflickr", "tmc"),
)
"""The eight datasets of the paper, two of them in two forms."""
_CANDIDATE_DATASETS = ("music_style", "music_emotion", "mirflickr")
_JOURNAL_DATASETS = ("music_emotion", "music_style", "mirflickr", "tmc")


def _compared(proposed: tuple[str, ...]) -> tuple[str, ...]:
    plain = tuple(m.replace("unbiased", "plain") for m in proposed)
    # PML-NI also on the features as the other methods see them, and linear models without noise correction.
    others = (*PML_METHODS, "PMLNI-raw", "ridge", "logistic")
    return (*proposed, *(f"{m}-estimated" for m in proposed), *plain, *others)


def _journal(protocol: Protocol, choices: tuple[float, ...]) -> Protocol:
    """Return the protocol of the journal version: 60 % training and 40 % test rows.

    The journal version does not say how epochs and learning rates are selected. A fifth of the training rows is the
    validation set, and the selected hyperparameters are then trained on all training rows.
    """
    return replace(
        protocol,
        choices=choices,
        fractions=(0.48, 0.12, 0.4),
        learning_rates=(1e-2, 1e-3),
        batch_sizes={"music_emotion": 200, "music_style": 200, "mirflickr": 400, "tmc": 400},
        refit=True,
    )


def _flipped(name: str, title: str, model: str) -> PaperTable:
    return PaperTable(name, title, _TEN_DATASETS, PAPER_METHODS, (LITERAL, MODERATE), model)


def _of_journal(name: str, title: str, methods: tuple[str, ...], *protocols: Protocol, **settings: Any) -> PaperTable:
    metrics, files = (*TABLE_METRICS, "coverage"), {"tmc": "tmc_full"}
    settings = {"metrics": metrics, "files": files, "dropped_labels": {"mirflickr": (1,)}, **settings}
    return PaperTable(name, title, _JOURNAL_DATASETS, methods, protocols, **settings)


_TABLES = (
    _flipped("table1", "Table 1: linear models, labels flipped in both directions", "linear"),
    _flipped("table2", "Table 2: networks with one hidden layer", "mlp"),
    PaperTable(
        "table3",
        "Table 3: candidate sets, compared with partial multi-label methods",
        tuple(sorted(_TEN_DATASETS, key=lambda name: name not in _CANDIDATE_DATASETS)),
        _compared(("unbiased-hamming-square", "unbiased-ranking-sigmoid")),
        (INJECTED, REAL),
        real=_CANDIDATE_DATASETS,
    ),
    _of_journal(
        "journal1",
        "Table J1 of the journal version: linear models, labels flipped in both directions",
        PAPER_METHODS,
        _journal(LITERAL, LITERAL.choices),
    ),
    _of_journal(
        "journal2",
        "Table J2 of the journal version: candidate sets, compared with partial multi-label methods",
        _compared(("unbiased-hamming-hinge", "unbiased-ranking-sigmoid")),
        _journal(INJECTED, (0.2, 0.3, 0.4, 0.5, 0.6)),
        _journal(REAL, ()),
        real=_CANDIDATE_DATASETS,
    ),
)
TABLES: Registry[PaperTable] = Registry("table", {table.name: table for table in _TABLES})
"""Tables by name."""


class PrintedValue(NamedTuple):
    """Printed value: mean and standard deviation over five repeats.

    It is ``significant`` if it is printed with a bullet: the best proposed method is significantly better.
    """

    mean: float
    std: float
    significant: bool


@cache
def printed_values() -> dict[tuple[str, str, str, str], PrintedValue]:
    """Return (table, dataset, method, metric) -> printed value.

    There are 648 values of the three tables of the paper, and 544 of the two of the journal version. The values of
    enron and slashdot are also those of ``enron_as_printed`` and ``slashdot_as_printed``.
    """
    text = files("ccmn.paper").joinpath("published.csv").read_text()
    return {
        (row["table"], dataset, row["method"], row["metric"]): PrintedValue(
            float(row["mean"]), float(row["std"]), row["proposed_is"] == "better"
        )
        for row in csv.DictReader(text.splitlines())
        for dataset in (row["dataset"], f"{row['dataset']}_as_printed")
        if dataset == row["dataset"] or dataset in AS_PRINTED
    }


def printed(table: str, dataset: str, method: str) -> dict[str, float]:
    """Return the printed values of a method on a dataset: means over five repeats.

    Parameters
    ----------
    table : str
        Name in ``TABLES``. Tables 1 to 3 are numbered as in arXiv 2105.07338.
    dataset : str
        Column of the table.
    method : str
        Row of the table, for example "unbiased-hamming-square", which is printed as L~_h/Square, or
        "plain-hamming-square" (L_h/Square).

    Returns
    -------
    dict
        Metric -> printed mean.

    Raises
    ------
    ValueError
        If the table is unknown, or has no printed value of this method and dataset.

    Examples
    --------
    >>> printed("table1", "yeast", "unbiased-hamming-square")
    {'hamming_loss': 0.218, 'ranking_loss': 0.21, 'average_precision': 0.714}
    """
    wanted = TABLES[table].name, dataset, method
    found = {key[3]: value.mean for key, value in printed_values().items() if key[:3] == wanted}
    if not found:
        datasets, methods = zip(*(key[1:3] for key in printed_values() if key[0] == table))
        raise ValueError(
            f"{table} has no printed values of method {method!r} on dataset {dataset!r}; it has the datasets "
            f"{', '.join(dict.fromkeys(datasets))} and the methods {', '.join(dict.fromkeys(methods))}"
        )
    return found
