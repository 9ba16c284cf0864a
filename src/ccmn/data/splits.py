"""Seeded train / validation / test splits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ccmn._random import RandomState, as_generator
from ccmn._validation import check_count, check_fractions


def split(
    n: int, fractions: Sequence[float] = (0.5, 0.2, 0.3), random_state: RandomState = None
) -> tuple[NDArray[np.intp], ...]:
    """Split the rows 0 to n - 1 at random into parts that are disjoint and together are everything.

    Parameters
    ----------
    n : int
        Number of rows.
    fractions : sequence of float
        The share of each part; they add up to 1. The paper's are 50 % train, 20 % validation, 30 % test. The sizes
        depend on n and the fractions alone: the boundaries are the rounded cumulative shares.
    random_state : int, Generator or None

    Returns
    -------
    One array of row numbers per part, in random order: files are often sorted by label, and whoever takes rows in
    the order given (folds, batches) should not inherit that.

    Examples
    --------
    >>> train, validation, test = split(10, random_state=0)
    >>> len(train), len(validation), len(test)
    (5, 2, 3)
    """
    n = check_count(n, "n")
    shares = check_fractions(fractions)
    bounds = np.rint(np.cumsum(shares)[:-1] * n).astype(np.intp)
    sizes = np.diff(bounds, prepend=0, append=n)
    if not sizes.all():
        raise ValueError(f"n={n} rows are too few for the fractions {tuple(shares.tolist())}: a part would be empty")
    return tuple(np.split(as_generator(random_state).permutation(n), bounds))
