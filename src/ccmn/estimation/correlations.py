"""Label correlations (section 7, after Li et al., NeurIPS 2022): another label as an instrument."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from ccmn._validation import FloatArray
from ccmn.estimation.best_bin import best_bin_label
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import NEVER, UNINFORMED_SE, Z_LEVEL, LabelRates, Rate, Side

FEWEST = 50
"""Selected rows of either class below which a label is left to the best bin."""
LEAST_CONTRAST = 0.02
SLACK = 0.02
"""How far below 0 a rate may come out and still count as 0."""


def correlations(evidence: Evidence) -> list[LabelRates]:
    """For each label the estimate, by one of the other labels, that is nearest to all the others (their medoid).

    Rows whose label is probably right are selected by their held-out loss; on them the other label's share in either
    class is measured, and held against the shares in all rows. No row need be certain of its label, but the rows
    selected must be like the rest with regard to the other label. Labels without an instrument take the best bin.
    """
    Y, scores = evidence.Y, evidence.scores
    selected = [select(scores[:, j], Y[:, j], evidence.seed) for j in range(Y.shape[1])]
    return [
        instrument_label(Y, j, selected[j], side) or best_bin_label(*evidence.observed(j), side, evidence.generator(j))
        for j, side in enumerate(evidence.sides)
    ]


def select(scores: FloatArray, noisy: FloatArray, seed: int) -> NDArray[np.bool_]:
    """Rows whose label is probably right: in either class those in the lower of two Gaussians of held-out loss."""
    kept = np.zeros(noisy.size, dtype=bool)
    for value in (0, 1):
        rows = np.flatnonzero(noisy == value)
        if rows.size < FEWEST:
            continue
        right = np.clip(scores[rows] if value else 1 - scores[rows], 1e-6, 1)
        loss = -np.log(right)
        spread = np.ptp(loss)
        scaled = ((loss - loss.min()) / (spread if spread > 0 else 1.0))[:, None]
        mixture = GaussianMixture(2, random_state=seed, reg_covar=1e-4).fit(scaled)
        kept[rows] = mixture.predict_proba(scaled)[:, mixture.means_.argmin()] > 0.5
    return kept


def instrument_label(Y: FloatArray, j: int, selected: NDArray[np.bool_], side: Side) -> LabelRates | None:
    """The medoid over all instruments of label j; None where there is none."""
    ones, zeros = selected & (Y[:, j] == 1), selected & (Y[:, j] == 0)
    if min(ones.sum(), zeros.sum()) < FEWEST:
        return None
    found = [by_instrument(Y[:, j], Y[:, i], ones, zeros) for i in range(Y.shape[1]) if i != j]
    kept = np.array([pair for pair in found if pair is not None])
    if not len(kept):
        return None
    medoid = kept[np.abs(kept[:, None] - kept).sum((1, 2)).argmin()]
    spread = np.median(np.abs(kept - medoid), 0) * 1.4826 if len(kept) > 2 else np.full(2, UNINFORMED_SE)
    pos, neg = (
        NEVER if side == never else Rate(float(v), float(e), max(0.0, v - Z_LEVEL * e), min(1.0, v + Z_LEVEL * e))
        for v, e, never in zip(medoid, spread, ("partial", "missing"))
    )
    return LabelRates(pos, neg, "point", "correlations")


def by_instrument(
    noisy: FloatArray, other: FloatArray, ones: NDArray[np.bool_], zeros: NDArray[np.bool_]
) -> tuple[float, float] | None:
    r"""(rho_pos, rho_neg) of a label by one other label, or None where it does not say.

    With :math:`m_1, m_0` the other label's share in the selected rows of either class, :math:`e_1` its share in all,

    .. math:: \pi = \frac{e_1 - m_0}{m_1 - m_0}, \qquad
        (u, v) = (E[\tilde y_j (1 - \tilde y_i)], E[\tilde y_j \tilde y_i])
        \begin{pmatrix} 1 - m_0 & m_0 \\ 1 - m_1 & m_1 \end{pmatrix}^{-1}, \qquad
        \rho_{neg} = \frac{u}{1 - \pi}, \quad \rho_{pos} = 1 - \frac{v}{\pi}
    """
    seen = ~np.isnan(noisy) & ~np.isnan(other)
    if not (ones & seen).any() or not (zeros & seen).any():
        return None
    m1, m0, e1 = other[ones & seen].mean(), other[zeros & seen].mean(), other[seen].mean()
    if abs(m1 - m0) < LEAST_CONTRAST:
        return None
    prior = (e1 - m0) / (m1 - m0)
    if not 0 < prior < 1:
        return None
    joint = np.array([(noisy * (1 - other))[seen].mean(), (noisy * other)[seen].mean()])
    u, v = joint @ np.linalg.inv(np.array([[1 - m0, m0], [1 - m1, m1]]))
    rho_neg, rho_pos = u / (1 - prior), 1 - v / prior
    if min(rho_pos, rho_neg) < -SLACK or rho_pos + rho_neg >= 1:
        return None
    return max(float(rho_pos), 0.0), max(float(rho_neg), 0.0)
