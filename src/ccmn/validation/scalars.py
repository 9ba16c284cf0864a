"""Single values: counts, numbers within bounds, words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ccmn.validation.arrays import FloatArray


def check_count(value: object, argument: str) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{argument} must be a whole number of at least 1; got {value!r}")
    return int(value)


def check_real(value: object, argument: str, low: float, high: float, remedy: str = "") -> float:
    """A number strictly between two others."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever cannot be a number is refused below
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must be a number; got {value!r}") from None
    if not low < number < high:
        between = f"between {low:g} and {high:g}" if high < float("inf") else f"finite and above {low:g}"
        raise ValueError(f"{argument} must be {between}; got {number:g}.{remedy and ' ' + remedy}")
    return number


def check_share(value: object, argument: str, least: float = 0.0, why: str = "") -> float:
    """A number from ``least`` to 1, the ends included."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever cannot be a number is refused below
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must be a number from {least:g} to 1; got {value!r}") from None
    if not least <= number <= 1:
        raise ValueError(f"{argument} must be from {least:g} to 1; got {number:g}{why and f': {why}'}")
    return number


def check_penalty(value: object, argument: str) -> float:
    """The weight of a penalty: a number of at least 0, infinity included."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not value >= 0:
        raise ValueError(f"{argument} must be a number of at least 0; got {value!r}")
    return float(value)


def check_fractions(fractions: ArrayLike) -> FloatArray:
    """Shares of a whole: positive, adding up to 1."""
    try:
        shares = np.asarray(fractions, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"fractions must be numbers that add up to 1; got {fractions!r}") from None
    if shares.ndim != 1 or not shares.size or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"fractions must be positive and add up to 1, as (0.5, 0.2, 0.3) do; got {fractions!r}")
    return shares


def check_choice(value: str, argument: str, choices: Sequence[str]) -> str:
    """One of a few words."""
    if value not in choices:
        raise ValueError(f"{argument} must be {' or '.join(map(repr, choices))}; got {value!r}")
    return value
