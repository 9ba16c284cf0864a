"""Mixture proportions by the best bin (section 4): what share of one observed class looks just like the other.

Only the order of the scores counts. A label is reduced to two histograms over ascending scores, one of the rows
observed as 0 and one of those observed as 1, and everything here is a function of the two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import NEVER, UNINFORMED, LabelRates, Rate, Side

DELTA = 0.1
GAMMA = 0.01
RESAMPLES = 200
MOST_CELLS = 1000
"""Thresholds taken from either class; more would change nothing that the bound can tell apart."""


class Share(NamedTuple):
    """An estimated mixture proportion, and the half width of its interval."""

    value: FloatArray
    margin: FloatArray


def best_bin(evidence: Evidence) -> list[LabelRates]:
    """Section 4 for every label: 4.3 where labels can only be added, 4.4 where only lost, else 4.2.

    Standard errors come from 200 resamples of the rows with the scores as they are (a Poisson bootstrap), intervals
    from the bound of 4.1.
    """
    return [best_bin_label(*evidence.observed(j), side, evidence.generator(j)) for j, side in enumerate(evidence.sides)]


def best_bin_label(scores: FloatArray, positive: NDArray[np.bool_], side: Side, rng: np.random.Generator) -> LabelRates:
    """One label: scores (n,), high where a 1 is expected, and whether a 1 was observed."""
    if positive.all() or not positive.any():
        note = f"every observed label is {int(positive.any())}: there is no second class to compare with"
        return _label(UNINFORMED, UNINFORMED, side, ("unidentified", note))
    zeros, ones = histograms(scores, positive)
    value, low, high = rates_from_histograms(zeros, ones, side)
    se = resampling_errors(zeros, ones, side, rng)
    pos, neg = (Rate(*map(float, numbers)) for numbers in zip(value, se, low, high))
    if (value <= 2 * se).all():
        note = "the rates are within two standard errors of 0: this may be no noise at all"
        return _label(pos, neg, side, ("no_noise_detected", note))
    return _label(pos, neg, side)


def _label(pos: Rate, neg: Rate, side: Side, *notes: tuple[str, str]) -> LabelRates:
    # Labels that can only be added nearly always have sure negatives, which is all that the bin needs.
    return LabelRates(
        pos=NEVER if side == "partial" else pos,
        neg=NEVER if side == "missing" else neg,
        kind="point" if side == "partial" else "upper bound",
        method="best bin",
        notes=notes,
    )


def resampling_errors(zeros: FloatArray, ones: FloatArray, side: Side, rng: np.random.Generator) -> FloatArray:
    """Standard errors of (rho_pos, rho_neg): rows resampled, scores as they are."""
    drawn_zeros, drawn_ones = (
        rng.poisson(counts, (RESAMPLES, counts.size)).astype(np.float64) for counts in (zeros, ones)
    )
    rates, _, _ = rates_from_histograms(drawn_zeros, drawn_ones, side)
    # A rate of exactly 0 in every resample is not known exactly: it is below about one row.
    least = 0.5 / (np.array([ones.sum(), zeros.sum()]) + 1)
    errors: FloatArray = np.maximum(rates.std(0), least)
    return errors


def histograms(scores: FloatArray, positive: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Rows observed as 0 and as 1 in cells of ascending score; a cell is one score value, or several where many."""
    edges = np.unique(np.concatenate([_thinned(scores[positive]), _thinned(scores[~positive])]))
    cell = np.searchsorted(edges, scores, side="right")
    zeros, ones = (np.bincount(cell[rows], minlength=edges.size + 1) for rows in (~positive, positive))
    return zeros.astype(np.float64), ones.astype(np.float64)


def _thinned(values: FloatArray) -> FloatArray:
    distinct: FloatArray = np.unique(values)
    if distinct.size <= MOST_CELLS:
        return distinct
    ordered = np.sort(values)
    return ordered[np.linspace(0, values.size - 1, MOST_CELLS).astype(np.intp)]


def best_bin_share(component: FloatArray, mixture: FloatArray) -> Share:
    r"""The largest share of the component inside the mixture, section 4.1.

    .. math:: \hat\kappa = \frac{q_M(\hat c)}{q_C(\hat c)}, \qquad
        \hat c = \arg\min_c \frac{q_M(c)}{q_C(c)} + (1 + \gamma) \frac{1}{q_C(c)}
        \Bigl(\sqrt{\tfrac{\log(4/\delta)}{2|C|}} + \sqrt{\tfrac{\log(4/\delta)}{2|M|}}\Bigr)

    with :math:`q_C(c)`, :math:`q_M(c)` the shares of component and mixture in the cells from c on.

    Parameters
    ----------
    component, mixture : (..., T)
        Counts in T cells, ordered so that the *first* cells look most like the component.
    """
    many = np.maximum(component.sum(-1, keepdims=True), 1), np.maximum(mixture.sum(-1, keepdims=True), 1)
    reached = component.cumsum(-1)
    q_C, q_M = reached / many[0], mixture.cumsum(-1) / many[1]
    # A bin with a single row of the component says nothing, unless that is all there is.
    usable = (reached > 1) | (reached == many[0])
    safe = np.where(usable, q_C, 1)
    width = sum(np.sqrt(np.log(4 / DELTA) / (2 * count)) for count in many)
    margin = (1 + GAMMA) * width / safe
    best = np.where(usable, q_M / safe + margin, np.inf).argmin(-1)[..., None]
    ratio, margin = (np.take_along_axis(values, best, -1)[..., 0] for values in (q_M / safe, margin))
    return Share(np.minimum(ratio, 1), margin)


def rates_from_histograms(zeros: FloatArray, ones: FloatArray, side: Side) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(rho_pos, rho_neg), and the lower and upper ends of their intervals, each (..., 2), from cells (..., T)."""
    observed = ones.sum(-1) / np.maximum(ones.sum(-1) + zeros.sum(-1), 1)
    nothing = Share(np.zeros_like(observed), np.zeros_like(observed))
    inside_ones = nothing if side == "missing" else best_bin_share(zeros, ones)
    inside_zeros = nothing if side == "partial" else best_bin_share(ones[..., ::-1], zeros[..., ::-1])

    def rates(sign: int) -> FloatArray:
        k1, k0 = (np.clip(share.value + sign * share.margin, 0, 1) for share in (inside_ones, inside_zeros))
        return np.stack(rates_from_impurities(*impurities(k1, k0), observed), -1)

    return rates(0), rates(-1), rates(1)


def impurities(share_in_ones: FloatArray, share_in_zeros: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""(a, b) = (P(y = 0 | noisy 1), P(y = 1 | noisy 0)) from the two mixture proportions, section 4.2.

    .. math:: a = \frac{\kappa_1 (1 - \kappa_0)}{1 - \kappa_0 \kappa_1}, \qquad
              b = \frac{\kappa_0 (1 - \kappa_1)}{1 - \kappa_0 \kappa_1}
    """
    # Two classes that look just alike, both shares 1, are each half of the other: the limit, where 0 / 0 stands.
    k1, k0 = (np.minimum(share, 1 - 1e-9) for share in (share_in_ones, share_in_zeros))
    left = 1 - k0 * k1
    return k1 * (1 - k0) / left, k0 * (1 - k1) / left


def rates_from_impurities(a: FloatArray, b: FloatArray, observed: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""(rho_pos, rho_neg) from the impurities of the observed classes and the observed prevalence, section 0.

    .. math:: \pi = \tilde p (1 - a) + (1 - \tilde p) b, \qquad
              \rho_{pos} = \frac{(1 - \tilde p) b}{\pi}, \qquad \rho_{neg} = \frac{\tilde p a}{1 - \pi}
    """
    prior = observed * (1 - a) + (1 - observed) * b
    rho_pos = (1 - observed) * b / np.maximum(prior, 1e-12)
    rho_neg = observed * a / np.maximum(1 - prior, 1e-12)
    return np.minimum(rho_pos, 1), np.minimum(rho_neg, 1)
