"""``ccmn audit``: list the labels that are probably wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.cli.noise_commands import describe_rates, read_noise_option
from ccmn.cli.options import (
    Candidates,
    Data,
    DataDir,
    Force,
    Json,
    Labels,
    RandomState,
    Text,
    check_output,
    label_frame,
    read_labels,
)
from ccmn.cli.output import (
    PictureSize,
    ReportFile,
    print_json,
    print_table,
    read_picture_size,
    row_display,
    write_report,
)

if TYPE_CHECKING:
    from ccmn.audit import Audit


def audit(
    source: Data,
    labels: Labels = None,
    noise: Annotated[
        str,
        typer.Option(
            metavar="NOISE",
            help="Noise of the labels: estimate | partial (labels only added) | missing (labels only removed), or a "
            "JSON file of noise rates, known or from ccmn noise estimate.",
        ),
    ] = "estimate",
    min_p_wrong: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, metavar="P", help="List labels with at least this error probability."),
    ] = 0.5,
    top: Annotated[int, typer.Option(min=1, metavar="K", help="Show the K most suspicious labels.")] = 20,
    out: Annotated[Path | None, typer.Option(metavar="CSV", help="Write all listed labels to this file.")] = None,
    report: ReportFile = None,
    picture: PictureSize = None,
    text: Text = None,
    candidates: Candidates = False,
    random_state: RandomState = 0,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """List the labels that are probably wrong, most suspicious first, and count them per label.

    The error probability of every given label is computed from out-of-fold predictions of a linear model and the noise
    rates. DATA is not changed.

    Example: ccmn audit train.csv --labels 'label_*' --noise partial --out issues.csv
    """
    from ccmn._files import atomic_write
    from ccmn.audit import audit_labels
    from ccmn.data.columns import Columns

    size = read_picture_size(picture)
    for path in (out, report):
        if path is not None:
            check_output(path, force)
    _, data = Columns.from_training_data(source, read_labels(labels), text, data_dir=data_dir)
    Y = label_frame(data, candidates)
    rates = read_noise_option(noise, data.label_names, data.q)
    audited = audit_labels(data.X, Y, rates, min_p_wrong, random_state=random_state)
    if out is not None:
        with atomic_write(out) as stream:
            audited.issues.to_csv(stream, index=False, float_format="%.6g")
    if report is not None:
        from ccmn.report.builders import audit_report

        write_report(audit_report(data, Y, audited, row_display(data, Y, source, size, text), top), report)
    shown = audited.issues.head(top)
    sets = _label_sets(audited, Y, shown.row.unique(), max(min_p_wrong, 0.5))
    if as_json:
        result = {
            "n": data.n,
            "q": data.q,
            "noise": describe_rates(audited.noise),
            "min_p_wrong": min_p_wrong,
            "found": len(audited.issues),
            "issues": shown.to_dict("records"),
            "rows": sets,
            "summary": audited.summary.to_dict("records"),
            "out": out and str(out),
        }
        print_json(result if report is None else {**result, "report": str(report)})
        return
    from ccmn.report.console import audit_tables

    print_table(audit_tables(audited, shown, sets))
    if out is not None:
        typer.echo(f"{out}: {len(audited.issues)} labels")
    if report is not None:
        typer.echo(f"report written to {report}")


def _label_sets(audited: Audit, Y: Any, rows: Any, min_p_wrong: float) -> list[dict[str, Any]]:
    """Return the given and the suggested label sets of some rows."""
    from ccmn._containers import is_dataframe, to_dense_array
    from ccmn.audit import suggest_labels

    if not len(rows):
        return []
    given = to_dense_array(Y.iloc[rows] if is_dataframe(Y) else Y[rows])
    suggested = suggest_labels(given, audited.pred_proba[rows], audited.noise, min_p_wrong=min_p_wrong)

    def names(labels: Any) -> list[str]:
        return [str(name) for name, value in zip(audited.summary.label, labels) if value == 1]

    return [
        {"row": int(row), "given": names(before), "suggested": names(after)}
        for row, before, after in zip(rows, given, suggested)
    ]
