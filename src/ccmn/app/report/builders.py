"""Reports of an audit, of the evaluation of a model, and of the demo."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray
from ccmn.app.demo_task import DEMO_LOSSES, STRATEGIES, DemoModel, DemoTask
from ccmn.app.report.facts import (
    CurveFacts,
    IssueFacts,
    MetricFacts,
    MetricRow,
    PrecisionRecallFacts,
    RateFacts,
    Report,
    annotator_facts,
    cooccurrence_facts,
    correcting_noise,
    curve_facts,
    data_facts,
    histories_by_rate,
    issue_facts,
    label_variants,
    measure,
    metric_facts,
    precision_recall_facts,
    rate_facts,
    selected_history,
)
from ccmn.app.report.instances import Show, pictures
from ccmn.audit import Audit, audit_labels, find_label_issues
from ccmn.data import MultiLabelData
from ccmn.data.synthetic import DIGIT_SCENE_SHAPE
from ccmn.estimation import NoiseRates
from ccmn.models import CCMNClassifier, CorrectedClassifier
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.votes import InferredLabels

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
    Y: Any,
    audit: Audit,
    show: Show,
    max_shown: int,
    inferred: InferredLabels | None = None,
    issues_note: str = "",
    review_command: str = f"ccmn review DATA --port {REVIEW_PORT}",
) -> Report:
    """Return the report of an audit of the labels Y, with the rows of the first ``max_shown`` label issues.

    If the labels are the majority of votes, ``inferred`` describes the annotators. ``issues_note`` is added to the
    explanation of the label issues. ``review_command`` starts the web app that the links to rows open.
    """
    labels = to_dense_array(Y).astype(np.float64)
    names = [str(name) for name in audit.summary.label]
    noise = correcting_noise(audit.noise)
    false, missing = audit.summary["false"].sum(), audit.summary["missing"].sum()
    given, observed = audit.summary.given.sum(), audit.summary.observed.sum()
    lead = (
        f"Of the {given:,} given labels, about {false:,.0f} are false. Of the {observed - given:,} labels that are not "
        f"given, about {missing:,.0f} are missing. For a single label, only the probability of an error can be "
        "estimated, so review some of the labels listed below."
    )
    score_note = "Out-of-fold predictions of a linear model and a random forest, trained without noise correction."
    note = (
        "The probability that a label is wrong follows from out-of-fold predictions of a linear model and a random "
        "forest, the noise rates and, if there are any, verified rows."
    )
    note = f"{issues_note} {note}".strip()
    variants = label_variants(labels, audit.pred_proba, noise)
    return Report(
        title=f"Audit of the labels of {data.name or 'unnamed data'}",
        lead=(lead,),
        data=data_facts(data.name, data.d, labels, names),
        rates=rate_facts(audit.noise, names),
        annotators=None if inferred is None else annotator_facts(inferred.annotators),
        metrics=metric_facts(labels, audit.pred_proba - 0.5, audit.noise, score_note),
        cooccurrence=cooccurrence_facts(labels, names, noise),
        precision_recall=precision_recall_facts(names, variants, score_note),
        issues=issue_facts(
            audit.issues,
            labels,
            names,
            show,
            note,
            max_shown=max_shown,
            review_url=f"http://127.0.0.1:{REVIEW_PORT}",
            review_command=review_command,
            ids=data.ids,
        ),
        first="issues",
    )


def evaluation_report(
    data: MultiLabelData,
    classifier: CCMNClassifier | CorrectedClassifier,
    scores: FloatArray,
    noise: NoiseModel | NoiseRates | None,
    show: Show,
) -> Report:
    """Return the report of a model whose scores are (n, q); if ``noise`` is given, the labels of ``data`` are noisy."""
    labels = to_dense_array(data.Y).astype(np.float64)
    names = [str(name) for name in data.label_names or classifier.label_names_ or range(data.q)]
    correcting = None if noise is None else correcting_noise(noise)
    metrics = metric_facts(labels, scores, noise, "Predictions of the model.")
    basis = "estimated for the true labels from the noisy ones" if noise is not None else "computed on the given labels"
    wrong = min(max(metrics.rows[-1].values["hamming_loss"].value, 0.0), 1.0)
    note = (
        "Learning curves of the fit, by learning rate. The validation criterion is corrected for the noise that the "
        "model was trained with."
    )
    curves = curve_facts(histories_by_rate(classifier.history_), note) if hasattr(classifier, "history_") else None
    variants = label_variants(labels, scores, correcting)
    return Report(
        title=f"Evaluation of the model on {data.name or 'unnamed data'}",
        lead=(f"The model predicts {wrong:.1%} of the labels wrongly (Hamming loss). The metrics are {basis}.",),
        data=data_facts(data.name, data.d, labels, names),
        rates=_evaluation_rates(classifier, noise, names),
        metrics=metrics,
        cooccurrence=cooccurrence_facts(labels, names, correcting),
        precision_recall=precision_recall_facts(names, variants, "Scores of the model."),
        issues=_evaluation_issues(classifier, data, labels, names, correcting, show),
        curves=curves,
    )


def _evaluation_rates(
    classifier: CCMNClassifier | CorrectedClassifier, noise: NoiseModel | NoiseRates | None, names: list[str]
) -> RateFacts | None:
    """Return the rates of the evaluated labels or, if these are clean, the rates that the model was trained with."""
    if noise is not None:
        return rate_facts(noise, names)
    return rate_facts(classifier.noise_, names, kind="training")


def _evaluation_issues(
    classifier: CCMNClassifier | CorrectedClassifier,
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
    # Without label names, the column "label" of the issues contains indices.
    unnamed = ClassConditionalNoise(noise.rho_pos, noise.rho_neg)
    issues = find_label_issues(labels, noisy, unnamed)
    issues["label"] = [names[j] for j in issues.label]
    note = (
        "The probability that a label is wrong follows from the probabilities of the model and the noise rates. It "
        "is valid only for rows that the model was not trained on: a model reproduces errors of its training labels."
    )
    return issue_facts(issues, labels, names, show, note, ids=data.ids)


def demo_report(task: DemoTask, models: Sequence[DemoModel]) -> Report:
    """Return the report of the demo: simulated noise, estimated rates, models with and without noise correction."""
    names = task.noise.label_names or ()
    hamming, ranking = ({m.row.strategy: m for m in models if m.row.loss.startswith(loss)} for loss, _ in DEMO_LOSSES)
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
        curves=_demo_curves(ranking),
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the report contains the warnings about the rates
        audit = audit_labels(task.X, task.Y_noisy, rates)
    note = (
        "The probability that a label is wrong follows from out-of-fold predictions of a linear model and a random "
        "forest and the estimated noise rates. The true labels are known here because the noise was simulated. To "
        "review labels and retrain, run: ccmn review --demo (with the --random-state of ccmn demo, if you set one)."
    )
    show = pictures(task.X, DIGIT_SCENE_SHAPE)
    return issue_facts(audit.issues, noisy, names, show, note, Y_true=task.Y.astype(np.float64))


def _demo_curves(ranking: Mapping[str, DemoModel]) -> CurveFacts:
    note = (
        "Models with the ranking loss, at the selected learning rate. Each model has its own validation criterion: "
        "its own labels and noise correction. Values of different models therefore cannot be compared."
    )
    histories = {_DEMO_MODELS[s]: selected_history(model.classifier.history_) for s, model in ranking.items()}
    return curve_facts(histories, note)
