"""Rates learned with the model (section 6): the likelihood of the noisy labels, in sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special
import torch

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import NEVER, UNINFORMED, UNINFORMED_SE, Z_LEVEL, LabelRates, Rate, Side
from ccmn.estimation.out_of_fold import narrow

STEPS = 400
LEARNING_RATE = 0.03
WEIGHT_DECAY = 1e-3
VOLUME = 1e-4
"""Weight of log r, which prefers the most noise that explains the labels equally well."""


def forward(evidence: Evidence) -> list[LabelRates]:
    r"""Rates and a linear model that maximise the likelihood of the noisy labels together.

    .. math:: -\frac1n \sum_i \tilde y_i \log g(x_i) + (1 - \tilde y_i) \log (1 - g(x_i)) + \lambda \log r,
        \qquad g = \rho_{neg} + r\, \sigma(w x + b)

    Identified by the shape of the model alone, and in sample: with many features a linear model fits the noise
    itself, and reports too little of it. The profile likelihood is its held-out form.
    """
    if evidence.X is None:
        raise ValueError("method='forward' fits a model of its own: give the features X")
    rho, logits = fit_forward(narrow(evidence.X, evidence.seed), evidence.Y, evidence.sides)
    return [_label(rho[:, j], logits[:, j], evidence.Y[:, j], side) for j, side in enumerate(evidence.sides)]


def fit_forward(X: FloatArray, Y: FloatArray, sides: Sequence[Side]) -> tuple[FloatArray, FloatArray]:
    """Rates (2, q) and log-odds of the true labels (n, q), by Adam on all labels at once."""
    features, labels = torch.from_numpy(X).float(), torch.from_numpy(Y).float()
    seen, labels = ~labels.isnan(), labels.nan_to_num()
    many = seen.sum(0).clamp(min=1)
    W = torch.zeros(X.shape[1], Y.shape[1], requires_grad=True)
    b = torch.logit((labels.sum(0) / many).clamp(0.01, 0.99)).requires_grad_()
    free = torch.zeros(2, Y.shape[1], requires_grad=True)
    possible = torch.tensor([[side != "partial" for side in sides], [side != "missing" for side in sides]])
    groups: list[dict[str, Any]] = [{"params": [W], "weight_decay": WEIGHT_DECAY}, {"params": [b, free]}]
    optimiser = torch.optim.Adam(groups, LEARNING_RATE)
    for step in range(STEPS):
        # The model first learns the noisy labels as they are.
        rho = _rates(free, possible) if step >= STEPS // 4 else torch.full_like(free, 1e-3) * possible
        signal = 1 - rho.sum(0)
        g = (rho[1] + signal * torch.sigmoid(features @ W + b)).clamp(1e-6, 1 - 1e-6)
        fit = (seen * torch.where(labels > 0, g, 1 - g).log()).sum(0) / many
        loss = (VOLUME * signal.log() - fit).sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        return _rates(free, possible).double().numpy(), (features @ W + b).double().numpy()


def _rates(free: torch.Tensor, possible: torch.Tensor) -> torch.Tensor:
    """(2, q) with a sum below 1: a softmax over the two rates and the signal; a side declared not to be is 0."""
    shown = torch.where(possible, free - 2, -torch.inf)
    return torch.softmax(torch.cat([shown, torch.zeros_like(free[:1])]), 0)[:2]


def _label(rho: FloatArray, logits: FloatArray, noisy: FloatArray, side: Side) -> LabelRates:
    seen = ~np.isnan(noisy)
    if len(np.unique(noisy[seen])) < 2:
        notes = (("unidentified", "every observed label is the same"),)
        pos, neg = (NEVER if side == never else UNINFORMED for never in ("partial", "missing"))
        return LabelRates(pos, neg, "point", "forward", notes)
    errors = standard_errors(rho, logits[seen], side)
    pos, neg = (
        NEVER if side == never else Rate(float(v), float(e), max(0.0, v - Z_LEVEL * e), min(1.0, v + Z_LEVEL * e))
        for v, e, never in zip(rho, errors, ("partial", "missing"))
    )
    return LabelRates(pos, neg, "point", "forward")


def standard_errors(rho: FloatArray, logits: FloatArray, side: Side) -> FloatArray:
    """Errors of (rho_pos, rho_neg) from the information about rates, slope and offset, the direction taken as known."""
    s, signal = scipy.special.expit(logits), 1 - rho.sum()
    g = np.clip(rho[1] + signal * s, 1e-6, 1 - 1e-6)
    bend = signal * s * (1 - s)
    slopes = {"pos": -s, "neg": 1 - s, "slope": bend * logits, "offset": bend}
    names = [name for name in slopes if (name, side) not in (("pos", "partial"), ("neg", "missing"))]
    J = np.stack([slopes[name] for name in names])
    covariance = np.linalg.pinv((J / (g * (1 - g))) @ J.T + 1e-6 * np.eye(len(names)))
    found = dict(zip(names, np.sqrt(np.maximum(covariance.diagonal(), 0))))
    # A rate lies in [0, 1] whatever the information says.
    return np.array([min(found.get(name, 0.0), UNINFORMED_SE) for name in ("pos", "neg")])
