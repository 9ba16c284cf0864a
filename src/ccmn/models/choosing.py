"""What epochs, learning rates and l2 are chosen by: criteria on held-out rows, worked out a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ccmn.losses import MultiLabelLoss
from ccmn.metrics.corrected_metrics import Sums, hamming_sums, one_error_sums, pooled_ranking_sums
from ccmn.training import LabelRows, Network, Ranks
from ccmn.training.batches import Features

ENTRIES_AT_ONCE = 1 << 20
"""Scores in memory at once: some ten float64 temporaries of this size are made of them."""
ROWS_AT_ONCE = 8192


def _hamming(p: Tensor, scores: Tensor, weights: Tensor | None) -> Sums:
    return hamming_sums(p, scores >= 0, weights)


Part = Callable[[Tensor, Tensor, Tensor | None], Sums]
"""(debiased labels (n, q), scores (..., n, q), row weights) -> a quotient of sums over rows."""

CRITERIA: dict[str, tuple[Part, ...]] = {
    "hamming_loss": (_hamming,),
    # The order of the labels and the cut between them: the ranking loss alone would not look at the cut.
    "ranking_and_hamming_loss": (pooled_ranking_sums, _hamming),
    "one_error": (one_error_sums,),
}
"""The sum of these quotients is what is chosen by; smaller is better."""


def criterion_of(name: str, p: Tensor, scores: Tensor, weights: Tensor | None) -> Tensor:
    """The criterion of whole scores (..., n, q): (...)."""
    return _value([part(p, scores, weights) for part in CRITERIA[name]], ~_finite(scores))


@dataclass(frozen=True)
class HeldOut:
    """The rows that a training is judged on.

    Parameters
    ----------
    features, labels : the rows, their labels debiased
    weights : tensor (n,) or None
    ranks : of several processes each looks at some of the rows
    """

    features: Features
    labels: LabelRows
    weights: Tensor | None = None
    ranks: Ranks = field(default_factory=Ranks)

    def criterion(self, name: str, network: Network, loss: MultiLabelLoss) -> Tensor:
        """The criterion of every run, (G, K), for G = 1."""
        shape, device = (network.groups, network.runs), self.features.device
        wrong = torch.zeros(len(CRITERIA[name]) + 1, *shape, dtype=torch.float64, device=device)
        total = torch.zeros(len(CRITERIA[name]), dtype=torch.float64, device=device)
        for rows in self._blocks(network.runs):
            p = self.labels.gather(rows)[0]
            scores = loss.decision(network.outputs(self.features.gather(rows)))
            weights = None if self.weights is None else self.weights[rows[0]]
            for i, part in enumerate(CRITERIA[name]):
                sums = part(p, scores, weights)
                wrong[i] += sums.wrong
                total[i] += sums.total
            wrong[-1] += ~_finite(scores)
        self.ranks.add_up(wrong)
        self.ranks.add_up(total)
        return _value([Sums(w, t) for w, t in zip(wrong, total)], wrong[-1] > 0)

    def _blocks(self, runs: int) -> Iterator[Tensor]:
        """Row numbers (1, B)."""
        rows = torch.arange(self.features.n, device=self.features.device).unsqueeze(0)
        q = self.labels.gather(rows[:, :1]).shape[-1]
        size = max(1, min(ROWS_AT_ONCE, ENTRIES_AT_ONCE // (q * runs)))
        yield from torch.split(rows, size, 1)[self.ranks.rank :: self.ranks.world]


def _value(sums: list[Sums], diverged: Tensor) -> Tensor:
    # No pairs on balance (every label constant, few noisy rows): no order to look at, but still a cut.
    parts = [torch.where(s.total > 0, s.ratio(), 0.0) for s in sums]
    # A run that diverged predicts nothing (NaN >= 0 is false), which must not pass for being right.
    return torch.stack(parts).sum(0).masked_fill(diverged, torch.inf)


def _finite(scores: Tensor) -> Tensor:
    """Are all scores of a run finite?"""
    return scores.isfinite().all(-1).all(-1)
