"""Is a difference more than chance? The tests that comparisons over repeats and data sets are reported with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray


def paired_t_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p-value of the paired t-test; 1 where nothing differs, 0 where all differ by the same amount.

    >>> round(paired_t_test([0.1, 0.2, 0.3], [0.2, 0.31, 0.39]), 3)
    0.003
    """
    difference = np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)
    if len(difference) < 2:
        return 1.0
    if np.ptp(difference) <= 1e-12 * max(1.0, np.abs(difference).max()):
        return float(np.abs(difference[0]) <= 1e-12)
    return float(scipy.stats.ttest_1samp(difference, 0.0).pvalue)


@dataclass(frozen=True)
class Friedman:
    """The Friedman test over data sets, and how far average ranks must be apart to differ from the control's.

    ``statistic`` is Iman and Davenport's F, less conservative than Friedman's chi-square, with its p-value.
    """

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    """Average rank of each method, 1 is best."""
    n: int
    """Data sets (or data sets x metrics) ranked over."""
    statistic: float
    p_value: float
    critical_difference: float
    """Bonferroni-Dunn's, at the level of ``friedman``: ranks that differ less cannot be told apart."""


def friedman(
    values: ArrayLike, methods: Sequence[str], *, greater_is_better: ArrayLike = False, level: float = 0.05
) -> Friedman:
    r"""Rank methods on every row and test whether their ranks differ.

    .. math:: \chi^2 = \frac{12 N}{k (k + 1)} \Big( \sum_j R_j^2 - \frac{k (k + 1)^2}{4} \Big), \quad
              F = \frac{(N - 1) \chi^2}{N (k - 1) - \chi^2}, \quad
              \mathrm{CD} = z_{1 - \alpha / (2 (k - 1))} \sqrt{\frac{k (k + 1)}{6 N}}

    Parameters
    ----------
    values : array (N, k)
        A row per data set, a column per method.
    greater_is_better : bool, or one per row
    """
    table = np.atleast_2d(np.asarray(values, dtype=float))
    n, k = table.shape
    if n < 2 or k < 2:
        raise ValueError(f"ranking needs two rows and two methods at least; got {n} and {k}")
    signs = np.where(np.broadcast_to(np.asarray(greater_is_better), n), -1.0, 1.0)
    ranks = average_ranks(table * signs[:, None])
    chi2 = 12 * n / (k * (k + 1)) * (np.sum(ranks**2) - k * (k + 1) ** 2 / 4)
    rest = n * (k - 1) - chi2
    # All rows rank alike: no chance at all, and F has no bound.
    statistic = float((n - 1) * chi2 / rest) if rest > 1e-12 else float("inf")
    p_value = float(scipy.stats.f.sf(statistic, k - 1, (k - 1) * (n - 1)))
    z = float(scipy.stats.norm.ppf(1 - level / (2 * (k - 1))))
    difference = z * float(np.sqrt(k * (k + 1) / (6 * n)))
    return Friedman(tuple(methods), tuple(float(r) for r in ranks), n, statistic, p_value, difference)


def average_ranks(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over rows of the ranks in each row, 1 the lowest; ties share their average rank."""
    return np.asarray(scipy.stats.rankdata(table, axis=1).mean(0))
