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
    from ccmn.report.facts.metrics import Figure


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
    from ccmn.report.facts.metrics import measure

    shape = read_shape(picture)
    if report is not None:
        check_free(report, force)
    classifier = load_model(model)
    columns = columns_of(classifier)
    data = columns.read_labelled(source, read_labels(labels), data_dir=data_dir)
    rates = None if noise is None else rates_for(read_estimate(noise), columns.label_names, data.q)
    scores = classifier.decision_function(data.X).reshape(data.n, data.q)
    figures = measure(data.Y, scores, rates)
    note_if_impossible(figures["hamming_loss"])
    values = {name: figure.value if rates is None else asdict(figure) for name, figure in figures.items()}
    if report is not None:
        from ccmn.report.facts.of_evaluation import evaluation_report

        show_row = instances(data, data.Y, source, shape, None if columns.text is None else columns.text.column)
        write_report(evaluation_report(data, classifier, scores, rates, show_row), report)
    if as_json:
        result = {"n": data.n, "q": data.q, "noise": rates and rates.to_dict(), "metrics": values}
        print_json({**result, **reported(report)})
        return
    from ccmn.report.metrics import metrics_table

    show(metrics_table(values, data.n, corrected=rates is not None))
    if report is not None:
        typer.echo(f"the report is in {report}: open it in a browser")


def note_if_impossible(hamming: Figure) -> None:
    """Say so where chance does not explain a loss below zero: the labels are hardly as noisy as was said."""
    if hamming.se is not None and hamming.value < -4 * hamming.se:
        typer.echo(
            f"ccmn: note: a Hamming loss of {hamming.value:.3f} (± {hamming.se:.3f}) cannot be: there is less noise in "
            "these labels than --noise says. If they are clean, leave it out.",
            err=True,
        )
