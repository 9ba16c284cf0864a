"""How far predictions and debiased labels move when the rates are a little off (section 9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray, check_label_width, check_probabilities
from ccmn.noise import ClassConditionalNoise

CHANGES = ("rho_pos up", "rho_pos down", "rho_neg up", "rho_neg down")
"""The four ways in which one rate is off, the rows of every array."""


@dataclass(frozen=True)
class Sensitivity:
    """What a change of one rate by ``delta`` does, (4, q) each: rows as in ``CHANGES``, columns labels.

    Attributes
    ----------
    cut : where the decision at 1/2 falls on the posterior by the rates given; 1/2 where nothing moves
    target_given_1, target_given_0 : what a noisy 1, a noisy 0 is debiased to, less what it was
    moved : mean change of the posterior
    changed : share of decisions that change
    delta : float
    """

    cut: FloatArray
    target_given_1: FloatArray
    target_given_0: FloatArray
    moved: FloatArray
    changed: FloatArray
    delta: float


def sensitivity(noise: ClassConditionalNoise, proba: object, delta: float = 0.05) -> Sensitivity:
    r"""How far predictions move when one rate is off by delta.

    A model of the noisy posterior :math:`\tilde\eta = \rho_{neg} + r \eta` is right whatever the rates; they turn it
    into :math:`\eta' = (\tilde\eta - \rho_{neg}') / r'`. So the cut at 1/2 moves by
    :math:`(\Delta\rho_{neg} - \Delta\rho_{pos}) / (2 r)` on the scale of :math:`\eta`: equal errors of both rates
    leave decisions as they are, but not the order of labels.

    Parameters
    ----------
    noise : ClassConditionalNoise
        The rates that were used.
    proba : (n, q)
        P(true label = 1 | x) by them: ``clf.predict_proba(X)``.
    delta : float
        By how much a rate is off. Rates are kept at 0 and above, and their sum below 1.

    Examples
    --------
    >>> result = sensitivity(ClassConditionalNoise([0.2], [0.3]), [[0.1], [0.52], [0.9]], delta=0.05)
    >>> result.cut[2].round(3), result.changed[2].round(3)
    (array([0.55]), array([0.333]))
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1; got {delta!r}")
    eta = check_probabilities(to_dense_array(proba), "proba")
    check_label_width(eta.shape, noise.n_labels, "proba")
    signal = 1 - noise.rho_pos - noise.rho_neg
    noisy = noise.rho_neg + signal * eta
    rows = [_change(noise, eta, noisy, *rates) for rates in changed_rates(noise, delta)]
    cut, ones, zeros, moved, changed = (np.stack(column) for column in zip(*rows))
    return Sensitivity(cut, ones, zeros, moved, changed, delta)


def changed_rates(noise: ClassConditionalNoise, delta: float) -> list[tuple[FloatArray, FloatArray]]:
    """(rho_pos, rho_neg) with one of them off by delta, as in ``CHANGES``; a signal of 0.01 is always left."""
    pos, neg = noise.rho_pos, noise.rho_neg
    return [
        (np.minimum(pos + delta, np.maximum(pos, 0.99 - neg)), neg),
        (np.maximum(pos - delta, 0), neg),
        (pos, np.minimum(neg + delta, np.maximum(neg, 0.99 - pos))),
        (pos, np.maximum(neg - delta, 0)),
    ]


def _change(
    noise: ClassConditionalNoise, eta: FloatArray, noisy: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray
) -> tuple[FloatArray, ...]:
    """cut, target_given_1, target_given_0, moved, changed of one pair of rates, (q,) each."""
    signal, other = 1 - noise.rho_pos - noise.rho_neg, 1 - rho_pos - rho_neg
    cut = ((1 - rho_pos + rho_neg) / 2 - noise.rho_neg) / signal
    ones = (1 - rho_neg) / other - (1 - noise.rho_neg) / signal
    zeros = -rho_neg / other + noise.rho_neg / signal
    new = (noisy - rho_neg) / other
    return cut, ones, zeros, np.abs(new - eta).mean(0), ((new >= 0.5) != (eta >= 0.5)).mean(0)
