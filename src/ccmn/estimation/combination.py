"""The default method "auto": rates from all available evidence, compared with further estimators.

The profile likelihood, trusted rows and a known prevalence are combined into one posterior per label. The confident
joint and the best bin, which need other assumptions, are computed from the same scores. Where they disagree with the
posterior, intervals are widened or a flag is raised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ccmn._validation import FloatArray
from ccmn.estimation.dawid_skene import dawid_skene
from ccmn.estimation.evidence import Evidence, held_out_scores
from ccmn.estimation.likelihood import observed_prevalence
from ccmn.estimation.noise_rates import (
    MAX_IDENTIFIED_WIDTH,
    UNKNOWN_RATE,
    ZERO_RATE,
    LabelRates,
    Rate,
    prior_from_rates,
)
from ccmn.estimation.profile import Counts, profile_labels
from ccmn.estimation.score_estimators import best_bin_label, joint_label, tightest_label
from ccmn.estimation.trusted import (
    contradict,
    count_flips,
    count_label,
    known_prevalence,
    trusted_counts,
    trusted_rows_needed,
)

TARGET_HALF_WIDTH = 0.1
"""Half width of a 90 % interval that is precise enough for training."""
JOINT_WEIGHT_POS, JOINT_WEIGHT_NEG = 0.6, 2.0
"""Share of the distance from the estimate to the confident joint that an interval covers at least. The joint is far too
large for rho_pos on human labels, and nearly right or too small for rho_neg. Selected on deu and cmc; the
second value was raised from 1.5 because relex had a coverage of .50."""
BEST_BIN_MARGIN = 0.03
"""The best bin raises the upper end of rho_neg to at most the interval of the confident joint plus this value."""
BEST_BIN_WEIGHT_POS = 0.6
"""Share of the best-bin bound that an interval of rho_pos that starts at 0 covers at least. Selected on deu and cmc;
the lengths on relex and ptbr were seen."""
MAX_DISPERSION = 1.0
"""Dispersion of trusted rows and likelihood above which the intervals with trusted rows do not rely on the likelihood.
With class-conditional noise on yeast, scene, mirflickr and enron the dispersion is .1 to 1.8, and above 1 in one of
twelve fits; on human labels (deu and cmc, 50 or 200 rows) it is .8 to 12."""

Notes = tuple[tuple[str, str], ...]


def auto(evidence: Evidence) -> list[LabelRates]:
    """Estimate the rates from the votes, if given; otherwise from trusted rows, prevalence and features combined."""
    if evidence.votes is not None:
        return dawid_skene(evidence)
    if evidence.X is None and evidence.pred_proba is None:
        if evidence.trusted is not None:
            return trusted_counts(evidence)
        if evidence.prevalence is not None:
            return known_prevalence(evidence)
    if evidence.X is None and evidence.trusted is None and evidence.prevalence is None:
        return _bounds_from_scores(evidence)
    return combined(evidence)


def _bounds_from_scores(evidence: Evidence) -> list[LabelRates]:
    """Estimate rates from probabilities alone: by best bin for "partial", otherwise by the smaller of two upper bounds.

    The two bounds are the estimates of best bin and anchor. Nearly every label has rows that are certainly negative,
    which identify rho_neg. Few labels have rows that are certainly positive, so rho_pos can only be bounded.
    """
    scores = held_out_scores(evidence)
    return [
        best_bin_label(*evidence.observed(scores, j), noise_type, evidence.generator(j))
        if noise_type == "partial"
        else tightest_label(evidence, scores, j)
        for j, noise_type in enumerate(evidence.noise_type)
    ]


def combined(evidence: Evidence) -> list[LabelRates]:
    """Combine likelihood, trusted rows and prevalence, and compare the result with the confident joint and best bin."""
    labels = profile_labels(evidence, [None] * len(evidence.noise_type))
    joints, bounds = confident_joints(evidence), best_bin_bounds(evidence)
    sources = {} if evidence.X is None else {"profile": labels}
    sources |= {"confident joint": joints, "best bin": bounds}
    counts = count_flips(evidence)
    notes: list[Notes]
    if counts is None:
        notes = [_disagreement(label, bound) for label, bound in zip(labels, bounds)]
        shares = ambiguous_shares(evidence)
        labels = [
            widen_by_disagreement(label, joint, bound, share)
            if noise_type == "both" and evidence.X is not None
            else label
            for noise_type, label, joint, bound, share in zip(evidence.noise_type, labels, joints, bounds, shares)
        ]
    else:
        sources["trusted"] = [count_label(label, label_type) for label, label_type in zip(counts, evidence.noise_type)]
        labels, notes = _with_trusted(evidence, counts, sources["trusted"], labels, bounds)
    labels = [
        _without_observed_class(label, values[~np.isnan(values)], None if counts is None else sources["trusted"][j])
        for j, (label, values) in enumerate(zip(labels, evidence.Y.T))
    ]
    observed = observed_prevalence(evidence.Y).tolist()
    labels = [_with_notes(*of_label) for of_label in zip(labels, notes, observed)]
    return [
        label._replace(sources=tuple((name, *_values(found[j])) for name, found in sources.items()))
        for j, label in enumerate(labels)
    ]


def _with_trusted(
    evidence: Evidence,
    counts: Sequence[Counts],
    counted: Sequence[LabelRates],
    profiles: Sequence[LabelRates],
    bounds: Sequence[LabelRates],
) -> tuple[list[LabelRates], list[Notes]]:
    """Return rates and flags of labels with trusted rows.

    If the likelihood of a label contradicts its trusted rows, only the trusted rows are used. If the likelihoods of all
    labels together contradict them, the intervals also cover those of the trusted rows alone.
    """
    pairs = [] if evidence.X is None else list(zip(counted, profiles))
    contradicted = [j for j, pair in enumerate(pairs) if contradict(*pair)]
    labels = profile_labels(evidence, counts, contradicted)
    if dispersion(pairs) > MAX_DISPERSION:
        without_likelihood = profile_labels(evidence, counts, range(len(counts)))
        labels = [_cover(*pair) for pair in zip(labels, without_likelihood)]
    notes: list[Notes] = []
    for j, bound in enumerate(bounds):
        label_notes = [note for note in counted[j].notes if note[0] == "noise_type_contradicted"]
        if j in contradicted:
            labels[j] = labels[j]._replace(method="trusted")
            note = (
                "The features imply other rates than the trusted rows, and only the trusted rows were used. Make "
                "sure that the trusted rows are a random sample."
            )
            label_notes.append(("model_contradicted", note))
        notes.append((*label_notes, *_no_anchor(counted[j], bound)))
    return labels, notes


def dispersion(pairs: Sequence[tuple[LabelRates, LabelRates]]) -> float:
    r"""Return how much more two estimates of all labels differ than their standard errors explain.

    The value is the mean of :math:`(a_j - b_j)^2 / (s_{a,j}^2 + s_{b,j}^2)` over the labels, for the rate for which it
    is larger. It is at most about 1 if both estimates are right. Rates that are excluded by the noise type or unknown
    are left out.
    """
    means = [0.0]
    for rates in ([(a.pos, b.pos) for a, b in pairs], [(a.neg, b.neg) for a, b in pairs]):
        known = [(a, b) for a, b in rates if not {a, b} & {ZERO_RATE, UNKNOWN_RATE}]
        if known:
            means.append(float(np.mean([(a.value - b.value) ** 2 / (a.se**2 + b.se**2) for a, b in known])))
    return max(means)


def _cover(label: LabelRates, other: LabelRates) -> LabelRates:
    """Return the label with intervals that contain those of the other one."""
    pos, neg = (
        rate._replace(low=min(rate.low, more.low), high=max(rate.high, more.high))
        for rate, more in ((label.pos, other.pos), (label.neg, other.neg))
    )
    return label._replace(pos=pos, neg=neg)


def _without_observed_class(label: LabelRates, observed: FloatArray, counted: LabelRates | None) -> LabelRates:
    """Return the label with the rate of a class that was never observed from trusted rows alone, or with [0, 1].

    If a label was never given, all its positives may be missing, whatever the rates of the other labels are.
    """

    def replaced(rate: Rate, value: int, alone: Rate) -> Rate:
        if rate == ZERO_RATE or (observed == value).any():
            return rate
        return rate._replace(low=0.0, high=1.0) if alone == UNKNOWN_RATE else alone

    pos, neg = (UNKNOWN_RATE, UNKNOWN_RATE) if counted is None else (counted.pos, counted.neg)
    return label._replace(pos=replaced(label.pos, 1, pos), neg=replaced(label.neg, 0, neg))


def ambiguous_shares(evidence: Evidence) -> FloatArray:
    """Return the share of positives among the rows of each label whose predicted probability is below 1/2, (q,).

    If the features determined the true label, these positives would be wrong, and the share would be rho_neg.
    """
    surfaces = evidence.surfaces
    assert surfaces is not None  # fitted by estimate_rates
    Y = evidence.Y[surfaces.rows]
    below = (surfaces.scores < 0.5) & ~np.isnan(Y)
    share: FloatArray = np.nansum(Y * below, 0) / np.maximum(below.sum(0), 1)
    return share


def widen_by_disagreement(
    label: LabelRates, joint: LabelRates, bound: LabelRates, ambiguous: float = 0.0
) -> LabelRates:
    r"""Return the label with intervals that also cover what the confident joint and the best bin suggest.

    The profile likelihood assumes that flips are independent of the features. If they are not, as in human labels, its
    rho_neg is too small and its intervals are too short. The upper ends become at least

    .. math:: \rho_{pos} + 0.6\, (\rho_{pos}^J - \rho_{pos}), \qquad
        \max(\rho_{neg} + 2\, (\rho_{neg}^J - \rho_{neg}),\; \min(b_{neg}, j_{neg} + 0.03))

    where J is the confident joint, and j and b are the upper ends of the confident joint and of the best bin.

    An interval of the likelihood that starts at 0 means that the labels can be explained without noise, not that there
    is no noise. Its upper end becomes at least 0.6 times the best bin for rho_pos, and for rho_neg the share
    ``ambiguous`` of positives among rows that are predicted to be negative (:func:`ambiguous_shares`).
    """
    if UNKNOWN_RATE in (joint.pos, joint.neg, bound.pos, bound.neg):
        return label
    high_pos = label.pos.value + JOINT_WEIGHT_POS * (joint.pos.value - label.pos.value)
    high_neg = label.neg.value + JOINT_WEIGHT_NEG * (joint.neg.value - label.neg.value)
    high_neg = max(high_neg, min(bound.neg.high, joint.neg.high + BEST_BIN_MARGIN))
    if label.pos.low == 0:
        high_pos = max(high_pos, BEST_BIN_WEIGHT_POS * bound.pos.value)
    if label.neg.low == 0:
        high_neg = max(high_neg, ambiguous)
    pos, neg = (
        rate._replace(high=min(1.0, max(rate.high, high)))
        for rate, high in ((label.pos, high_pos), (label.neg, high_neg))
    )
    return label._replace(pos=pos, neg=neg)


def _values(label: LabelRates) -> tuple[float, float]:
    """Return both rates of a source; NaN for an unknown one."""
    pos, neg = (math.nan if rate == UNKNOWN_RATE else rate.value for rate in (label.pos, label.neg))
    return pos, neg


def confident_joints(evidence: Evidence) -> list[LabelRates]:
    """Return the rates of the confident joint from the scores of the fitted models."""
    surfaces = evidence.surfaces
    assert surfaces is not None  # fitted by estimate_rates
    part = replace(evidence, Y=evidence.Y[surfaces.rows])
    return [
        joint_label(*part.observed(surfaces.scores, j), noise_type) for j, noise_type in enumerate(evidence.noise_type)
    ]


def best_bin_bounds(evidence: Evidence) -> list[LabelRates]:
    """Return the best-bin estimates from the scores of the fitted models: upper bounds without a model assumption."""
    surfaces = evidence.surfaces
    assert surfaces is not None  # fitted by estimate_rates
    part = replace(evidence, Y=evidence.Y[surfaces.rows])
    # Standard errors are compared with those of trusted rows only; their bootstrap is expensive.
    return [
        best_bin_label(
            *part.observed(surfaces.scores, j), noise_type, None if evidence.trusted is None else evidence.generator(j)
        )
        for j, noise_type in enumerate(evidence.noise_type)
    ]


def _disagreement(label: LabelRates, bound: LabelRates) -> Notes:
    """Return the flag "disagreement" if an estimate exceeds its upper bound."""
    pairs = {"rho_pos": (label.pos, bound.pos), "rho_neg": (label.neg, bound.neg)}
    above = [name for name, (rate, upper) in pairs.items() if upper != UNKNOWN_RATE and rate.low > upper.high]
    if not above:
        return ()
    note = (
        f"The estimate of {' and '.join(above)} exceeds the upper bound of best_bin, so one of the two methods is "
        "wrong for this label. Verify some of its rows and pass them as trusted."
    )
    return (("disagreement", note),)


def _no_anchor(counted: LabelRates, bound: LabelRates) -> Notes:
    """Return the flag "no_anchor_suspected" if best bin, which needs anchor points, contradicts the trusted rows."""
    contradicted = contradict(counted, bound)
    if not contradicted:
        return ()
    note = (
        f"The best-bin bound of {' and '.join(contradicted)} contradicts the trusted rows: probably the features "
        "determine the label of no row with certainty. Do not use method='best_bin' for this label."
    )
    return (("no_anchor_suspected", note),)


def _with_notes(label: LabelRates, notes: Notes, observed: float) -> LabelRates:
    """Return the label with the given flags and, where they apply, "wide_interval" or "no_noise_detected"."""
    rates = {"rho_pos": label.pos, "rho_neg": label.neg}
    name, widest = max(rates.items(), key=lambda item: item[1].high - item[1].low)
    if widest.high - widest.low > MAX_IDENTIFIED_WIDTH:
        values = np.array([label.pos.value]), np.array([label.neg.value])
        prior = float(np.clip(prior_from_rates(np.array([observed]), *values)[0], 0.01, 0.99))
        # For a rate of 0 the formula gives 0 rows, so rates are clipped to [0.05, 0.95].
        pos, neg = (trusted_rows_needed(min(max(rate.value, 0.05), 0.95), TARGET_HALF_WIDTH) for rate in rates.values())
        rows = math.ceil(max(pos / prior, neg / (1 - prior)))
        note = (
            f"{name} is poorly identified: its 90 % interval is {widest.low:.2f} to {widest.high:.2f}. About {rows} "
            f"trusted rows, drawn at random, would reduce both intervals to +-{TARGET_HALF_WIDTH:g}."
        )
        notes = (*notes, ("wide_interval", note))
    elif label.pos.low == label.neg.low == 0.0 and max(label.pos.value, label.neg.value) < 0.1:
        note = (
            "Both intervals start at 0, so there may be no noise. No action is needed: a noise correction for small "
            "rates does no harm."
        )
        notes = (*notes, ("no_noise_detected", note))
    return label._replace(notes=(*label.notes, *notes))
