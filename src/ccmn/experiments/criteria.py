"""What epochs and learning rates are chosen by, and what is then reported, for a whole stack of runs at once.

Two selections stand side by side. ``clean``: every metric on clean validation labels, as the paper did. ``noisy``: what
a user without clean labels can do, metrics on noisy validation labels, corrected for the noise: the unbiased Hamming
loss, and for the metrics of rankings the pooled ranking loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ccmn.losses import MultiLabelLoss
from ccmn.metrics.hamming import hamming_rows
from ccmn.metrics.precision import average_precision_from
from ccmn.metrics.ranking import Ranking, coverage_rows, pooled_wrong_from, ranking_loss_from
from ccmn.training import Network
from ccmn.training.batches import Features

GREATER_IS_BETTER = {"hamming_loss": False, "ranking_loss": False, "average_precision": True, "coverage": False}
"""The metrics of the tables; coverage (normalised) in the journal version alone."""
TABLE_METRICS = ("hamming_loss", "ranking_loss", "average_precision")
SELECTIONS = ("clean", "noisy")

_MOST_KEPT = 256 << 20
_ENTRIES_AT_ONCE = 1 << 18


class Criterion(NamedTuple):
    """A value on validation rows, and the metrics whose epoch and learning rate it decides."""

    selection: str
    name: str
    decides: tuple[str, ...]

    @property
    def sign(self) -> float:
        """+1 where greater is better."""
        return 1.0 if self.selection == "clean" and GREATER_IS_BETTER[self.name] else -1.0


def criteria(metrics: Sequence[str], selections: Sequence[str] = SELECTIONS) -> list[Criterion]:
    """The criteria of a table with these metrics."""
    found = [Criterion("clean", metric, (metric,)) for metric in metrics if "clean" in selections]
    if "noisy" in selections:
        found.append(Criterion("noisy", "hamming_loss", ("hamming_loss",)))
        found.append(Criterion("noisy", "ranking_loss", tuple(m for m in metrics if m != "hamming_loss")))
    return found


@dataclass(frozen=True)
class HeldOut:
    """The rows of one part, validation or test, of every repeat.

    Parameters
    ----------
    features, rows : where the features are, and the row numbers (G, n)
    clean : tensor (G, 1, n, q)
        True labels.
    debiased : tensor (G, K, n, q) or (G, 1, n, q), optional
        Noisy labels, debiased with the rates that the runs know; for test rows there are none.
    """

    features: Features
    rows: Tensor
    clean: Tensor
    debiased: Tensor | None = None

    def scores(self, network: Network, loss: MultiLabelLoss) -> Tensor:
        """(G, K, n, q)."""
        return loss.decision(network.outputs(self.X))

    @property
    def X(self) -> Tensor:
        """The features, gathered once where that is not too much to keep."""
        kept: Tensor | None = self.__dict__.get("_X")
        if kept is None:
            kept = self.features.gather(self.rows)
            if kept.layout == torch.strided and kept.nbytes <= _MOST_KEPT:
                object.__setattr__(self, "_X", kept)
        return kept


def measure(wanted: Sequence[Criterion], clean: Tensor, debiased: Tensor | None, scores: Tensor) -> Tensor:
    """Every criterion for every run, from labels as in ``HeldOut`` and scores (G, K, n, q).

    Returns (C, G, K) in float64; greater is better.
    """
    # Few large operations for a device; for a CPU as many groups at a time as stay in cache.
    size = len(scores) if scores.is_cuda else max(1, _ENTRIES_AT_ONCE // scores[0].numel())
    found = []
    for g in range(0, len(scores), size):
        part = slice(g, g + size)
        p = None if debiased is None else debiased[part]
        found.append(_measure(wanted, clean[part], p, scores[part].contiguous()))
    return found[0] if len(found) == 1 else torch.cat(found, 1)


def _measure(wanted: Sequence[Criterion], Y: Tensor, p: Tensor | None, scores: Tensor) -> Tensor:
    """The clean and the debiased labels share one ranking of the scores."""
    if p is None:
        values = {("clean", m): v for m, v in clean_metrics(Y, scores, [c.name for c in wanted]).items()}
    else:
        labels = torch.stack([Y.to(p.dtype).expand_as(p), p])
        both = Ranking.of(labels, scores)
        clean, noisy = (Ranking(both.labels[i], both.positives[i], both.rank, both.hits[i]) for i in range(2))
        names = [c.name for c in wanted if c.selection == "clean"]
        values = {("clean", m): v for m, v in _clean_from(clean, Y, scores, names).items()}
        values |= {("noisy", m): v for m, v in _corrected_from(noisy, p, scores).items()}
    return torch.stack([c.sign * values[c.selection, c.name] for c in wanted])


def clean_metrics(Y: Tensor, scores: Tensor, metrics: Sequence[str]) -> dict[str, Tensor]:
    """Metrics of score matrices (..., n, q) against label matrices: (...) each."""
    return _clean_from(Ranking.of(Y, scores), Y, scores, metrics)


def _clean_from(ranking: Ranking, Y: Tensor, scores: Tensor, metrics: Sequence[str]) -> dict[str, Tensor]:
    rows = {
        "hamming_loss": lambda: hamming_rows(Y, scores >= 0),
        "ranking_loss": lambda: ranking_loss_from(ranking),
        "average_precision": lambda: average_precision_from(ranking),
        "coverage": lambda: coverage_rows(Y, scores, normalised=True),
    }
    return {metric: rows[metric]().mean(-1) for metric in dict.fromkeys(metrics)}


def _corrected_from(ranking: Ranking, p: Tensor, scores: Tensor) -> dict[str, Tensor]:
    """The unbiased Hamming loss and the pooled ranking loss, from debiased labels."""
    wrong, pairs = pooled_wrong_from(ranking)
    return {
        "hamming_loss": torch.where(scores >= 0, 1 - p, p).double().mean((-1, -2)),
        "ranking_loss": wrong.sum(-1) / pairs.sum(-1),
    }
