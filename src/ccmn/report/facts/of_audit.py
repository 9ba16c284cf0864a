"""The report of an audit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray
from ccmn.audit import Audit
from ccmn.data import MultiLabelData
from ccmn.report.facts.believed import believed_noise
from ccmn.report.facts.cooccurrence import cooccurrence_facts
from ccmn.report.facts.data import data_facts
from ccmn.report.facts.instances import Show
from ccmn.report.facts.metrics import MetricFacts
from ccmn.report.facts.precision_recall import precision_recall_facts
from ccmn.report.facts.rates import rate_facts
from ccmn.report.facts.report import Report
from ccmn.report.facts.suspects import suspect_facts
from ccmn.report.facts.two_ways import against_given, two_lines

_SCORED = "Held-out probabilities of a linear model that took the labels at their word."
_NOTE = (
    "A linear model foresaw the labels of rows it was not trained on; with the rates that gives the probability that "
    "a label is wrong."
)


def audit_report(data: MultiLabelData, Y: Any, found: Audit, show: Show, most: int) -> Report:
    """What an audit of the labels Y of some data found; the ``most`` suspicious labels with their rows."""
    labels = to_dense_array(Y).astype(np.float64)
    names = [str(name) for name in found.summary.label]
    noise = believed_noise(found.noise)
    return Report(
        title=f"Audit of the labels of {data.name or 'some data'}",
        lead=(_lead(found),),
        data=data_facts(data.name, data.d, labels, names),
        rates=rate_facts(found.noise, names),
        metrics=_metrics(labels, found),
        cooccurrence=cooccurrence_facts(labels, names, noise),
        precision_recall=precision_recall_facts(names, against_given(labels, found.pred_proba, noise), _SCORED),
        suspects=suspect_facts(found.issues, labels, names, show, _NOTE, most=most),
    )


def _lead(found: Audit) -> str:
    false, missing = found.summary["false"].sum(), found.summary["missing"].sum()
    given, observed = found.summary.given.sum(), found.summary.observed.sum()
    return (
        f"Of the {given:,} labels given about {false:,.0f} are false; of the {observed - given:,} not given about "
        f"{missing:,.0f} are missing. Which ones they are can only be told with probabilities: look at some."
    )


def _metrics(labels: FloatArray, found: Audit) -> MetricFacts:
    return two_lines(labels, found.pred_proba - 0.5, found.noise, _SCORED)
