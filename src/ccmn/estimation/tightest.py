"""The tightest of several upper bounds, rate by rate."""

from __future__ import annotations

from ccmn.estimation.anchor import anchor
from ccmn.estimation.best_bin import best_bin
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.rates import UNINFORMED, LabelRates, Rate


def tightest(evidence: Evidence) -> list[LabelRates]:
    """The lower of best bin and anchors, for each rate.

    Without a row whose label is certain from its features, both report more noise than there is (section 1), so the
    lower is the nearer. On the benchmark sets the best bin is nearer for labels added, the anchors for labels lost: a
    positive that the features do not explain looks lost to the best bin, and there are many.
    """
    return [lower_of(b, a) for b, a in zip(best_bin(evidence), anchor(evidence))]


def lower_of(first: LabelRates, second: LabelRates) -> LabelRates:
    """The lower of two estimates of a label, for each of its rates."""
    pos, neg = min(first.pos, second.pos, key=_bound), min(first.neg, second.neg, key=_bound)
    origins = [label.method for label in (first, second) if pos is label.pos or neg is label.neg]
    unknown = [] if UNINFORMED not in (pos, neg) else [*first.notes, *second.notes]
    notes = dict(note for note in unknown if note[0] == "unidentified")
    return LabelRates(pos, neg, "upper bound", ", ".join(origins), tuple(notes.items()))


def _bound(rate: Rate) -> float:
    return 1.0 if rate == UNINFORMED else rate.value
