"""Everything that a report shows."""

from __future__ import annotations

from dataclasses import dataclass

from ccmn.report.facts.cooccurrence import CooccurrenceFacts
from ccmn.report.facts.curves import CurveFacts
from ccmn.report.facts.data import DataFacts
from ccmn.report.facts.metrics import MetricFacts
from ccmn.report.facts.precision_recall import PrecisionRecallFacts
from ccmn.report.facts.rates import RateFacts
from ccmn.report.facts.suspects import SuspectFacts


@dataclass(frozen=True)
class Report:
    """The facts of one report; None for what there is not."""

    title: str
    lead: tuple[str, ...]
    """What the report is about, a sentence or two each."""
    data: DataFacts
    rates: RateFacts | None = None
    metrics: MetricFacts | None = None
    cooccurrence: CooccurrenceFacts | None = None
    precision_recall: PrecisionRecallFacts | None = None
    suspects: SuspectFacts | None = None
    curves: CurveFacts | None = None
