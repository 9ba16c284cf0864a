"""From stored results to what a table says: means, what is best, what is significant, how near the printed numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ccmn.experiments.criteria import GREATER_IS_BETTER, SELECTIONS
from ccmn.experiments.paper import TABLES, Table
from ccmn.experiments.published import Printed, published
from ccmn.experiments.statistics import Friedman, friedman, paired_t_test
from ccmn.experiments.store import Result

LEVEL = 0.05
NEAR = 0.02
"""A mean within this of the printed one, or better, is at the printed level."""
WITHOUT_DOUBT = ("hamming-square", "hamming-hinge", "ranking-hinge", "ranking-sigmoid")
"""Ranking-square is an indefinite form under noise and may diverge: it is counted apart."""


@dataclass(frozen=True)
class Entry:
    """One cell of a table: a method's mean over repeats on a data set."""

    method: str
    dataset: str
    metric: str
    values: tuple[float, ...]
    """By repeat."""
    n: int
    best: bool
    mark: str
    """"better" or "worse": the best proposed method, compared with this one, at the level of 0.05; else ""."""
    printed: Printed | None

    @property
    def mean(self) -> float:
        """Over repeats."""
        return float(np.mean(self.values))

    @property
    def std(self) -> float:
        """Over repeats; 0 for a single one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    @property
    def gain(self) -> float | None:
        """How much better than the printed mean; negative: worse."""
        if self.printed is None:
            return None
        sign = 1 if GREATER_IS_BETTER[self.metric] else -1
        return sign * (self.mean - self.printed.mean)

    @property
    def at_level(self) -> bool | None:
        """Within ``NEAR`` of the printed mean, or better; None where nothing is printed."""
        return None if self.gain is None else self.gain >= -NEAR - 1e-12


@dataclass(frozen=True)
class Duel:
    """Unbiased against plain on one (data set, loss, metric)."""

    dataset: str
    loss: str
    metric: str
    outcome: str
    """"win", "tie" or "loss", by the means."""
    significant: bool


@dataclass(frozen=True)
class Summary:
    """A table under one protocol and one selection."""

    table: Table
    protocol: str
    selection: str
    entries: tuple[Entry, ...]
    duels: tuple[Duel, ...]
    ranking: Friedman | None
    """Over all data sets and metrics; None where there are too few."""
    seconds: float
    machines: tuple[str, ...]
    failures: tuple[str, ...]

    def entry(self, method: str, dataset: str, metric: str) -> Entry | None:
        """The entry at this place, if it was run."""
        wanted = (method, dataset, metric)
        return next((e for e in self.entries if (e.method, e.dataset, e.metric) == wanted), None)

    @property
    def methods(self) -> list[str]:
        """Rows, in the table's order; added ones last."""
        return _ordered({e.method for e in self.entries}, self.table.methods)

    @property
    def datasets(self) -> list[str]:
        """Columns, in the table's order; added ones last."""
        return _ordered({e.dataset for e in self.entries}, self.table.datasets)

    @property
    def metrics(self) -> list[str]:
        """Blocks, in the table's order."""
        return _ordered({e.metric for e in self.entries}, self.table.metrics)

    def near_printed(self, *, proposed: bool = True) -> tuple[int, int]:
        """How many of the (proposed) methods' cells are at the printed level, and of how many."""
        judged = [e for e in self.entries if e.at_level is not None and (not proposed or is_proposed(e.method))]
        return sum(bool(e.at_level) for e in judged), len(judged)

    def wins(self, losses: Sequence[str] = WITHOUT_DOUBT) -> tuple[int, int, int]:
        """Wins, ties and losses of unbiased against plain."""
        counted = [d.outcome for d in self.duels if d.loss in losses]
        return counted.count("win"), counted.count("tie"), counted.count("loss")


def is_proposed(method: str) -> bool:
    """Is it one of the paper's own?"""
    return method.startswith("unbiased-")


def summarise(results: Iterable[Result]) -> list[Summary]:
    """A summary for every table, protocol and selection that has results, in the tables' order."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.cell.table, result.cell.protocol), []).append(result)
    order = list(TABLES)
    found = sorted(groups, key=lambda key: (order.index(key[0]), key[1]))
    return [_summary(TABLES[t], p, s, groups[t, p]) for t, p in found for s in SELECTIONS]


def _summary(table: Table, protocol: str, selection: str, results: Sequence[Result]) -> Summary:
    values = _values(results, selection)
    sizes = {r.cell.dataset: r.cell.n for r in results}
    entries = tuple(
        _entry(table.name, method, dataset, metric, tuple(v.values()), sizes[dataset], values)
        for (method, dataset, metric), v in values.items()
    )
    failed = (r for r in results if r.failed)
    return Summary(
        table,
        protocol,
        selection,
        entries,
        tuple(_duels(values)),
        _ranking(entries),
        sum(r.seconds for r in results),
        tuple(sorted({r.machine.get("device", "") for r in results})),
        tuple(f"{r.cell.dataset} {r.cell.method} {r.cell.repeat}: {r.error}" for r in failed),
    )


Values = dict[tuple[str, str, str], dict[int, float]]
"""(method, data set, metric) -> repeat -> value."""


def _values(results: Sequence[Result], selection: str) -> Values:
    found: Values = {}
    for result in results:
        cell = result.cell
        for metric, value in result.outcome.get("values", {}).get(selection, {}).items():
            runs = found.setdefault((cell.method, cell.dataset, metric), {})
            if cell.repeat in runs:
                raise ValueError(
                    f"the store holds {cell.table} {cell.dataset} {cell.method} repeat {cell.repeat} twice, by two "
                    "recipes (epochs, seed or data differ): keep them in two stores"
                )
            runs[cell.repeat] = value
    return found


def _entry(
    table: str, method: str, dataset: str, metric: str, runs: tuple[float, ...], n: int, values: Values
) -> Entry:
    means = {
        m: float(np.mean(list(v.values()))) for (m, d, name), v in values.items() if (d, name) == (dataset, metric)
    }
    best = _best(means, metric)
    proposed = _best({m: v for m, v in means.items() if is_proposed(m)}, metric)
    mark = "" if proposed is None else _mark(values, proposed, method, dataset, metric)
    return Entry(
        method, dataset, metric, runs, n, method == best, mark, published().get((table, dataset, method, metric))
    )


def _best(means: dict[str, float], metric: str) -> str | None:
    if not means:
        return None
    return max(means, key=lambda m: means[m] if GREATER_IS_BETTER[metric] else -means[m])


def _mark(values: Values, proposed: str, method: str, dataset: str, metric: str) -> str:
    """The paper's bullet: is the best proposed method significantly better, or worse, than this one?"""
    ours, theirs = values[proposed, dataset, metric], values[method, dataset, metric]
    repeats = sorted(ours.keys() & theirs.keys())
    a, b = [ours[r] for r in repeats], [theirs[r] for r in repeats]
    if method == proposed or paired_t_test(a, b) >= LEVEL:
        return ""
    return "better" if (np.mean(a) > np.mean(b)) == GREATER_IS_BETTER[metric] else "worse"


def _duels(values: Values) -> Iterable[Duel]:
    for (method, dataset, metric), ours in values.items():
        loss = method.removeprefix("unbiased-")
        theirs = values.get((f"plain-{loss}", dataset, metric))
        if not is_proposed(method) or theirs is None:
            continue
        repeats = sorted(ours.keys() & theirs.keys())
        a, b = [ours[r] for r in repeats], [theirs[r] for r in repeats]
        gain = (np.mean(a) - np.mean(b)) * (1 if GREATER_IS_BETTER[metric] else -1)
        outcome = "tie" if abs(gain) < 1e-12 else "win" if gain > 0 else "loss"
        yield Duel(dataset, loss, metric, outcome, paired_t_test(a, b) < LEVEL)


def _ranking(entries: Sequence[Entry]) -> Friedman | None:
    """Over the (data set, metric) pairs on which every method has a value."""
    methods = list(dict.fromkeys(e.method for e in entries))
    means = {(e.method, e.dataset, e.metric): e.mean for e in entries}
    places = dict.fromkeys((e.dataset, e.metric) for e in entries)
    full = [p for p in places if all((m, *p) in means for m in methods)]
    if len(full) < 2 or len(methods) < 2:
        return None
    rows = [[means[m, dataset, metric] for m in methods] for dataset, metric in full]
    return friedman(rows, methods, greater_is_better=[GREATER_IS_BETTER[metric] for _, metric in full])


def _ordered(found: set[str], order: Sequence[str]) -> list[str]:
    return [name for name in order if name in found] + sorted(found - set(order))
