"""Published estimators of noise rates, compared by the benchmarks with the estimators of the package.

Each takes the evidence and its out-of-fold scores and returns the rates of every label, as the members of
``ccmn.estimation.METHODS`` do.

========================  ===================================================================================
``anchor_max``            extreme probabilities at anchor points (Liu and Tao 2016; Patrini et al. 2017)
``anchor_quantile``       the same with the 97 % and 3 % quantiles
``forward``               rates learned with a linear model, with volume minimization (Li et al., ICML 2021)
``correlations``          another label as instrument (Li et al., NeurIPS 2022)
========================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special
import torch
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import (
    UNKNOWN_SE,
    Z_CONFIDENCE,
    ZERO_RATE,
    LabelRates,
    NoiseType,
    Rate,
    unidentified,
)
from ccmn.estimation.out_of_fold import reduce_features
from ccmn.estimation.score_estimators import anchor_label, best_bin_label, joint_label

FloatArray = NDArray[np.float64]

N_RESAMPLES = 100
"""Bootstrap samples of the quantile estimators."""
QUANTILE = 0.97
"""Quantile of ``anchor_quantile``, the value used in the literature."""
N_STEPS, LEARNING_RATE, WEIGHT_DECAY = 400, 0.03, 1e-3
"""Optimization of ``forward`` with Adam."""
VOLUME_WEIGHT = 1e-4
"""Weight of log r in ``forward``: among equally likely explanations the one with most noise is preferred."""
MIN_SELECTED = 50
"""Selected rows of either class below which ``correlations`` falls back to the best bin."""
MIN_CONTRAST = 0.02
"""Smallest difference of the other label between both classes at which it is used as an instrument."""
MAX_NEGATIVE_RATE = 0.02
"""A rate down to minus this value counts as 0."""


def anchor(evidence: Evidence, scores: FloatArray) -> list[LabelRates]:
    """Count noisy labels at both ends of the scores."""
    return [anchor_label(*evidence.observed(scores, j), kind) for j, kind in enumerate(evidence.noise_type)]


def confident_joint(evidence: Evidence, scores: FloatArray) -> list[LabelRates]:
    """Count observed and confidently predicted labels (confident learning)."""
    return [joint_label(*evidence.observed(scores, j), kind) for j, kind in enumerate(evidence.noise_type)]


def anchor_max(evidence: Evidence, scores: FloatArray) -> list[LabelRates]:
    """Estimate rho_pos as 1 minus the largest probability and rho_neg as the smallest one."""
    return _quantile_bounds(evidence, scores, 1.0, "anchor, maximum")


def anchor_quantile(evidence: Evidence, scores: FloatArray) -> list[LabelRates]:
    """Estimate rho_pos as 1 minus the 97 % quantile of the probabilities and rho_neg as the 3 % quantile.

    The probabilities must be calibrated. For labels rarer than 3 % the upper quantile lies among the negatives.
    """
    return _quantile_bounds(evidence, scores, QUANTILE, "anchor, quantile")


def _quantile_bounds(evidence: Evidence, scores: FloatArray, quantile: float, method: str) -> list[LabelRates]:
    result = []
    for j, noise_type in enumerate(evidence.noise_type):
        values = evidence.observed(scores, j)[0]
        if not values.size:
            result.append(unidentified(noise_type, "upper bound", method, "No row was observed."))
            continue
        drawn = values[evidence.generator(j).integers(values.size, size=(N_RESAMPLES, values.size))]
        high, low = (
            (np.quantile(values, part), np.quantile(drawn, part, axis=1).std()) for part in (quantile, 1 - quantile)
        )
        pos, neg = (
            Rate(float(value), float(se), 0.0, float(min(1.0, value + Z_CONFIDENCE * se)))
            for value, se in ((1 - high[0], high[1]), low)
        )
        pos, neg = ZERO_RATE if noise_type == "partial" else pos, ZERO_RATE if noise_type == "missing" else neg
        result.append(LabelRates(pos, neg, "upper bound", method))
    return result


def forward(evidence: Evidence, scores: FloatArray | None = None) -> list[LabelRates]:
    r"""Estimate rates and a linear model together by maximizing the in-sample likelihood of the noisy labels.

    .. math:: -\frac1n \sum_i \tilde y_i \log g(x_i) + (1 - \tilde y_i) \log (1 - g(x_i)) + \lambda \log r,
        \qquad g = \rho_{neg} + r\, \sigma(w x + b)

    With many features the model fits the noise itself, and the rates are too small. ``method="profile"`` uses the
    likelihood of held-out rows instead.
    """
    rho, logits = fit_forward(reduce_features(evidence.X, evidence.seed), evidence.Y, evidence.noise_type)
    result = []
    for j, noise_type in enumerate(evidence.noise_type):
        seen = ~np.isnan(evidence.Y[:, j])
        if len(np.unique(evidence.Y[seen, j])) < 2:
            result.append(unidentified(noise_type, "point", "forward", "All observed values are equal."))
            continue
        errors = forward_errors(rho[:, j], logits[seen, j], noise_type)
        result.append(_point_rates(rho[:, j], errors, noise_type, "forward"))
    return result


def _point_rates(values: FloatArray, errors: FloatArray, noise_type: NoiseType, method: str) -> LabelRates:
    pos, neg = (
        ZERO_RATE
        if noise_type == excluded
        else Rate(float(v), float(e), max(0.0, v - Z_CONFIDENCE * e), min(1.0, v + Z_CONFIDENCE * e))
        for v, e, excluded in zip(values, errors, ("partial", "missing"))
    )
    return LabelRates(pos, neg, "point", method)


def fit_forward(X: FloatArray, Y: FloatArray, noise_type: Sequence[NoiseType]) -> tuple[FloatArray, FloatArray]:
    """Return rates (2, q) and log-odds of the true labels (n, q), fitted with Adam for all labels at once."""
    features, labels = torch.from_numpy(X).float(), torch.from_numpy(Y).float()
    seen, labels = ~labels.isnan(), labels.nan_to_num()
    counts = seen.sum(0).clamp(min=1)
    W = torch.zeros(X.shape[1], Y.shape[1], requires_grad=True)
    b = torch.logit((labels.sum(0) / counts).clamp(0.01, 0.99)).requires_grad_()
    free = torch.zeros(2, Y.shape[1], requires_grad=True)
    possible = torch.tensor([[each != excluded for each in noise_type] for excluded in ("partial", "missing")])
    groups: list[dict[str, Any]] = [{"params": [W], "weight_decay": WEIGHT_DECAY}, {"params": [b, free]}]
    optimizer = torch.optim.Adam(groups, LEARNING_RATE)

    def rates() -> torch.Tensor:
        # A softmax over both rates and the signal keeps the sum of the rates below 1.
        logits = torch.where(possible, free - 2, -torch.inf)
        return torch.softmax(torch.cat([logits, torch.zeros_like(free[:1])]), 0)[:2]

    for step in range(N_STEPS):
        # In the first quarter the model is fitted to the noisy labels, nearly without noise correction.
        rho = rates() if step >= N_STEPS // 4 else torch.full_like(free, 1e-3) * possible
        signal = 1 - rho.sum(0)
        g = (rho[1] + signal * torch.sigmoid(features @ W + b)).clamp(1e-6, 1 - 1e-6)
        fit = (seen * torch.where(labels > 0, g, 1 - g).log()).sum(0) / counts
        loss = (VOLUME_WEIGHT * signal.log() - fit).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return rates().double().numpy(), (features @ W + b).double().numpy()


def forward_errors(rho: FloatArray, logits: FloatArray, noise_type: NoiseType) -> FloatArray:
    """Return standard errors of (rho_pos, rho_neg) from the Fisher information of rates, slope and offset."""
    s, signal = scipy.special.expit(logits), 1 - rho.sum()
    g = np.clip(rho[1] + signal * s, 1e-6, 1 - 1e-6)
    bend = signal * s * (1 - s)
    gradients = {"pos": -s, "neg": 1 - s, "slope": bend * logits, "offset": bend}
    names = [name for name in gradients if (name, noise_type) not in (("pos", "partial"), ("neg", "missing"))]
    J = np.stack([gradients[name] for name in names])
    covariance = np.linalg.pinv((J / (g * (1 - g))) @ J.T + 1e-6 * np.eye(len(names)))
    found = dict(zip(names, np.sqrt(np.maximum(covariance.diagonal(), 0))))
    return np.array([min(found.get(name, 0.0), UNKNOWN_SE) for name in ("pos", "neg")])


def correlations(evidence: Evidence, scores: FloatArray) -> list[LabelRates]:
    """Estimate the rates of each label with the other labels as instruments, and return the medoid of the estimates.

    Rows whose label is probably correct are selected by their held-out loss. On them the share of the other label in
    both classes is measured and compared with its share in all rows. Labels without an instrument use the best bin.
    """
    result = []
    for j, noise_type in enumerate(evidence.noise_type):
        selected = select_rows(scores[:, j], evidence.Y[:, j], evidence.seed)
        label = instrument_label(evidence.Y, j, selected, noise_type)
        fallback = best_bin_label(*evidence.observed(scores, j), noise_type, evidence.generator(j))
        result.append(label or fallback)
    return result


def select_rows(scores: FloatArray, noisy: FloatArray, seed: int) -> NDArray[np.bool_]:
    """Return the rows that belong, in either class, to the lower of two Gaussian components of the held-out loss."""
    kept = np.zeros(noisy.size, dtype=bool)
    for value in (0, 1):
        rows = np.flatnonzero(noisy == value)
        if rows.size < MIN_SELECTED:
            continue
        loss = -np.log(np.clip(scores[rows] if value else 1 - scores[rows], 1e-6, 1))
        spread = np.ptp(loss)
        scaled = ((loss - loss.min()) / (spread if spread > 0 else 1.0))[:, None]
        mixture = GaussianMixture(2, random_state=seed, reg_covar=1e-4).fit(scaled)
        kept[rows] = mixture.predict_proba(scaled)[:, mixture.means_.argmin()] > 0.5
    return kept


def instrument_label(Y: FloatArray, j: int, selected: NDArray[np.bool_], noise_type: NoiseType) -> LabelRates | None:
    """Return the medoid of the estimates of label j over all instruments; None if there is none."""
    ones, zeros = selected & (Y[:, j] == 1), selected & (Y[:, j] == 0)
    if min(ones.sum(), zeros.sum()) < MIN_SELECTED:
        return None
    found = [instrument_rates(Y[:, j], Y[:, i], ones, zeros) for i in range(Y.shape[1]) if i != j]
    kept = np.array([pair for pair in found if pair is not None])
    if not len(kept):
        return None
    medoid = kept[np.abs(kept[:, None] - kept).sum((1, 2)).argmin()]
    spread = np.median(np.abs(kept - medoid), 0) * 1.4826 if len(kept) > 2 else np.full(2, UNKNOWN_SE)
    return _point_rates(medoid, spread, noise_type, "correlations")


def instrument_rates(
    noisy: FloatArray, other: FloatArray, ones: NDArray[np.bool_], zeros: NDArray[np.bool_]
) -> tuple[float, float] | None:
    r"""Return (rho_pos, rho_neg) of a label by one other label; None if it is not informative.

    With :math:`m_1, m_0` the share of the other label in the selected rows of either class, :math:`e_1` in all rows,

    .. math:: \pi = \frac{e_1 - m_0}{m_1 - m_0}, \qquad
        (u, v) = (E[\tilde y_j (1 - \tilde y_i)], E[\tilde y_j \tilde y_i])
        \begin{pmatrix} 1 - m_0 & m_0 \\ 1 - m_1 & m_1 \end{pmatrix}^{-1}, \qquad
        \rho_{neg} = \frac{u}{1 - \pi}, \quad \rho_{pos} = 1 - \frac{v}{\pi}
    """
    seen = ~np.isnan(noisy) & ~np.isnan(other)
    if not (ones & seen).any() or not (zeros & seen).any():
        return None
    m1, m0, e1 = other[ones & seen].mean(), other[zeros & seen].mean(), other[seen].mean()
    if abs(m1 - m0) < MIN_CONTRAST:
        return None
    prior = (e1 - m0) / (m1 - m0)
    if not 0 < prior < 1:
        return None
    joint = np.array([(noisy * (1 - other))[seen].mean(), (noisy * other)[seen].mean()])
    u, v = joint @ np.linalg.inv(np.array([[1 - m0, m0], [1 - m1, m1]]))
    rho_neg, rho_pos = u / (1 - prior), 1 - v / prior
    if min(rho_pos, rho_neg) < -MAX_NEGATIVE_RATE or rho_pos + rho_neg >= 1:
        return None
    return max(float(rho_pos), 0.0), max(float(rho_neg), 0.0)
