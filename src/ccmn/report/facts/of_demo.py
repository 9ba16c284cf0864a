"""The report of the demonstration."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ccmn.audit import audit_labels
from ccmn.data.digits import PICTURE
from ccmn.estimation import NoiseRates
from ccmn.experiments.demo import LOSSES, WAYS, DemoModel, DemoTask
from ccmn.report.facts.believed import believed_noise
from ccmn.report.facts.cooccurrence import cooccurrence_facts
from ccmn.report.facts.curves import CurveFacts, chosen_curve, curve_facts
from ccmn.report.facts.data import data_facts
from ccmn.report.facts.instances import pictures
from ccmn.report.facts.metrics import MetricFacts, MetricLine, measure
from ccmn.report.facts.precision_recall import PrecisionRecallFacts, precision_recall_facts
from ccmn.report.facts.rates import rate_facts
from ccmn.report.facts.report import Report
from ccmn.report.facts.suspects import SuspectFacts, suspect_facts

_WAYS = {
    "clean": "true labels",
    "plain": "noisy labels",
    "unbiased": "true rates",
    "estimated": "estimated rates",
}


def demo_report(task: DemoTask, models: Sequence[DemoModel]) -> Report:
    """What the demonstration did: the noise it made, found and corrected, and what that was worth."""
    names = task.noise.label_names or ()
    hamming, ranking = ({m.row.way: m for m in models if m.row.loss.startswith(loss)} for loss, _ in LOSSES)
    rates = replace(hamming["estimated"].classifier.rates_, label_names=tuple(names))
    noisy = task.Y_noisy.astype(np.float64)
    return Report(
        title="Learning from wrong labels: the demonstration",
        lead=_lead(task),
        data=data_facts("digit scenes", task.X.shape[1], noisy, names),
        rates=rate_facts(rates, names, task.noise),
        metrics=_metrics(task, models),
        cooccurrence=cooccurrence_facts(noisy, names, believed_noise(rates)),
        precision_recall=_precision_recall(task, hamming, names),
        suspects=_suspects(task, rates, noisy, names),
        curves=_curves(ranking),
    )


def _lead(task: DemoTask) -> tuple[str, ...]:
    return (
        f"{len(task.X):,} training pictures with several handwritten digits each; the labels are the digits in it. "
        f"Every label was flipped with rates of its own, so that {task.wrong_labels:.0%} of the labels are wrong. "
        f"Models were trained on the true labels, on the noisy ones at their word, and corrected, and measured on "
        f"{len(task.X_test):,} pictures by other hands with true labels.",
    )


def _metrics(task: DemoTask, models: Sequence[DemoModel]) -> MetricFacts:
    lines = (
        MetricLine(
            f"{model.row.loss.split()[0]}, {_WAYS[model.row.way]}",
            measure(task.Y_test, model.scores),
            WAYS.index(model.row.way),
        )
        for model in models
    )
    note = (
        "Linear models by either loss, which differ only in what they know of the noise, on true test labels. "
        "Arrows: where better is."
    )
    return MetricFacts(tuple(lines), note)


def _precision_recall(task: DemoTask, models: Mapping[str, DemoModel], names: Sequence[str]) -> PrecisionRecallFacts:
    clean = task.Y_test.astype(np.float64)
    ways = {_WAYS[way]: (clean, models[way].scores) for way in WAYS}
    return precision_recall_facts(names, ways, "Models by the Hamming loss, on true test labels.")


def _suspects(task: DemoTask, rates: NoiseRates, noisy: np.ndarray, names: Sequence[str]) -> SuspectFacts:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what there is to say of the rates is on the page
        found = audit_labels(task.X, task.Y_noisy, rates)
    note = (
        "A model foresaw the labels of pictures it was not trained on; with the estimated rates that gives the "
        "probability that a label is wrong. Whether it is we know here, because the noise was made. To check labels by "
        "hand, and retrain with what you found: ccmn review --demo (and the --seed, if one was given)."
    )
    show = pictures(task.X, PICTURE)
    return suspect_facts(found.issues, noisy, names, show, note, Y_true=task.Y.astype(np.float64))


def _curves(ranking: Mapping[str, DemoModel]) -> CurveFacts:
    note = (
        "Models by the ranking loss, at the learning rate chosen. Each is chosen by the labels it has, corrected as "
        "it was trained: curves of different models are not to be compared in height."
    )
    return curve_facts({_WAYS[way]: chosen_curve(model.classifier.history_) for way, model in ranking.items()}, note)
