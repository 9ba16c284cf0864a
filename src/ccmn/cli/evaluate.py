"""``ccmn evaluate``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccmn.cli.models import Model, columns_of
from ccmn.cli.options import Data, DataDir, Force, Json, Labels, check_free, read_labels
from ccmn.cli.output import print_json, show
from ccmn.cli.rates import rates_for, read_estimate
from ccmn.cli.reports import PictureShape, ReportFile, instances, read_shape, reported, write_report

if TYPE_CHECKING:
    from ccmn.models.row_sketch import SeenRows
    from ccmn.report.facts import MetricValue


def evaluate(
    model: Model,
    source: Data,
    labels: Labels = None,
    noise: Annotated[
        Path | None,
        typer.Option(
            metavar="JSON",
            help="The labels in DATA are noisy, at these rates (known, or estimated with their errors): estimate the "
            "clean figures.",
        ),
    ] = None,
    report: ReportFile = None,
    picture: PictureShape = None,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Hold a model's predictions against labels: every metric; from noisy labels with standard error and status.

    Which columns are labels the model knows by name, unless --labels says otherwise.

    Example: ccmn evaluate model.ccmn test.csv
    """
    from ccmn.models import load_model
    from ccmn.report.facts import measure, out_of_range_note

    shape = read_shape(picture)
    if report is not None:
        check_free(report, force)
    classifier = load_model(model)
    columns = columns_of(classifier)
    data = columns.read_labeled(source, read_labels(labels), data_dir=data_dir)
    rates = None if noise is None else rates_for(read_estimate(noise), columns.label_names, data.q)
    scores = classifier.decision_function(data.X).reshape(data.n, data.q)
    seen = None if classifier.training_rows_ is None else classifier.training_rows_.compare(data.X)
    training_note = None if seen is None else training_row_note(seen, data.n, noisy=rates is not None)
    if training_note is not None:
        typer.echo(f"ccmn: note: {training_note}", err=True)
    figures = measure(data.Y, scores, rates, on_training_rows=training_note is not None)
    note_if_impossible(figures["hamming_loss"])
    values = {
        name: figure.value if rates is None else {**asdict(figure), "out_of_range": figure.out_of_range}
        for name, figure in figures.items()
    }
    if report is not None:
        from ccmn.report.builders import evaluation_report

        show_row = instances(data, data.Y, source, shape, None if columns.text is None else columns.text.column)
        write_report(evaluation_report(data, classifier, scores, rates, show_row, training_note), report)
    if as_json:
        share = None if seen is None else seen.share
        result = {
            "n": data.n,
            "q": data.q,
            "noise": rates and rates.to_dict(),
            "training_rows": share,
            "metrics": values,
        }
        print_json({**result, **reported(report)})
        return
    from ccmn.report.console import metrics_table

    show(metrics_table(values, data.n, corrected=rates is not None))
    for bounds in sorted({figure.bounds for figure in figures.values() if figure.out_of_range}):
        typer.echo(out_of_range_note(bounds))
    if report is not None:
        typer.echo(f"the report is in {report}: open it in a browser")


def training_row_note(seen: SeenRows, n: int, *, noisy: bool) -> str | None:
    """Return a warning if the model was trained on many of the evaluated rows."""
    from ccmn.models.row_sketch import MAX_TRAINING_SHARE

    if not seen.share > MAX_TRAINING_SHARE:
        return None
    count = f"{'' if seen.exact else 'about '}{round(seen.share * n)} of {n}"
    effect = "; with --noise they can leave the range of the metric" if noisy else ""
    return (
        f"{count} rows are in the training data of this model: these figures are too optimistic{effect}. "
        "Evaluate on held-out rows."
    )


def note_if_impossible(hamming: MetricValue) -> None:
    """Say so where chance does not explain a loss below zero: the labels are hardly as noisy as was said."""
    if hamming.se is not None and hamming.value < -4 * hamming.se:
        typer.echo(
            f"ccmn: note: a Hamming loss of {hamming.value:.3f} (± {hamming.se:.3f}) cannot be: there is less noise in "
            "these labels than --noise says. If they are clean, leave it out.",
            err=True,
        )
