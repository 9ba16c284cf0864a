"""Reports of an audit, of the evaluation of a model, and of the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray
from ccmn.app.demo_task import DEMO_LOSSES, STRATEGIES, DemoModel, DemoTask
from ccmn.app.issues import RANKING_NOTE, Suspicions, find_suspicions, predict_out_of_fold
from ccmn.app.report.facts import (
    DEFAULT_SHOWN_ROWS,
    MEAN_AVERAGE_PRECISION,
    OUT_OF_RANGE_REASONS,
    IssueFacts,
    MetricFacts,
    MetricRow,
    PrecisionRecallFacts,
    RateFacts,
    Report,
    annotator_facts,
    cooccurrence_facts,
    correcting_noise,
    data_facts,
    issue_facts,
    label_variants,
    measure,
    metric_facts,
    precision_recall_facts,
    rate_facts,
)
from ccmn.app.report.instances import Show, pictures
from ccmn.data import MultiLabelData
from ccmn.data.synthetic import DIGIT_SCENE_SHAPE
from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.votes import InferredLabels

if TYPE_CHECKING:
    from pandas import DataFrame

    from ccmn.app.duplicates import Duplicates

REVIEW_PORT = 8765
"""Port of ``ccmn review``, if it is free."""

_DEMO_MODELS = {
    "clean": "true labels",
    "plain": "noisy labels",
    "unbiased": "true rates",
    "estimated": "estimated rates",
}
_DEMO_GROUPS = {"hamming": "trained with the Hamming loss", "ranking": "trained with the ranking loss"}


def audit_report(
    data: MultiLabelData,
    found: Suspicions,
    issues: DataFrame,
    noise: NoiseModel | NoiseRates | None,
    show: Show,
    max_rows: int,
    inferred: InferredLabels | None = None,
    repeated: Duplicates | None = None,
    review_command: str = f"ccmn review DATA --port {REVIEW_PORT}",
) -> Report:
    """Return the report of an audit, with the contents of the first ``max_rows`` listed rows.

    Numbers of errors and noise rates are shown only if error probabilities are known; ``noise`` is None otherwise. If
    the labels are the majority of votes, ``inferred`` describes the annotators. ``review_command`` starts the web app
    that the links to rows open.
    """
    names = [str(name) for name in data.label_names or range(data.q)]
    score_note = "Out-of-fold predictions of a model that was trained without noise correction."
    note = repeated.note(data.n) if repeated is not None else ""
    rates = None if noise is None else rate_facts(noise, names)
    correcting = None if noise is None else correcting_noise(noise)
    return Report(
        title=f"Audit of the labels of {data.name or 'unnamed data'}",
        lead=(audit_headline(found),),
        data=data_facts(data.name, data.d, found.given, names, note),
        rates=rates,
        annotators=None if inferred is None else annotator_facts(inferred.annotators),
        metrics=metric_facts(found.given, found.proba - 0.5, noise, score_note),
        cooccurrence=cooccurrence_facts(found.given, names, correcting),
        precision_recall=precision_recall_facts(
            names, label_variants(found.given, found.proba, correcting), score_note
        ),
        issues=issue_facts(
            issues,
            found.given,
            names,
            show,
            "A model predicted the labels of rows that it was not trained on.",
            known=found.p_wrong is not None,
            max_rows=max_rows,
            review_url=f"http://127.0.0.1:{REVIEW_PORT}",
            review_command=review_command,
            ids=data.ids,
        ),
        first="issues",
        warnings=() if rates is None else rates.warnings,
    )


def audit_headline(found: Suspicions) -> str:
    """Return the numbers of errors, or what a list without error probabilities means."""
    expected = found.expected()
    if expected is None:
        return RANKING_NOTE
    false, missing = (round(float(numbers.sum())) for numbers in expected)
    given = int((found.given == 1).sum())
    absent = int((found.given == 0).sum())
    return (
        f"Expected number of false labels: {false:,} of the {given:,} given ones. Expected number of missing labels: "
        f"{missing:,} of the {absent:,} that are not given. These are the sums of the error probabilities of all "
        "labels; the list has those whose probability is large."
    )


def evaluation_report(
    data: MultiLabelData,
    classifier: Any,
    scores: FloatArray,
    noise: NoiseModel | NoiseRates | None,
    show: Show,
    repeated: Duplicates | None = None,
) -> Report:
    """Return the report of a model whose scores are (n, q); if ``noise`` is given, the labels of ``data`` are noisy."""
    labels = to_dense_array(data.Y).astype(np.float64)
    names = [str(name) for name in data.label_names or classifier.label_names_ or range(data.q)]
    correcting = None if noise is None else correcting_noise(noise)
    metrics = metric_facts(labels, scores, noise, "Predictions of the model.")
    basis = "estimated for the true labels from the noisy ones" if noise is not None else "computed on the given labels"
    values = metrics.rows[-1].values
    estimates = values[MEAN_AVERAGE_PRECISION].value, values["hamming_loss"].value
    average, wrong = np.clip(estimates, 0.0, 1.0)
    outside = any(value < 0 or value > 1 for value in estimates)
    rates = _evaluation_rates(classifier, noise, names)
    return Report(
        title=f"Evaluation of the model on {data.name or 'unnamed data'}",
        lead=(
            f"The mean average precision of the labels is {average:.2f}. The model predicts {wrong:.1%} of the labels "
            f"wrongly (Hamming loss). The metrics are {basis}."
            + (f" An estimate is outside [0, 1]: {OUT_OF_RANGE_REASONS}." if outside else ""),
        ),
        data=data_facts(data.name, data.d, labels, names, repeated.note(data.n) if repeated is not None else ""),
        rates=rates,
        metrics=metrics,
        cooccurrence=cooccurrence_facts(labels, names, correcting),
        precision_recall=precision_recall_facts(
            names, label_variants(labels, scores, correcting), "Scores of the model."
        ),
        issues=_evaluation_issues(classifier, data, labels, names, correcting, show),
        first="precision_recall",
        warnings=() if rates is None else rates.warnings,
    )


def _evaluation_rates(classifier: Any, noise: NoiseModel | NoiseRates | None, names: list[str]) -> RateFacts | None:
    """Return the rates of the evaluated labels or, if these are clean, the rates that the model was trained with."""
    if noise is not None:
        return rate_facts(noise, names)
    return rate_facts(classifier.noise_, names, note="The model was trained with these rates.")


def _evaluation_issues(
    classifier: Any,
    data: MultiLabelData,
    labels: FloatArray,
    names: list[str],
    noise: NoiseModel | None,
    show: Show,
) -> IssueFacts | None:
    """Return the label issues found with the predictions of the model; None without noise rates per label."""
    if not isinstance(noise, ClassConditionalNoise):
        return None
    clean = classifier.predict_proba(data.X)
    noisy = noise.rho_neg + (1 - noise.rho_pos - noise.rho_neg) * clean
    issues = find_suspicions(labels, noisy, noise, known=True).issues(names, DEFAULT_SHOWN_ROWS)
    note = (
        "The probability that a label is wrong follows from the probabilities of the model and the noise rates. It "
        "is valid only for rows that the model was not trained on: a model reproduces errors of its training labels."
    )
    return issue_facts(issues, labels, names, show, note, known=True, ids=data.ids)


def demo_report(task: DemoTask, models: Sequence[DemoModel]) -> Report:
    """Return the report of the demo: simulated noise, estimated rates, models with and without noise correction."""
    names = task.noise.label_names or ()
    hamming = {m.row.strategy: m for m in models if m.row.loss.startswith(DEMO_LOSSES[0][0])}
    rates = replace(hamming["estimated"].classifier.rates_, label_names=tuple(names))
    noisy = task.Y_noisy.astype(np.float64)
    lead = (
        f"{len(task.X):,} training pictures show several handwritten digits each; the labels are the digits in the "
        f"picture. Each label was flipped with its own pair of rates, so that {task.wrong_labels:.0%} of the labels "
        "are wrong. Models were trained on the true labels, on the noisy labels without noise correction, and with "
        f"noise correction. They are evaluated on {len(task.X_test):,} pictures by other writers with true labels."
    )
    return Report(
        title="Demo: learning from noisy labels",
        lead=(lead,),
        data=data_facts("digit scenes", task.X.shape[1], noisy, names),
        rates=rate_facts(rates, names, task.noise),
        metrics=_demo_metrics(task, models),
        cooccurrence=cooccurrence_facts(noisy, names, correcting_noise(rates)),
        precision_recall=_demo_precision_recall(task, hamming, names),
        issues=_demo_issues(task, rates, noisy, names),
        first="issues",
    )


def _demo_metrics(task: DemoTask, models: Sequence[DemoModel]) -> MetricFacts:
    rows = (
        MetricRow(
            _DEMO_MODELS[model.row.strategy],
            measure(task.Y_test, model.scores, standard_errors=True),
            STRATEGIES.index(model.row.strategy),
            _DEMO_GROUPS[model.row.loss.split()[0]],
        )
        for model in models
    )
    note = (
        "Linear models with the Hamming and the ranking loss on true test labels. For each loss they differ only in "
        "the labels and the noise rates used for training. Arrows point in the direction of improvement."
    )
    return MetricFacts(tuple(rows), note)


def _demo_precision_recall(
    task: DemoTask, models: Mapping[str, DemoModel], names: Sequence[str]
) -> PrecisionRecallFacts:
    clean = task.Y_test.astype(np.float64)
    variants = {_DEMO_MODELS[s]: (clean, models[s].scores) for s in STRATEGIES}
    return precision_recall_facts(names, variants, "Models with the Hamming loss on true test labels.")


def _demo_issues(task: DemoTask, rates: NoiseRates, noisy: FloatArray, names: Sequence[str]) -> IssueFacts:
    found = find_suspicions(noisy, predict_out_of_fold(task.X, noisy, 0), rates, known=True)
    note = (
        "The probability that a label is wrong follows from out-of-fold predictions and the estimated noise rates. The "
        "true labels are known here because the noise was simulated. To review labels and retrain, run: ccmn review "
        "--demo (with the --random-state of ccmn demo, if you set one)."
    )
    issues, show = found.issues(names, DEFAULT_SHOWN_ROWS), pictures(task.X, DIGIT_SCENE_SHAPE)
    return issue_facts(issues, noisy, names, show, note, known=True, Y_true=task.Y.astype(np.float64))
