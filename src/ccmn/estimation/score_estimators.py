"""Rates from the out-of-fold scores of each label alone: best bin, anchor points and confident joint.

- *Best bin.* Each observed class is a mixture of the two true classes. The largest share of one observed class that
  looks like the other one gives the rates. Only the order of the scores is used: a label is reduced to two histograms
  over ascending scores, of the rows observed as 0 and as 1.
- *Anchor points.* The share of wrong labels among the most extreme scores is an upper bound.
- *Confident joint.* Counts of observed and confidently predicted labels, as computed by cleanlab.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence, held_out_scores
from ccmn.estimation.noise_rates import (
    UNKNOWN_RATE,
    UNKNOWN_SE,
    ZERO_RATE,
    LabelRates,
    NoiseType,
    Rate,
    RateKind,
    unidentified,
)
from ccmn.estimation.trusted import jeffreys_rate

DELTA = 0.1
"""Error probability of the confidence bound."""
GAMMA = 0.01
"""Weight of the confidence bound in the selection of the bin, minus 1; the value of Garg et al. (2021)."""
N_RESAMPLES = 200
"""Bootstrap samples for the standard errors."""
MAX_CELLS = 1000
"""Thresholds taken from either class; a finer histogram does not change the bound."""
MIN_ANCHORS = 20
"""Smallest number of rows at either end of the scores, if the class is large enough."""


class MixtureProportion(NamedTuple):
    """Estimated mixture proportion and the half width of its interval."""

    value: FloatArray
    margin: FloatArray


def best_bin(evidence: Evidence) -> list[LabelRates]:
    """Estimate the rates by mixture proportion estimation with the best-bin estimator.

    For noise type "partial" the rates are point estimates: nearly every label has rows that are certainly negative, as
    the estimator requires. Otherwise they are upper bounds. Standard errors come from a Poisson bootstrap of the
    rows with fixed scores; intervals follow from the confidence bound of the estimator [1]_. Both rates follow from the
    two mixture proportions as in [2]_. Another estimator of mixture proportions is given in [3]_.

    References
    ----------
    .. [1] S. Garg et al., "Mixture Proportion Estimation and PU Learning: A Modern Approach", NeurIPS 2021.
    .. [2] C. Scott, G. Blanchard and G. Handy, "Classification with Asymmetric Label Noise: Consistency and Maximal
       Denoising", COLT 2013.
    .. [3] H. Ramaswamy, C. Scott and A. Tewari, "Mixture Proportion Estimation via Kernel Embeddings of Distributions",
       ICML 2016.
    """
    scores = held_out_scores(evidence)
    return [
        best_bin_label(*evidence.observed(scores, j), noise_type, evidence.generator(j))
        for j, noise_type in enumerate(evidence.noise_type)
    ]


def best_bin_label(
    scores: FloatArray, positive: NDArray[np.bool_], noise_type: NoiseType, rng: np.random.Generator | None
) -> LabelRates:
    """Return the rates of one label from its scores (n,) and whether each row was observed as 1.

    Without ``rng`` there is no bootstrap, and the standard errors are unknown.
    """
    kind: RateKind = "point" if noise_type == "partial" else "upper bound"
    if positive.all() or not positive.any():
        note = (
            f"Every observed value is {int(positive.any())}: there is no second class to compare with. Exclude the "
            "label or add rows."
        )
        return unidentified(noise_type, kind, "best bin", note)
    zeros, ones = histograms(scores, positive)
    value, low, high = rates_from_histograms(zeros, ones, noise_type)
    se = np.full(2, UNKNOWN_SE) if rng is None else bootstrap_errors(zeros, ones, noise_type, rng)
    pos, neg = (Rate(*map(float, numbers)) for numbers in zip(value, se, low, high))
    notes: tuple[tuple[str, str], ...] = ()
    if (value <= 2 * se).all():
        note = (
            "Both rates are within two standard errors of 0, so there may be no noise. No action is needed: a "
            "noise correction for small rates does no harm."
        )
        notes = (("no_noise_detected", note),)
    return LabelRates(
        pos=ZERO_RATE if noise_type == "partial" else pos,
        neg=ZERO_RATE if noise_type == "missing" else neg,
        kind=kind,
        method="best bin",
        notes=notes,
    )


def histograms(scores: FloatArray, positive: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Return the numbers of rows observed as 0 and as 1 in cells of ascending score."""

    def thresholds(values: FloatArray) -> FloatArray:
        distinct: FloatArray = np.unique(values)
        if distinct.size <= MAX_CELLS:
            return distinct
        return np.sort(values)[np.linspace(0, values.size - 1, MAX_CELLS).astype(np.intp)]

    edges = np.unique(np.concatenate([thresholds(scores[positive]), thresholds(scores[~positive])]))
    cell = np.searchsorted(edges, scores, side="right")
    zeros, ones = (np.bincount(cell[rows], minlength=edges.size + 1) for rows in (~positive, positive))
    return zeros.astype(np.float64), ones.astype(np.float64)


def bootstrap_errors(
    zeros: FloatArray, ones: FloatArray, noise_type: NoiseType, rng: np.random.Generator
) -> FloatArray:
    """Return the standard errors of (rho_pos, rho_neg) by a Poisson bootstrap of the rows with fixed scores."""
    drawn_zeros, drawn_ones = (
        rng.poisson(counts, (N_RESAMPLES, counts.size)).astype(np.float64) for counts in (zeros, ones)
    )
    rates, _, _ = rates_from_histograms(drawn_zeros, drawn_ones, noise_type)
    # A rate of 0 in every resample is not exactly 0: its resolution is about one row.
    resolution = 0.5 / (np.array([ones.sum(), zeros.sum()]) + 1)
    errors: FloatArray = np.maximum(rates.std(0), resolution)
    return errors


def mixture_proportion(component: FloatArray, mixture: FloatArray) -> MixtureProportion:
    r"""Estimate the largest share of the component in the mixture.

    .. math:: \hat\kappa = \frac{q_M(\hat c)}{q_C(\hat c)}, \qquad
        \hat c = \arg\min_c \frac{q_M(c)}{q_C(c)} + (1 + \gamma) \frac{1}{q_C(c)}
        \Bigl(\sqrt{\tfrac{\log(4/\delta)}{2|C|}} + \sqrt{\tfrac{\log(4/\delta)}{2|M|}}\Bigr)

    where :math:`q_C(c)` and :math:`q_M(c)` are the shares of component and mixture in the first c cells.

    Parameters
    ----------
    component, mixture : array of shape (..., T)
        Counts in T cells, ordered so that the *first* cells look most like the component.

    Returns
    -------
    MixtureProportion
        Estimates of shape (...).
    """
    n_C, n_M = np.maximum(component.sum(-1, keepdims=True), 1), np.maximum(mixture.sum(-1, keepdims=True), 1)
    reached = component.cumsum(-1)
    q_C, q_M = reached / n_C, mixture.cumsum(-1) / n_M
    # A bin with a single row of the component is not used, unless it contains the whole component.
    usable = (reached > 1) | (reached == n_C)
    safe = np.where(usable, q_C, 1)
    width = sum(np.sqrt(np.log(4 / DELTA) / (2 * count)) for count in (n_C, n_M))
    margin = (1 + GAMMA) * width / safe
    best = np.where(usable, q_M / safe + margin, np.inf).argmin(-1)[..., None]
    ratio, margin = (np.take_along_axis(values, best, -1)[..., 0] for values in (q_M / safe, margin))
    return MixtureProportion(np.minimum(ratio, 1), margin)


def rates_from_histograms(
    zeros: FloatArray, ones: FloatArray, noise_type: NoiseType
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (rho_pos, rho_neg) and the lower and upper ends of their intervals, each (..., 2), from cells (..., T)."""
    observed = ones.sum(-1) / np.maximum(ones.sum(-1) + zeros.sum(-1), 1)
    none = MixtureProportion(np.zeros_like(observed), np.zeros_like(observed))
    in_ones = none if noise_type == "missing" else mixture_proportion(zeros, ones)
    in_zeros = none if noise_type == "partial" else mixture_proportion(ones[..., ::-1], zeros[..., ::-1])

    def rates(sign: int) -> FloatArray:
        k1, k0 = (np.clip(part.value + sign * part.margin, 0, 1) for part in (in_ones, in_zeros))
        return np.stack(rates_from_impurities(*impurities(k1, k0), observed), -1)

    return rates(0), rates(-1), rates(1)


def impurities(share_in_ones: FloatArray, share_in_zeros: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Return (a, b) = (P(y = 0 | noisy 1), P(y = 1 | noisy 0)) from the two mixture proportions.

    .. math:: a = \frac{\kappa_1 (1 - \kappa_0)}{1 - \kappa_0 \kappa_1}, \qquad
              b = \frac{\kappa_0 (1 - \kappa_1)}{1 - \kappa_0 \kappa_1}
    """
    # If both proportions are 1 the classes are identical; the limit of 0 / 0 is 1/2.
    k1, k0 = (np.minimum(share, 1 - 1e-9) for share in (share_in_ones, share_in_zeros))
    denominator = 1 - k0 * k1
    return k1 * (1 - k0) / denominator, k0 * (1 - k1) / denominator


def rates_from_impurities(a: FloatArray, b: FloatArray, observed: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Return (rho_pos, rho_neg) from the impurities of the observed classes and the observed prevalence.

    .. math:: \pi = \tilde p (1 - a) + (1 - \tilde p) b, \qquad
              \rho_{pos} = \frac{(1 - \tilde p) b}{\pi}, \qquad \rho_{neg} = \frac{\tilde p a}{1 - \pi}
    """
    prior = observed * (1 - a) + (1 - observed) * b
    rho_pos = (1 - observed) * b / np.maximum(prior, 1e-12)
    rho_neg = observed * a / np.maximum(1 - prior, 1e-12)
    return np.minimum(rho_pos, 1), np.minimum(rho_neg, 1)


def anchor_label(scores: FloatArray, positive: NDArray[np.bool_], noise_type: NoiseType) -> LabelRates:
    r"""Return upper bounds of the rates of one label by counting noisy labels at both ends of its scores (n,).

    .. math:: \hat\rho_{pos} = 1 - \text{mean of } \tilde y \text{ over the } k \text{ highest scores}, \qquad
              \hat\rho_{neg} = \text{mean of } \tilde y \text{ over the } k \text{ lowest}

    with k = max(20, 1 % of the rows), but at most a fifth of the rows of the respective class. The classical estimator
    uses the extreme probabilities themselves [1]_ [2]_; counting needs no calibrated probabilities and does not depend
    on single rows. Without anchor points, rows whose true label is certain given their features, the counts include
    rows whose label is correct, so they are upper bounds.

    References
    ----------
    .. [1] T. Liu and D. Tao, "Classification with Noisy Labels by Importance Reweighting", IEEE TPAMI 38(3), 2016.
    .. [2] G. Patrini et al., "Making Deep Neural Networks Robust to Label Noise: A Loss Correction Approach",
       CVPR 2017.
    """
    ones = int(positive.sum())
    pos = ZERO_RATE if noise_type == "partial" else _error_share(scores, positive, ones)
    neg = ZERO_RATE if noise_type == "missing" else _error_share(-scores, ~positive, positive.size - ones)
    notes: tuple[tuple[str, str], ...] = ()
    if UNKNOWN_RATE in (pos, neg):
        note = "One of the two values was never observed, so its rate is unknown. Exclude the label or add rows."
        notes = (("unidentified", note),)
    return LabelRates(pos, neg, "upper bound", "anchor", notes)


def _error_share(scores: FloatArray, correct: NDArray[np.bool_], class_size: int) -> Rate:
    """Return the share of incorrect labels among the k highest scores."""
    if not class_size:
        return UNKNOWN_RATE
    k = max(1, min(max(MIN_ANCHORS, math.ceil(0.01 * scores.size)), int(0.2 * class_size), scores.size))
    errors = k * mean_of_highest(~correct, scores, k)
    # The count is an estimate of an upper bound, so that the interval starts at 0.
    return jeffreys_rate(errors, k)._replace(value=errors / k, low=0.0)


def mean_of_highest(values: NDArray[np.bool_], scores: FloatArray, k: int) -> float:
    """Return the mean of the values at the k highest scores; ties at the last places are averaged.

    >>> mean_of_highest(np.array([True, False, True]), np.array([2.0, 1.0, 1.0]), 2)
    0.75
    """
    threshold = np.partition(scores, -k)[-k]
    above, tied = scores > threshold, scores == threshold
    remaining = k - above.sum()
    return float((values[above].sum() + remaining * values[tied].mean()) / k)


def tightest_label(evidence: Evidence, scores: FloatArray, j: int) -> LabelRates:
    """Return the smaller bounds of best bin and anchor of label j.

    Both are too large if no row determines its label with certainty, so the smaller one is closer. On the benchmark
    data the best bin is closer for rho_neg and the anchor for rho_pos.
    """
    observed, noise_type = evidence.observed(scores, j), evidence.noise_type[j]
    return smaller_bounds(
        best_bin_label(*observed, noise_type, evidence.generator(j)), anchor_label(*observed, noise_type)
    )


def smaller_bounds(first: LabelRates, second: LabelRates) -> LabelRates:
    """Return the smaller of two bounds, separately for each rate; an unknown rate is no bound."""

    def bound(rate: Rate) -> float:
        return 1.0 if rate == UNKNOWN_RATE else rate.value

    pos, neg = min(first.pos, second.pos, key=bound), min(first.neg, second.neg, key=bound)
    methods = [label.method for label in (first, second) if pos is label.pos or neg is label.neg]
    unknown = [] if UNKNOWN_RATE not in (pos, neg) else [*first.notes, *second.notes]
    notes = dict(note for note in unknown if note[0] == "unidentified")
    return LabelRates(pos, neg, "upper bound", ", ".join(methods), tuple(notes.items()))


def joint_label(scores: FloatArray, positive: NDArray[np.bool_], noise_type: NoiseType) -> LabelRates:
    """Return the rates of one label from counts of observed and confidently predicted labels.

    The method of confident learning [1]_ is consistent if the probabilities are nearly ideal within each class. It is
    biased if a label is rare or the noise is of one type only.
    ``NoiseRates.from_confident_joint`` reads the array of cleanlab.

    References
    ----------
    .. [1] C. Northcutt, L. Jiang and I. Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR
       70, 2021.
    """
    if positive.all() or not positive.any():
        note = "All observed values are equal, so the rates are unknown. Exclude the label or add rows."
        return unidentified(noise_type, "point", "confident joint", note)
    joint = joint_counts(scores, positive)
    true = joint.sum(0)
    pos = ZERO_RATE if noise_type == "partial" else jeffreys_rate(joint[0, 1], round(true[1]))
    neg = ZERO_RATE if noise_type == "missing" else jeffreys_rate(joint[1, 0], round(true[0]))
    return LabelRates(pos, neg, "point", "confident joint")


def joint_counts(scores: FloatArray, positive: NDArray[np.bool_]) -> FloatArray:
    """Return the rows by observed (first index) and predicted value (second), scaled to the observed class sizes.

    A row is predicted positive if its probability is at least the mean probability of the observed positives, and
    negative if one minus its probability is at least the mean of that over the observed negatives. If both hold, the
    more probable value is predicted. If neither holds, the row is not counted.
    """
    proba = np.stack([1 - scores, scores], 1)
    reached = proba >= np.array([proba[~positive, 0].mean(), proba[positive, 1].mean()])
    predicted = np.where(reached, proba, -1.0).argmax(1)
    counted = reached.any(1)
    counts = np.zeros((2, 2))
    np.add.at(counts, (positive[counted].astype(int), predicted[counted]), 1)
    counts[np.diag_indices(2)] = np.maximum(counts.diagonal(), 1)
    sizes = np.array([(~positive).sum(), positive.sum()])
    scaled: FloatArray = counts * (sizes / counts.sum(1))[:, None]
    return scaled
