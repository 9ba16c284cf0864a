"""``ccmn audit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.cli.options import (
    Candidates,
    Data,
    DataDir,
    Force,
    Json,
    Labels,
    Seed,
    Text,
    check_free,
    given_labels,
    read_labels,
)
from ccmn.cli.output import print_json, show
from ccmn.cli.rates import described, noise_told
from ccmn.cli.reports import PictureShape, ReportFile, instances, read_shape, reported, write_report

if TYPE_CHECKING:
    import pandas as pd

    from ccmn.audit import Audit


def audit(
    source: Data,
    labels: Labels = None,
    noise: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How labels go wrong: estimate | partial (labels only added) | missing (only lost), or a file of "
            "rates (.json), known or from ccmn noise estimate.",
        ),
    ] = "estimate",
    min_p_wrong: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="P", help="List labels that are wrong at least this probably.")
    ] = 0.5,
    top: Annotated[int, typer.Option(min=1, metavar="K", help="Show the K most suspicious.")] = 20,
    out: Annotated[Path | None, typer.Option(help="Write all that are listed here.", metavar="CSV")] = None,
    report: ReportFile = None,
    picture: PictureShape = None,
    text: Text = None,
    candidates: Candidates = False,
    seed: Seed = 0,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Labels that are probably wrong, the most suspicious first, and how many there are of each.

    A linear model foresees the labels of rows it was not trained on; with the rates of the noise that gives the
    probability that each label given is wrong. Nothing in DATA is changed.

    Example: ccmn audit train.csv --labels 'label_*' --noise partial --out issues.csv
    """
    from ccmn.audit import audit_labels
    from ccmn.data.columns import Columns

    shape = read_shape(picture)
    for path in (out, report):
        if path is not None:
            check_free(path, force)
    _, data = Columns.from_training_data(source, read_labels(labels), text, data_dir=data_dir)
    Y = given_labels(data, candidates)
    found = audit_labels(data.X, Y, noise_told(noise, data.label_names, data.q), min_p_wrong, random_state=seed)
    if out is not None:
        _write(found.issues, out)
    if report is not None:
        from ccmn.report.builders import audit_report

        show_row = instances(data, Y, source, shape, text)
        write_report(audit_report(data, Y, found, show_row, top), report)
    shown = found.issues.head(top)
    sets = _label_sets(found, Y, shown.row.unique(), max(min_p_wrong, 0.5))
    if as_json:
        result = {"n": data.n, "q": data.q, "noise": described(found.noise), "min_p_wrong": min_p_wrong}
        tables = {"issues": shown.to_dict("records"), "rows": sets, "summary": found.summary.to_dict("records")}
        print_json({**result, "found": len(found.issues), **tables, "out": out and str(out), **reported(report)})
        return
    from ccmn.report.console import audit_tables

    show(audit_tables(found, shown, sets))
    if out is not None:
        typer.echo(f"{out}: {len(found.issues)} labels")
    if report is not None:
        typer.echo(f"the report is in {report}: open it in a browser")


def _label_sets(found: Audit, Y: Any, rows: Any, min_p_wrong: float) -> list[dict[str, Any]]:
    """The labels given to some rows, and those suggested."""
    from ccmn._containers import is_dataframe, to_dense_array
    from ccmn.audit import suggest_labels

    if not len(rows):
        return []
    given = to_dense_array(Y.iloc[rows] if is_dataframe(Y) else Y[rows])
    suggested = suggest_labels(given, found.pred_proba[rows], found.noise, min_p_wrong)
    names = [str(name) for name in found.summary.label]
    return [
        {"row": int(row), "given": _set(before, names), "suggested": _set(after, names)}
        for row, before, after in zip(rows, given, suggested)
    ]


def _set(labels: Any, names: list[str]) -> list[str]:
    return [name for name, value in zip(names, labels) if value == 1]


def _write(issues: pd.DataFrame, out: Path) -> None:
    from ccmn._files import atomic_write

    with atomic_write(out) as stream:
        issues.to_csv(stream, index=False, float_format="%.6g")
