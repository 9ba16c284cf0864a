"""Synthetic data whose posterior is known, so that what a method achieves can be held against what is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_count, check_rates


class Corrupting(Protocol):
    """Anything that corrupts labels: the noise models, or one's own."""

    def corrupt(self, labels: Any, random_state: RandomState = None) -> Any:
        """Noisy labels from true ones."""


@dataclass(frozen=True, eq=False)
class SyntheticTask:
    """Data of :func:`make_noisy_multilabel`, with everything that is usually hidden."""

    X: NDArray[np.float32]
    """Features (n, d)."""
    Y: NDArray[np.uint8]
    """True labels (n, q)."""
    Y_noisy: NDArray[np.uint8]
    """What a learner sees; the true labels where there is no noise."""
    posterior: FloatArray
    """P(y_j = 1 | x), (n, q)."""
    weights: FloatArray
    """(q, d): the posterior's slopes."""
    bias: FloatArray
    """(q,): the posterior's intercepts."""
    noise: Corrupting | None
    """The noise model."""

    @property
    def bayes_hamming(self) -> float:
        """The smallest Hamming risk any predictor can have on these rows: the mean of min(p, 1 - p).

        It is the expectation over labels drawn for these ``X``, reached by predicting ``posterior >= 0.5``.
        """
        return float(np.minimum(self.posterior, 1 - self.posterior).mean())


def make_noisy_multilabel(
    n: int,
    d: int,
    q: int,
    *,
    prevalence: ArrayLike = 0.3,
    strength: float = 4.0,
    correlation: float = 0.5,
    noise: Corrupting | None = None,
    random_state: RandomState = None,
) -> SyntheticTask:
    r"""A multi-label task with a known posterior.

    .. math:: x \sim N(0, I_d), \qquad P(y_j = 1 \mid x) = \frac{1}{1 + \exp(-w_j^\top x - b_j)},
        \qquad w_j = s\,\frac{\sqrt{c}\, u_0 + \sqrt{1 - c}\, u_j}{\lVert \cdot \rVert}

    with independent random unit vectors :math:`u`, s the strength and c the correlation. Labels are independent given
    x, which keeps the posterior exact; all of them lean on the shared direction :math:`u_0`, which makes them
    dependent without x, as real labels are. :math:`b_j = \log\frac{\pi_j}{1 - \pi_j}\sqrt{1 + \pi s^2 / 8}` puts the
    share of positives near :math:`\pi_j`, the prevalence (MacKay's approximation of the logistic-normal integral).

    Parameters
    ----------
    n, d, q : int
        Rows, features, labels.
    prevalence : float or array of shape (q,)
        The share of positives aimed at, strictly between 0 and 1.
    strength : float
        Length of the slopes: 0 makes labels pure chance, large values make them certain.
    correlation : float in [0, 1]
        How far the labels share one direction.
    noise : noise model, optional
        What turns the true labels into the noisy ones. The true ones do not depend on it, given the seed.
    random_state : int, Generator or None

    Examples
    --------
    >>> task = make_noisy_multilabel(1000, 5, 3, random_state=0)
    >>> task.X.shape, task.Y.shape, task.posterior.shape
    ((1000, 5), (1000, 3), (1000, 3))
    """
    n, d, q = check_count(n, "n"), check_count(d, "d"), check_count(q, "q")
    share = check_rates(prevalence, "prevalence", q)
    _check_shape(share, strength, correlation)
    rng = as_generator(random_state)
    weights = strength * _unit(
        np.sqrt(correlation) * _unit(rng.standard_normal((1, d)))
        + np.sqrt(1 - correlation) * _unit(rng.standard_normal((q, d)))
    )
    bias = np.log(share / (1 - share)) * np.sqrt(1 + np.pi * strength**2 / 8)
    X = rng.standard_normal((n, d)).astype(np.float32)
    posterior = 1 / (1 + np.exp(-(X.astype(np.float64) @ weights.T + bias)))
    Y = (rng.random((n, q)) < posterior).astype(np.uint8)
    Y_noisy = Y.copy() if noise is None else noise.corrupt(Y, random_state=rng)
    return SyntheticTask(X, Y, Y_noisy, posterior, weights, bias, noise)


def _unit(rows: FloatArray) -> FloatArray:
    lengths: FloatArray = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths


def _check_shape(share: FloatArray, strength: float, correlation: float) -> None:
    if not ((share > 0) & (share < 1)).all():
        raise ValueError(f"prevalence must lie strictly between 0 and 1; got {share.tolist()}")
    if not 0 <= strength < np.inf:
        raise ValueError(f"strength must be a number of at least 0; got {strength!r}")
    if not 0 <= correlation <= 1:
        raise ValueError(f"correlation must lie between 0 and 1; got {correlation!r}")
