"""Synthetic tasks: labels with a known posterior, and images composed of handwritten digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_count, check_rates
from ccmn.data.dataset import MultiLabelData

if TYPE_CHECKING:
    from ccmn.noise import NoiseModel

DIGIT_SCENE_SHAPE = (16, 24)
"""Height and width in pixels of the images of :func:`load_digit_scenes`."""
_SLOTS = [(row, column) for row in (0, 8) for column in (0, 8, 16)]


@dataclass(frozen=True, eq=False)
class SyntheticTask:
    """Data of :func:`make_noisy_multilabel`, with the quantities that are unknown for real data."""

    X: NDArray[np.float32]
    """Features (n, d)."""
    Y: NDArray[np.uint8]
    """True labels (n, q)."""
    Y_noisy: NDArray[np.uint8]
    """Noisy labels (n, q); a copy of the true labels if there is no noise."""
    posterior: FloatArray
    """P(y_j = 1 | x), of shape (n, q)."""
    weights: FloatArray
    """Slopes of the posterior (q, d)."""
    bias: FloatArray
    """Intercepts of the posterior (q,)."""
    noise: NoiseModel | None
    """Noise model."""


def make_noisy_multilabel(
    n: int,
    d: int,
    q: int,
    *,
    prevalence: ArrayLike = 0.3,
    strength: float = 4.0,
    correlation: float = 0.5,
    noise: NoiseModel | None = None,
    random_state: RandomState = None,
) -> SyntheticTask:
    r"""Generate a multi-label task with a known posterior.

    .. math:: x \sim N(0, I_d), \qquad P(y_j = 1 \mid x) = \frac{1}{1 + \exp(-w_j^\top x - b_j)},
        \qquad w_j = s\,\frac{\sqrt{c}\, u_0 + \sqrt{1 - c}\, u_j}{\lVert \cdot \rVert}

    The :math:`u` are independent random unit vectors, s is the strength and c the correlation. Labels are independent
    given x, so that the posterior is exact. The shared direction :math:`u_0` makes them marginally dependent, as in
    real data. The intercept :math:`b_j = \log\frac{\pi_j}{1 - \pi_j}\sqrt{1 + \pi s^2 / 8}` gives a fraction of
    positives close to the prevalence :math:`\pi_j` (approximation of the logistic-normal integral [1]_).

    Parameters
    ----------
    n, d, q : int
        Number of rows, features and labels.
    prevalence : float or array-like of shape (q,), default=0.3
        Approximate fraction of positives of every label, strictly between 0 and 1.
    strength : float, default=4.0
        Norm of the slopes. With 0, labels do not depend on the features; with large values they are deterministic.
    correlation : float, default=0.5
        Weight in [0, 1] of the direction that all labels share.
    noise : noise model, default=None
        Model that corrupts the true labels. For the same ``random_state`` the true labels do not depend on it.
    random_state : int, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    SyntheticTask
        Features, true and noisy labels, and the posterior.

    References
    ----------
    .. [1] D. J. C. MacKay, "The Evidence Framework Applied to Classification Networks", Neural Computation 4(5),
       1992.

    Examples
    --------
    >>> task = make_noisy_multilabel(1000, 5, 3, random_state=0)
    >>> task.X.shape, task.Y.shape, task.posterior.shape
    ((1000, 5), (1000, 3), (1000, 3))
    """
    n, d, q = check_count(n, "n"), check_count(d, "d"), check_count(q, "q")
    share = check_rates(prevalence, "prevalence", q)
    if not ((share > 0) & (share < 1)).all():
        raise ValueError(f"prevalence must be strictly between 0 and 1; got {share.tolist()}")
    if not 0 <= strength < np.inf:
        raise ValueError(f"strength must be a finite number of at least 0; got {strength!r}")
    if not 0 <= correlation <= 1:
        raise ValueError(f"correlation must be between 0 and 1; got {correlation!r}")
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


def load_digit_scenes(n: int = 6000, *, max_digits: int = 4, random_state: RandomState = 0) -> MultiLabelData:
    """Compose images of 16 x 24 pixels that show several handwritten digits; the labels are the digits shown.

    Every image is a grid of 2 x 3 cells. One to ``max_digits`` of the 1797 images of 8 x 8 pixels that are included
    in scikit-learn are placed in different cells at random; a digit may occur twice. The first and the second half of
    the rows use different handwritten images, so that a model trained on one half can be tested on the other.

    Parameters
    ----------
    n : int, default=6000
        Number of images.
    max_digits : int, default=4
        Largest number of digits in an image.
    random_state : int, Generator or None, default=0
        Source of randomness.

    Returns
    -------
    MultiLabelData
        ``X`` of shape (n, 384) with values in [0, 1] and ``Y`` of shape (n, 10).

    Examples
    --------
    >>> data = load_digit_scenes(100)
    >>> data.X.shape, data.Y.shape, data.label_names[:3]
    ((100, 384), (100, 10), ('0', '1', '2'))
    """
    from sklearn.datasets import load_digits

    n, max_digits = check_count(n, "n"), check_count(max_digits, "max_digits")
    rng = as_generator(random_state)
    images, classes = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    halves = np.array_split(order, 2)
    sizes = (n - n // 2, n // 2)
    parts = [_compose(images[half], classes[half], size, max_digits, rng) for half, size in zip(halves, sizes)]
    X, Y = (np.concatenate(blocks) for blocks in zip(*parts))
    return MultiLabelData(X=X, Y=Y, label_names=tuple(str(digit) for digit in range(10)), name="digit scenes")


def _compose(
    images: NDArray[Any], classes: NDArray[Any], n: int, max_digits: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return n images composed of these digits, and their labels."""
    X = np.zeros((n, *DIGIT_SCENE_SHAPE), dtype=np.float32)
    Y = np.zeros((n, 10), dtype=np.uint8)
    for i, count in enumerate(rng.integers(1, min(max_digits, len(_SLOTS)) + 1, size=n)):
        chosen = rng.integers(len(images), size=count)
        for slot, image in zip(rng.permutation(len(_SLOTS)), chosen):
            row, column = _SLOTS[slot]
            X[i, row : row + 8, column : column + 8] = images[image].reshape(8, 8) / 16
        Y[i, classes[chosen]] = 1
    return X.reshape(n, -1), Y


def _unit(rows: FloatArray) -> FloatArray:
    lengths: FloatArray = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths
