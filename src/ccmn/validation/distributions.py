"""Distributions of label vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ccmn.validation.arrays import FloatArray


def check_distribution(p: ArrayLike) -> FloatArray:
    """Probabilities of all 2^q label vectors."""
    try:
        array = np.array(p, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"p must be a list of numbers, one probability per label vector; got {p!r}") from None
    if array.ndim != 1 or array.size < 2 or array.size & (array.size - 1):
        raise ValueError(
            f"p must hold one probability for each of the 2^q label vectors (2, 4, 8, ... of them); "
            f"got shape {array.shape}"
        )
    if not (array >= 0).all() or not np.isclose(array.sum(), 1, atol=1e-9):
        raise ValueError(f"p must be probabilities that sum to 1; got sum {array.sum():g}, lowest {array.min():g}")
    return array


def check_no_tie(margin: float, target: str) -> None:
    """A distribution of the labels under which the Bayes decision is one and no other."""
    if margin < 1e-9:
        tie = "a label is exactly as likely as not" if target == "hamming" else "two labels are equally likely"
        raise ValueError(f"p leaves its best decision open: {tie}. Pass over p with a bayes_margin near 0.")
