"""Reports of an audit, of the evaluation of a model, and of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray
from ccmn.app.demo_task import DEMO_LOSSES, STRATEGIES, DemoModel, DemoTask
from ccmn.app.issues import RANKING_NOTE, Suspicions, duplicates_note, find_suspicions, predict_out_of_fold
from ccmn.app.pictures import feature_pixels
from ccmn.app.report.facts import MEAN_AVERAGE_PRECISION, OUT_OF_RANGE_REASONS, MetricRow, measure
from ccmn.app.report.instances import Instance, Show
from ccmn.app.report.sections import (
    Report,
    Section,
    annotators_section,
    average_precision_section,
    data_tiles,
    issues_section,
    label_variants,
    labels_section,
    metric_rows,
    metrics_section,
    rates_section,
)
from ccmn.app.report.tables import DEMO_MODELS
from ccmn.data import MultiLabelData
from ccmn.data.synthetic import DIGIT_SCENE_SHAPE
from ccmn.estimation import NoiseRates
from ccmn.noise import NoiseModel
from ccmn.votes import infer_labels

if TYPE_CHECKING:
    from pandas import DataFrame

Noise = NoiseModel | NoiseRates | None
MAX_ROWS = 24
"""Number of rows with suspicious labels in the report of the demo."""


def audit_report(
    data: MultiLabelData,
    found: Suspicions,
    issues: DataFrame,
    noise: Noise,
    show: Show,
    max_rows: int,
    random_state: int,
    repeated: int,
    review_command: str,
) -> Report:
    """Return the report of an audit, with the contents of the first ``max_rows`` listed rows.

    Numbers of errors and noise rates are shown only if error probabilities are known; ``noise`` is None otherwise. If
    the labels are the majority of votes, the annotators are described. ``review_command`` starts the web app that the
    links to rows open.
    """
    names, given = [str(name) for name in data.label_names or range(data.q)], found.given
    model = "Out-of-fold predictions of a model that was trained without noise correction."
    rows, note = metric_rows(given, found.proba - 0.5, noise)
    return _report(
        f"Audit of the labels of {data.name or 'unnamed data'}",
        audit_headline(found),
        data_tiles(data.d, given),
        issues_section(
            issues,
            given,
            names,
            show,
            "A model predicted the labels of rows that it was not trained on.",
            known=found.known,
            max_rows=max_rows,
            review_command=review_command,
            ids=data.ids,
        ),
        rates_section(noise, names),
        None if data.votes is None else annotators_section(infer_labels(data.votes, data.X, random_state).annotators),
        metrics_section(rows, model + note) if rows else None,
        average_precision_section(names, label_variants(given, found.proba, _correcting(noise)), model),
        labels_section(given, names),
        note=duplicates_note(repeated, data.n),
    )


def _report(
    title: str, lead: str, tiles: Sequence[tuple[str, str]], *sections: Section | None, note: str = ""
) -> Report:
    """Return a report of the sections that apply; their warnings are also shown at the top."""
    shown = [section for section in sections if section is not None]
    return Report(title, lead, tiles, shown, note, [text for section in shown for text in section.warnings])


def _correcting(noise: Noise) -> NoiseModel | None:
    """Return the noise model that a report corrects for."""
    return noise.noise if isinstance(noise, NoiseRates) else noise


def audit_headline(found: Suspicions) -> str:
    """Return the numbers of errors, or what a list without error probabilities means."""
    expected = found.expected()
    if expected is None:
        return RANKING_NOTE
    false, missing = (round(float(numbers.sum())) for numbers in expected)
    given, absent = (int((found.given == value).sum()) for value in (1, 0))
    return (
        f"Expected number of false labels: {false:,} of the {given:,} given ones. Expected number of missing labels: "
        f"{missing:,} of the {absent:,} that are not given. These are the sums of the error probabilities of all "
        "labels; the list has those whose probability is large."
    )


def evaluation_report(data: MultiLabelData, classifier: Any, scores: FloatArray, noise: Noise, repeated: int) -> Report:
    """Return the report of a model whose scores are (n, q); if ``noise`` is given, the labels of ``data`` are noisy."""
    labels = to_dense_array(data.Y).astype(np.float64)
    names = [str(name) for name in data.label_names or classifier.label_names_ or range(data.q)]
    correcting = _correcting(noise)
    rows, note = metric_rows(labels, scores, noise)
    values = rows[-1].values
    average, wrong = values[MEAN_AVERAGE_PRECISION], values["hamming_loss"]
    outside = average.out_of_range or wrong.out_of_range
    shares = np.clip((average.value, wrong.value), 0.0, 1.0)
    basis = "estimated for the true labels from the noisy ones" if noise is not None else "computed on the given labels"
    trained = "The model was trained with these rates."
    return _report(
        f"Evaluation of the model on {data.name or 'unnamed data'}",
        ("" if np.isnan(shares[0]) else f"The mean average precision of the labels is {shares[0]:.2f}. ")
        + f"The model predicts {100 * shares[1]:.1f} % of the labels wrongly (Hamming loss). The metrics are {basis}."
        + (f" An estimate is outside [0, 1]: {OUT_OF_RANGE_REASONS}." if outside else ""),
        data_tiles(data.d, labels),
        average_precision_section(names, label_variants(labels, scores, correcting), "Scores of the model."),
        rates_section(classifier.noise_, names, note=trained) if noise is None else rates_section(noise, names),
        metrics_section(rows, "Predictions of the model." + note),
        labels_section(labels, names),
        note=duplicates_note(repeated, data.n),
    )


def demo_report(task: DemoTask, models: Sequence[DemoModel]) -> Report:
    """Return the report of the demo: simulated noise, estimated rates, models with and without noise correction."""
    names = list(task.noise.label_names or ())
    hamming = {model.strategy: model for model in models if model.loss.startswith(DEMO_LOSSES[0][0])}
    rates = replace(hamming["estimated"].classifier.rates_, label_names=tuple(names))
    noisy, clean = task.Y_noisy.astype(np.float64), task.Y_test.astype(np.float64)
    pixels = feature_pixels(task.X, DIGIT_SCENE_SHAPE)
    found = find_suspicions(noisy, predict_out_of_fold(task.X, noisy, 0), rates, known=True)
    rows = [
        MetricRow(
            f"{model.loss.split()[0]}: {DEMO_MODELS[model.strategy].removeprefix('noisy labels, ')}",
            measure(task.Y_test, model.scores, standard_errors=True),
            STRATEGIES.index(model.strategy),
        )
        for model in models
    ]
    return _report(
        "Demo: learning from noisy labels",
        f"{len(task.X):,} training pictures show several handwritten digits each; the labels are the digits in the "
        f"picture. Each label was flipped with its own pair of rates, so that {100 * task.wrong_labels:.0f} % of the "
        "labels are wrong. Models were trained on the true labels, on the noisy labels without noise correction, and "
        "with noise correction. They are evaluated on true labels of "
        f"{len(task.X_test):,} pictures by other writers.",
        data_tiles(task.X.shape[1], noisy),
        issues_section(
            found.issues(names, MAX_ROWS),
            noisy,
            names,
            lambda row, label: Instance(pixels(row)),
            "The probability that a label is wrong follows from out-of-fold predictions and the estimated noise rates. "
            "The true labels are known here because the noise was simulated. To review labels and retrain, run: ccmn "
            "review --demo (with the --random-state of ccmn demo, if you set one).",
            known=True,
            max_rows=MAX_ROWS,
            Y_true=task.Y.astype(np.float64),
        ),
        rates_section(rates, names, task.noise),
        metrics_section(
            rows,
            "Linear models with the Hamming and the ranking loss on true test labels. For each loss they differ only "
            "in the labels and the noise rates used for training. Arrows point in the direction of improvement.",
        ),
        average_precision_section(
            names,
            {DEMO_MODELS[strategy]: (clean, hamming[strategy].scores) for strategy in STRATEGIES},
            "Models with the Hamming loss on true test labels.",
        ),
        labels_section(noisy, names),
    )
