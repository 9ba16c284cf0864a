"""method="auto": everything that is known goes into one posterior per label, and the doubts are told."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ccmn.estimation.best_bin import best_bin, best_bin_label
from ccmn.estimation.dawid_skene import dawid_skene
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.known_prevalence import known_prevalence
from ccmn.estimation.posterior import Counts
from ccmn.estimation.profile import profile, profile_labels
from ccmn.estimation.rates import UNINFORMED, WIDE, LabelRates, Rate, prior_from_rates
from ccmn.estimation.surface import shares
from ccmn.estimation.tightest import tightest
from ccmn.estimation.trusted import contradict, counts_of, rows_needed, trusted_counts

WANTED = 0.1
"""Half the length of an interval that is worth having."""

Notes = tuple[tuple[str, str], ...]


def auto(evidence: Evidence) -> list[LabelRates]:
    """What there is decides: votes of annotators; trusted rows, prevalence and features together; or one of them."""
    if evidence.annotators is not None:
        return dawid_skene(evidence)
    if not evidence.has_scores:
        if evidence.trusted is None and evidence.prevalence is not None:
            return known_prevalence(evidence)
        return trusted_counts(evidence) if evidence.trusted is not None else profile(evidence)
    counts = counts_of(evidence)
    if counts is None and evidence.X is None and evidence.prevalence is None:
        return _bounded(evidence)
    if counts is None:
        free = profile_labels(evidence, [None] * len(evidence.sides))
        checks = bounds(evidence)
        return [_told(evidence, j, label, disagreement(label, checks[j])) for j, label in enumerate(free)]
    return _with_trusted(evidence, counts)


def _bounded(evidence: Evidence) -> list[LabelRates]:
    """From probabilities alone: the best bin where labels were only added, else the lower of it and the anchors.

    Nearly every label has rows that are surely negative, so that added labels are seen for what they are; few have
    rows that are surely positive, so that lost ones can only be bounded.
    """
    by_side = {side: (best_bin if side == "partial" else tightest)(evidence) for side in set(evidence.sides)}
    return [by_side[side][j] for j, side in enumerate(evidence.sides)]


def _with_trusted(evidence: Evidence, counts: Sequence[Counts]) -> list[LabelRates]:
    """Labels whose likelihood contradicts their counts are left to the counts alone."""
    counted, free = trusted_counts(evidence), profile_labels(evidence, [None] * len(evidence.sides))
    apart = [] if evidence.X is None else [j for j, pair in enumerate(zip(counted, free)) if _contradict(*pair)]
    joint, checks = profile_labels(evidence, counts, apart), bounds(evidence)
    result = []
    for j, label in enumerate(joint):
        notes = [note for note in counted[j].notes if note[0] == "side_contradicted"]
        if j in apart:
            label = label._replace(method="trusted")
            notes.append(("model_contradicted", "the features tell other rates than the trusted rows, which stand"))
        result.append(_told(evidence, j, label, (*notes, *no_anchor(counted[j], checks[j]))))
    return result


def _contradict(first: LabelRates, second: LabelRates) -> bool:
    return contradict(first.pos, second.pos) or contradict(first.neg, second.neg)


def bounds(evidence: Evidence) -> list[LabelRates]:
    """What the best bin makes of held-out scores: the most that the rates can be, whatever the shape."""
    scores, Y = evidence.surfaces.scores, evidence.Y[evidence.surfaces.rows]
    result = []
    for j, side in enumerate(evidence.sides):
        seen = ~np.isnan(Y[:, j])
        result.append(best_bin_label(scores[seen, j], Y[seen, j] == 1, side, evidence.generator(j)))
    return result


def disagreement(label: LabelRates, bound: LabelRates) -> Notes:
    """The flag ``disagreement`` where more noise is estimated than the best bin leaves room for."""
    pairs = {"rho_pos": (label.pos, bound.pos), "rho_neg": (label.neg, bound.neg)}
    above = [name for name, (rate, most) in pairs.items() if most != UNINFORMED and rate.low > most.high]
    if not above:
        return ()
    return (("disagreement", f"{' and '.join(above)} came out above what the best bin leaves room for"),)


def no_anchor(counted: LabelRates, bound: LabelRates) -> Notes:
    """The flag ``no_anchor_suspected`` where the best bin, which needs sure rows, contradicts the trusted rows."""
    pairs = {"rho_pos": (counted.pos, bound.pos), "rho_neg": (counted.neg, bound.neg)}
    apart = [name for name, pair in pairs.items() if contradict(*pair)]
    if not apart:
        return ()
    note = f"the best bin's {' and '.join(apart)} contradicts the trusted rows: no row's label may be certain from x"
    return (("no_anchor_suspected", note),)


def _told(evidence: Evidence, j: int, label: LabelRates, notes: Notes) -> LabelRates:
    """A label with its doubts: those given, an interval too wide to be of use, or no noise in sight."""
    if _width(label) > WIDE:
        notes = (*notes, ("wide_interval", _remedy(label, float(shares(evidence.Y[:, [j]])[0]))))
    elif label.pos.low == label.neg.low == 0.0 and max(label.pos.value, label.neg.value) < 0.1:
        notes = (*notes, ("no_noise_detected", "both intervals reach down to 0: this may be no noise at all"))
    return label._replace(notes=(*label.notes, *notes))


def _width(label: LabelRates) -> float:
    return max(label.pos.high - label.pos.low, label.neg.high - label.neg.low)


def _remedy(label: LabelRates, observed: float) -> str:
    """Which rate is known badly, and how many trusted rows would mend it."""
    name, rate = max((("rho_pos", label.pos), ("rho_neg", label.neg)), key=lambda pair: pair[1].high - pair[1].low)
    return (
        f"{name} is only known to lie between {rate.low:.2f} and {rate.high:.2f}; about "
        f"{trusted_rows_needed(label.pos, label.neg, observed)} trusted rows, taken at random, would bring both rates "
        f"to +-{WANTED:g}"
    )


def trusted_rows_needed(pos: Rate, neg: Rate, observed: float) -> int:
    """Rows, taken at random, whose true labels bring both rates to an interval of +- 0.1 by counting alone."""
    values = np.array([pos.value]), np.array([neg.value])
    prior = float(np.clip(prior_from_rates(np.array([observed]), *values)[0], 0.01, 0.99))
    # A rate of 0 would need no rows: ask for those of a small one.
    needed = [rows_needed(min(max(rate.value, 0.05), 0.95), WANTED) for rate in (pos, neg)]
    return math.ceil(max(needed[0] / prior, needed[1] / (1 - prior)))
