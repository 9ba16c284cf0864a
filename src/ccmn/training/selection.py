"""Model selection during training: validation criteria and the weights of the best epoch.

Criteria are computed on debiased validation labels, so that they estimate the loss on true labels. Rows are processed
in blocks: the scores of all validation rows, runs and labels need not fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ccmn.losses import MultiLabelLoss
from ccmn.metrics.corrected_metrics import Sums, hamming_sums, one_error_sums, pooled_ranking_sums
from ccmn.training.batches import ALONE, Features, LabelSource, ProcessGroup
from ccmn.training.networks import Network

MIN_IMPROVEMENT = 1e-9
"""A criterion that decreases by less than this has not improved: smaller differences are rounding errors."""
MAX_BLOCK_SCORES = 1 << 20
"""Number of scores of a block of validation rows, of which about ten temporary float64 arrays exist."""
MAX_BLOCK_ROWS = 8192
"""Number of rows of a block of validation rows."""
MAX_BLOCK_ENTRIES = 1 << 25
"""Features of a block of validation rows, which are dense for a network of the user."""

MIN_LATE_EPOCH = 0.9
"""A larger learning rate is advised if the best epoch is after this share of the epochs. In 5 synthetic fits with an
earlier best epoch at the learning rate 0.05, the largest one, adding 0.2 decreased the test loss once."""


def _hamming_loss(p: Tensor, scores: Tensor, weights: Tensor | None) -> Sums:
    return hamming_sums(p, scores >= 0, weights)


CRITERIA: dict[str, tuple[Callable[[Tensor, Tensor, Tensor | None], Sums], ...]] = {
    "hamming_loss": (_hamming_loss,),
    # The ranking loss does not depend on the threshold between relevant and irrelevant labels; the Hamming loss does.
    "ranking_and_hamming_loss": (pooled_ranking_sums, _hamming_loss),
    "one_error": (one_error_sums,),
}
"""Validation criteria by name: sums of quotients of sums over rows, from debiased labels (n, q), scores (..., n, q) and
sample weights. Smaller is better."""


@dataclass(frozen=True)
class ValidationCriterion:
    """Criterion of a network on validation rows.

    ``name`` is a key of ``CRITERIA``, ``loss`` has the ``decision`` that turns outputs into scores, and each rank of
    ``group`` evaluates a part of the blocks.
    """

    name: str
    loss: MultiLabelLoss
    features: Features
    labels: LabelSource
    weights: Tensor | None = None
    group: ProcessGroup = ALONE

    def __call__(self, network: Network) -> Tensor:
        """Return the criterion of every run, (G, K) with G = 1; infinite for runs with scores that are not finite."""
        parts, device = CRITERIA[self.name], self.features.device
        wrong = torch.zeros(len(parts) + 1, network.groups, network.runs, dtype=torch.float64, device=device)
        total = torch.zeros(len(parts), dtype=torch.float64, device=device)
        rows = torch.arange(self.features.n, device=device).unsqueeze(0)
        q = self.labels.targets(rows[:, :1]).shape[-1]
        size = min(MAX_BLOCK_ROWS, MAX_BLOCK_SCORES // (q * network.runs), MAX_BLOCK_ENTRIES // self.features.d)
        blocks = torch.split(rows, max(1, size), 1)
        for block in blocks[self.group.rank :: self.group.world_size]:
            p = self.labels.targets(block)[0, 0]
            scores = self.loss.decision(network.outputs(self.features.gather(block)))
            weights = None if self.weights is None else self.weights[block[0]]
            for i, part in enumerate(parts):
                sums = part(p, scores, weights)
                wrong[i] += sums.wrong
                total[i] += sums.total
            wrong[-1] += ~scores.isfinite().all(-1).all(-1)
        self.group.sum_over_ranks(wrong)
        self.group.sum_over_ranks(total)
        # Few noisy rows can have no pairs on balance. The order of labels then does not count, but the threshold does.
        ratios = [torch.where(t > 0, Sums(w, t).ratio(), 0.0) for w, t in zip(wrong, total)]
        return torch.stack(ratios).sum(0).masked_fill(wrong[-1] > 0, torch.inf)


@dataclass
class KeepBest:
    """Selection of the epoch with the smallest criterion, separately for every run and each of C criteria.

    No value is read back from the device.

    ``criterion`` returns (G, K) or (C, G, K) values, of which smaller ones are better; a decrease by less than
    ``min_improvement`` does not count. ``value`` and ``epoch`` (C, G, K) are the best ones, empty before the first
    epoch; ``weights`` (a list per criterion) and ``buffers`` are those of that epoch.
    """

    criterion: Callable[[Network], Tensor]
    min_improvement: float = MIN_IMPROVEMENT
    value: Tensor = field(default_factory=lambda: torch.empty(0))
    epoch: Tensor = field(default_factory=lambda: torch.empty(0))
    weights: list[list[Tensor]] = field(default_factory=list)
    buffers: list[Tensor] = field(default_factory=list)

    @torch.no_grad()
    def on_epoch_end(self, epoch: int, network: Network) -> Tensor:
        """Compute the criteria and keep the weights of the runs that improved; return the criteria."""
        measured = self.criterion(network).double()
        value = measured.nan_to_num(nan=torch.inf, posinf=torch.inf)
        value = value.unsqueeze(0) if value.ndim == 2 else value
        if not self.weights:
            self.value, self.epoch = value, torch.full_like(value, epoch)
            self.weights = [[p.values.detach().clone() for p in network.parameters] for _ in value]
            self.buffers = [b.detach().clone() for b in network.buffers]
            return measured
        better = value < self.value - self.min_improvement
        self.value = torch.where(better, value, self.value)
        self.epoch = torch.where(better, epoch, self.epoch)
        for runs, kept in zip(better, self.weights):
            if runs.device.type == "cpu" and not runs.any():
                continue  # this check is free on a CPU; on a GPU it would wait for the device
            for weights, parameter in zip(kept, network.parameters):
                torch.where(parameter.spread(runs), parameter.values.detach(), weights, out=weights)
            for kept_buffer, buffer in zip(self.buffers, network.buffers):
                kept_buffer.copy_(torch.where(runs.all(), buffer, kept_buffer))
        return measured

    def load(self, network: Network, criterion: int = 0) -> None:
        """Load the weights that were kept for a criterion into the network."""
        for weights, parameter in zip(self.weights[criterion], network.parameters):
            parameter.values.data.copy_(weights)
        for kept_buffer, buffer in zip(self.buffers, network.buffers):
            buffer.copy_(kept_buffer)


class Run(NamedTuple):
    """Training with one learning rate: its smallest criterion, the epoch of that, and where its weights are."""

    value: float
    lr: float
    epoch: int
    network: Network
    position: int


def select_run(runs: list[Run], history: list[dict[str, float]], criterion: str) -> tuple[Run, dict[str, Any]]:
    """Return the run with the smallest criterion, and what is reported about it."""
    smallest = min(run.value for run in runs)
    best = next(run for run in runs if run.value <= smallest + MIN_IMPROVEMENT)  # the first one up to rounding
    rows = [row for row in history if row["lr"] == best.lr]
    # An interrupted epoch may already be the best one, although it has no row in the history.
    row = rows[min(best.epoch, len(rows) - 1)]
    selected = {"criterion": criterion, "value": best.value, "epochs": len(rows)}
    return best, selected | {key: row[key] for key in ("lr", "epoch", "loss")}


def edge_advice(selected: dict[str, Any], history: list[dict[str, float]]) -> list[str]:
    """Return sentences about a diverged training, a learning rate at the edge of its grid, and a best last epoch."""
    if not np.isfinite(selected["value"]):
        return ["The training diverged: the scores are not finite. Use a smaller lr, or scale the features."]
    advice: list[str] = []
    lr, given = selected["lr"], list(dict.fromkeys(row["lr"] for row in history))
    # The largest learning rate has converged if its best epoch is not one of the last: a larger one is not needed.
    late = selected["epoch"] > MIN_LATE_EPOCH * selected["epochs"]
    if len(given) > 1 and (lr == min(given) or (lr == max(given) and late)):
        edge, change = ("smallest", "smaller") if lr == min(given) else ("largest", "larger")
        next_lr = min((other for other in given if other != lr), key=lambda other: abs(np.log(other / lr)))
        # Equally good learning rates are no evidence that a value outside the grid is better.
        best = min(row[selected["criterion"]] for row in history if row["lr"] == next_lr)
        if best > selected["value"] + MIN_IMPROVEMENT:
            advice.append(
                f"The selected learning rate {lr:g} is the {edge} of lr={given}; a {change} one may be better."
            )
    if selected["epoch"] == selected["epochs"] > 1:
        advice.append(
            f"The best epoch is the last one ({selected['epoch']}): the validation loss was still decreasing. "
            "Increase epochs."
        )
    return advice
