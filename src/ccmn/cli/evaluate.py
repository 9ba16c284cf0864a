"""``ccmn evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.cli.estimated import noise_for
from ccmn.cli.models import Model, columns_of
from ccmn.cli.options import Data, DataDir, Json, Labels, read_labels
from ccmn.cli.output import print_json, show

if TYPE_CHECKING:
    from ccmn.metrics import Metric, Noise


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
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Hold a model's predictions against labels: every metric; from noisy labels with standard error and status.

    Which columns are labels the model knows by name, unless --labels says otherwise.

    Example: ccmn evaluate model.ccmn test.csv
    """
    from ccmn.metrics import METRICS
    from ccmn.models import load_model

    classifier = load_model(model)
    columns = columns_of(classifier)
    data = columns.read_labelled(source, read_labels(labels), data_dir=data_dir)
    rates = None if noise is None else noise_for(noise, columns.label_names, data.q)
    scores = classifier.decision_function(data.X).reshape(data.n, data.q)
    values = {name: _measure(metric, data.Y, scores, rates) for name, metric in METRICS.items()}
    if as_json:
        print_json({"n": data.n, "q": data.q, "noise": rates and rates.to_dict(), "metrics": values})
        return
    from ccmn.report.metrics import metrics_table

    show(metrics_table(values, data.n, corrected=rates is not None))


def _measure(metric: Metric, Y: Any, scores: Any, rates: Noise | None) -> Any:
    """The metric's value; with noise its estimate, as value, se and status."""
    predicted = scores if metric.needs == "scores" else (scores >= 0).astype(int)
    if rates is None:
        return float(metric.function(Y, predicted))
    estimate: Any = metric.function(Y, predicted, noise=rates)
    return {"value": float(estimate.value), "se": float(estimate.se), "status": estimate.status}
