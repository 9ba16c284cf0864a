"""Summaries of stored results: means, significance, and comparison with the printed values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike

from ccmn.paper.result_store import Result
from ccmn.paper.tables import (
    AS_PRINTED,
    GREATER_IS_BETTER,
    PML_METHODS,
    SELECTIONS,
    TABLES,
    PaperTable,
    PrintedValue,
    is_proposed,
    printed_values,
)

SIGNIFICANCE_LEVEL = 0.05
"""Level of all tests, as in the paper."""
PRINTED_TOLERANCE = 0.02
"""A mean agrees with the printed one if it differs by at most this much. It is at the printed level if it is at most
this much worse."""


@dataclass(frozen=True)
class TableEntry:
    """Entry of a table: the values of a method on a dataset with n rows in all repeats.

    It is ``best`` if its mean is the best of the dataset. ``mark`` compares the best proposed method with this one:
    "better" or "worse" if significant, else "".
    """

    method: str
    dataset: str
    metric: str
    values: tuple[float, ...]
    n: int
    best: bool
    mark: str
    printed: PrintedValue | None

    @property
    def mean(self) -> float:
        """Mean over repeats."""
        return float(np.mean(self.values))

    @property
    def std(self) -> float:
        """Standard deviation over repeats; 0 for a single repeat."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    @property
    def gain(self) -> float | None:
        """Improvement over the printed mean; negative if worse."""
        return None if self.printed is None else _sign(self.metric) * (self.mean - self.printed.mean)

    @property
    def at_level(self) -> bool | None:
        """Whether the mean is at the printed level (one-sided); None without a printed value."""
        return None if self.gain is None else self.gain >= -PRINTED_TOLERANCE - 1e-12

    @property
    def agrees(self) -> bool | None:
        """Whether the mean agrees with the printed one (two-sided); None without a printed value."""
        return None if self.gain is None else abs(self.gain) <= PRINTED_TOLERANCE + 1e-12


@dataclass(frozen=True)
class Summary:
    """Summary of a table under one protocol and one selection, with a Friedman test if there are enough values."""

    table: PaperTable
    protocol: str
    selection: str
    entries: tuple[TableEntry, ...]
    ranking: Friedman | None
    seconds: float
    machines: tuple[str, ...]
    failures: tuple[str, ...]

    def entry(self, method: str, dataset: str, metric: str) -> TableEntry | None:
        """Return the entry of a method, dataset and metric; None if it was not run."""
        wanted = (method, dataset, metric)
        return next((e for e in self.entries if (e.method, e.dataset, e.metric) == wanted), None)

    @property
    def methods(self) -> list[str]:
        """Methods in the order of the table; added ones last."""
        return _ordered({e.method for e in self.entries}, self.table.methods)

    @property
    def datasets(self) -> list[str]:
        """Datasets in the order of the table; added ones last."""
        return _ordered({e.dataset for e in self.entries}, self.table.datasets)

    @property
    def metrics(self) -> list[str]:
        """Metrics in the order of the table."""
        return _ordered({e.metric for e in self.entries}, self.table.metrics)

    def only(self, *datasets: str) -> Summary:
        """Return the summary of some of the datasets."""
        return replace(self, entries=tuple(e for e in self.entries if e.dataset in datasets))

    def near_printed(self) -> tuple[int, int, int]:
        """Count the entries of the proposed methods that agree with the printed value, are at its level, and all.

        Enron and slashdot are compared as the paper most likely read them, if both forms were run.
        """
        other_tasks = {name.removesuffix("_as_printed") for name in self.datasets if name in AS_PRINTED}
        compared = [e for e in self.entries if e.printed and is_proposed(e.method) and e.dataset not in other_tasks]
        return sum(bool(e.agrees) for e in compared), sum(bool(e.at_level) for e in compared), len(compared)

    def wins(self) -> tuple[int, int, int]:
        """Count wins, ties and losses of unbiased losses compared with plain ones, by the means.

        Enron and slashdot are counted as they are read correctly, if both forms were run.
        """
        means, skipped = {(e.method, e.dataset, e.metric): e.mean for e in self.entries}, _second_forms(self.datasets)
        gains = [
            _sign(metric) * (mean - means[plain])
            for (method, dataset, metric), mean in means.items()
            if is_proposed(method)
            and dataset not in skipped
            and (plain := (method.replace("unbiased", "plain"), dataset, metric)) in means
        ]
        won, lost = sum(gain > 1e-12 for gain in gains), sum(gain < -1e-12 for gain in gains)
        return won, len(gains) - won - lost, lost

    def rivals(self) -> tuple[int, int, int, int]:
        """Compare the best proposed method with known rates with every partial multi-label method.

        The best method is that with the best mean of a dataset and metric, as in the paper. Returns the numbers of
        comparisons in which it is better, significantly better and significantly worse (paired t-test), and of all.
        """
        found, skipped = [], _second_forms(self.datasets)
        for dataset, metric in dict.fromkeys((e.dataset, e.metric) for e in self.entries if e.dataset not in skipped):
            sign = _sign(metric)
            column = {e.method: e for e in self.entries if (e.dataset, e.metric) == (dataset, metric)}
            proposed = [e for m, e in column.items() if is_proposed(m) and not m.endswith("-estimated")]
            if proposed:
                best = max(proposed, key=lambda e: sign * e.mean)
                rivals = [column[m] for m in PML_METHODS if m in column]
                found += [(sign * (best.mean - r.mean), paired_t_test(best.values, r.values)) for r in rivals]
        sure = [gain for gain, p_value in found if p_value < SIGNIFICANCE_LEVEL]
        better = sum(gain > 0 for gain, _ in found)
        return better, sum(gain > 0 for gain in sure), sum(gain < 0 for gain in sure), len(found)


def _sign(metric: str) -> int:
    return 1 if GREATER_IS_BETTER[metric] else -1


def _second_forms(datasets: Sequence[str]) -> set[str]:
    return {name for name in AS_PRINTED if name in datasets and name.removesuffix("_as_printed") in datasets}


def summarize(results: Iterable[Result]) -> list[Summary]:
    """Summarize results by table, protocol and selection.

    Parameters
    ----------
    results : iterable of Result
        Results of a :class:`~ccmn.paper.ResultStore` or of :func:`~ccmn.paper.read_cells`.

    Returns
    -------
    list of Summary
        One summary for every table, protocol and selection with results, in the order of the tables.

    Raises
    ------
    ValueError
        If a table is unknown, or if the results contain the same cell twice with different configurations.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((TABLES[result.cell.table].name, result.cell.protocol), []).append(result)
    order = list(TABLES)
    keys = sorted(groups, key=lambda key: (order.index(key[0]), key[1]))
    return [_summary(TABLES[t], p, s, groups[t, p]) for t, p in keys for s in SELECTIONS]


Values = dict[tuple[str, str, str], dict[int, float]]
"""(method, dataset, metric) -> repeat -> value."""


def _summary(table: PaperTable, protocol: str, selection: str, results: Sequence[Result]) -> Summary:
    values = _values(results, selection)
    sizes = {r.cell.dataset: r.cell.n for r in results}
    entries = tuple(_entries(table.name, values, sizes))
    return Summary(
        table,
        protocol,
        selection,
        entries,
        _ranking([e for e in entries if e.dataset not in _second_forms(list(sizes))]),
        sum(r.seconds for r in results),
        tuple(sorted({r.machine.get("device", "") for r in results})),
        tuple(f"{r.cell.dataset} {r.cell.method} {r.cell.repeat}: {r.error}" for r in results if r.failed),
    )


def _values(results: Sequence[Result], selection: str) -> Values:
    values: Values = {}
    for result in results:
        cell = result.cell
        for metric, value in result.outcome.get("values", {}).get(selection, {}).items():
            runs = values.setdefault((cell.method, cell.dataset, metric), {})
            if cell.repeat in runs:
                raise ValueError(
                    f"{cell.table} {cell.dataset} {cell.method} repeat {cell.repeat} has results of two configurations "
                    "(epochs, seed or data differ); use one store for each configuration"
                )
            runs[cell.repeat] = value
    return values


def _entries(table: str, values: Values, sizes: dict[str, int]) -> Iterator[TableEntry]:
    """Return the entries of a table, with the best method and the significance marks of every column."""
    columns: dict[tuple[str, str], dict[str, float]] = {}
    for (method, dataset, metric), runs in values.items():
        columns.setdefault((dataset, metric), {})[method] = float(np.mean(list(runs.values())))
    for (method, dataset, metric), runs in values.items():
        means = columns[dataset, metric]
        best = _best(means, metric)
        proposed = _best({m: v for m, v in means.items() if is_proposed(m)}, metric)
        mark = "" if proposed is None else _mark(values, proposed, method, dataset, metric)
        printed = printed_values().get((table, dataset, method, metric))
        yield TableEntry(method, dataset, metric, tuple(runs.values()), sizes[dataset], method == best, mark, printed)


def _best(means: dict[str, float], metric: str) -> str | None:
    return max(means, key=lambda m: _sign(metric) * means[m], default=None)


def _mark(values: Values, proposed: str, method: str, dataset: str, metric: str) -> str:
    ours, theirs = values[proposed, dataset, metric], values[method, dataset, metric]
    common = sorted(ours.keys() & theirs.keys())
    a, b = ([runs[repeat] for repeat in common] for runs in (ours, theirs))
    if method == proposed or paired_t_test(a, b) >= SIGNIFICANCE_LEVEL:
        return ""
    return "better" if _sign(metric) * (np.mean(a) - np.mean(b)) > 0 else "worse"


def _ranking(entries: Sequence[TableEntry]) -> Friedman | None:
    """Rank the methods over the (dataset, metric) pairs on which every method has a value."""
    methods = list(dict.fromkeys(e.method for e in entries))
    means = {(e.method, e.dataset, e.metric): e.mean for e in entries}
    pairs = dict.fromkeys((e.dataset, e.metric) for e in entries)
    complete = [p for p in pairs if all((m, *p) in means for m in methods)]
    if len(complete) < 2 or len(methods) < 2:
        return None
    table = [[means[m, dataset, metric] for m in methods] for dataset, metric in complete]
    return friedman(table, methods, greater_is_better=[GREATER_IS_BETTER[metric] for _, metric in complete])


def _ordered(names: set[str], order: Sequence[str]) -> list[str]:
    return [name for name in order if name in names] + sorted(names - set(order))


# -- Statistical tests


def paired_t_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided p-value of the paired t-test of values of the same repeats.

    It is 1 if there is no difference or only one pair, and 0 if all pairs differ by the same amount.

    >>> round(paired_t_test([0.1, 0.2, 0.3], [0.2, 0.31, 0.39]), 3)
    0.003
    """
    difference = np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)
    if len(difference) < 2:
        return 1.0
    if np.ptp(difference) <= 1e-12 * max(1.0, np.abs(difference).max()):
        return float(np.abs(difference[0]) <= 1e-12)
    return float(scipy.stats.ttest_1samp(difference, 0.0).pvalue)


class Friedman(NamedTuple):
    """Friedman test: average ranks of the methods (1 is the best) over n rows, and whether they differ.

    ``statistic`` is the F statistic of Iman and Davenport, which is less conservative than the chi-square of Friedman.
    ``critical_difference`` is the smallest significant difference from a control method (Bonferroni-Dunn).
    """

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    n: int
    statistic: float
    p_value: float
    critical_difference: float


def friedman(values: ArrayLike, methods: Sequence[str], *, greater_is_better: ArrayLike = False) -> Friedman:
    r"""Test whether the average ranks of methods, the columns of ``values``, differ [1]_ [2]_.

    .. math:: \chi^2 = \frac{12 N}{k (k + 1)} \Big( \sum_j R_j^2 - \frac{k (k + 1)^2}{4} \Big), \quad
              F = \frac{(N - 1) \chi^2}{N (k - 1) - \chi^2}, \quad
              \mathrm{CD} = z_{1 - \alpha / (2 (k - 1))} \sqrt{\frac{k (k + 1)}{6 N}}

    ``greater_is_better`` is the direction of the values, for all rows or for each row.

    References
    ----------
    .. [1] J. Demsar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006.
    .. [2] R. L. Iman and J. M. Davenport, "Approximations of the critical region of the Friedman statistic",
       Communications in Statistics 9(6), 1980.

    Examples
    --------
    >>> friedman([[0.1, 0.2], [0.3, 0.4], [0.2, 0.1]], ["a", "b"]).ranks
    (1.3333333333333333, 1.6666666666666667)
    """
    table = np.atleast_2d(np.asarray(values, dtype=float))
    n, k = table.shape
    signs = np.where(np.broadcast_to(np.asarray(greater_is_better), n), -1.0, 1.0)
    ranks = scipy.stats.rankdata(table * signs[:, None], axis=1).mean(0)
    chi2 = 12 * n / (k * (k + 1)) * (np.sum(ranks**2) - k * (k + 1) ** 2 / 4)
    rest = n * (k - 1) - chi2
    # F is unbounded if all rows have the same ranks.
    statistic = float((n - 1) * chi2 / rest) if rest > 1e-12 else float("inf")
    p_value = float(scipy.stats.f.sf(statistic, k - 1, (k - 1) * (n - 1)))
    z = float(scipy.stats.norm.ppf(1 - SIGNIFICANCE_LEVEL / (2 * (k - 1))))
    difference = z * float(np.sqrt(k * (k + 1) / (6 * n)))
    return Friedman(tuple(methods), tuple(float(r) for r in ranks), n, statistic, p_value, difference)
