"""The report of a model held against labels."""

from __future__ import annotations

import numpy as np

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray
from ccmn.audit import find_label_issues
from ccmn.data import MultiLabelData
from ccmn.estimation import NoiseRates
from ccmn.models import CCMNClassifier
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.report.facts.believed import believed_noise
from ccmn.report.facts.cooccurrence import cooccurrence_facts
from ccmn.report.facts.curves import curve_facts, curves_of_rates
from ccmn.report.facts.data import data_facts
from ccmn.report.facts.instances import Show
from ccmn.report.facts.precision_recall import precision_recall_facts
from ccmn.report.facts.rates import RateFacts, rate_facts
from ccmn.report.facts.report import Report
from ccmn.report.facts.suspects import SuspectFacts, suspect_facts
from ccmn.report.facts.two_ways import against_given, two_lines

_CURVES = "Of the fit, by learning rate; the validation criterion is corrected for the noise that the model knows of."
_NOTE = (
    "From the model's own probabilities and the rates. This holds for rows that the model was not trained on: a model "
    "repeats the errors it has learnt."
)


def evaluation_report(
    data: MultiLabelData,
    classifier: CCMNClassifier,
    scores: FloatArray,
    noise: NoiseModel | NoiseRates | None,
    show: Show,
) -> Report:
    """Scores (n, q) of a model against labels, which are noisy where ``noise`` is said."""
    labels = to_dense_array(data.Y).astype(np.float64)
    names = [str(name) for name in data.label_names or range(data.q)]
    believed = None if noise is None else believed_noise(noise)
    told = "true ones, estimated from noisy ones" if noise is not None else "labels as they are"
    return Report(
        title=f"A model held against the labels of {data.name or 'some data'}",
        lead=(f"{data.n:,} rows; the figures are those on {told}.",),
        data=data_facts(data.name, data.d, labels, names),
        rates=_rates(classifier, noise, names),
        metrics=two_lines(labels, scores, noise, "The model's predictions."),
        cooccurrence=cooccurrence_facts(labels, names, believed),
        precision_recall=precision_recall_facts(names, against_given(labels, scores, believed), "The model's scores."),
        suspects=_suspects(classifier, data, labels, names, believed, show),
        curves=curve_facts(curves_of_rates(classifier.history_), _CURVES),
    )


def _rates(classifier: CCMNClassifier, noise: NoiseModel | NoiseRates | None, names: list[str]) -> RateFacts | None:
    if noise is not None:
        return rate_facts(noise, names)
    return rate_facts(classifier.noise_, names, kind="what the model corrected for in training")


def _suspects(
    classifier: CCMNClassifier,
    data: MultiLabelData,
    labels: FloatArray,
    names: list[str],
    noise: NoiseModel | None,
    show: Show,
) -> SuspectFacts | None:
    """Labels that the model doubts; None where no rates per label are known."""
    if not isinstance(noise, ClassConditionalNoise):
        return None
    clean = classifier.predict_proba(data.X)
    noisy = noise.rho_neg + (1 - noise.rho_pos - noise.rho_neg) * clean
    nameless = ClassConditionalNoise(noise.rho_pos, noise.rho_neg)
    issues = find_label_issues(labels, noisy, nameless)
    issues["label"] = [names[j] for j in issues.label]
    return suspect_facts(issues, labels, names, show, _NOTE)
