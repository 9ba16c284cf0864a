"""For every criterion the weights of the best epoch, run by run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ccmn.experiments.criteria import Criterion, HeldOut, clean_metrics
from ccmn.losses import MultiLabelLoss
from ccmn.training import Network, Selection


class KeptWeights(Selection):
    """A set of weights per criterion, each run's from an epoch of its own.

    Weights are kept rather than test metrics worked out every epoch: test rows are seen once, after all is chosen; and
    nothing is read back from a device on the way.

    Parameters
    ----------
    wanted : the criteria
    loss : whose decision turns outputs into scores
    """

    def __init__(self, wanted: Sequence[Criterion], loss: MultiLabelLoss) -> None:
        self.wanted, self.loss = list(wanted), loss
        self._kept: list[list[Tensor]] = []

    def restore(self, network: Network) -> None:
        return

    @torch.no_grad()
    def keep(self, network: Network, runs: Tensor) -> None:
        """For each criterion keep what the network is now, of these runs: (C, G, K)."""
        if not self._kept:
            self._kept = [[p.values.detach().clone() for p in network.parameters] for _ in self.wanted]
            return
        for improved, kept in zip(runs, self._kept):
            if improved.device.type == "cpu" and not improved.any():
                continue  # nothing to keep, and on a CPU that is known at once
            for weights, parameter in zip(kept, network.parameters):
                torch.where(parameter.spread(improved), parameter.values, weights, out=weights)

    @torch.no_grad()
    def values(self, network: Network, test: HeldOut) -> dict[tuple[str, str], Tensor]:
        """(selection, metric) -> (G, K): each metric on the test rows, with the weights kept for it."""
        found = {}
        for criterion, kept in zip(self.wanted, self._kept):
            for weights, parameter in zip(kept, network.parameters):
                parameter.values.copy_(weights)
            scores = test.scores(network, self.loss)
            for metric, value in clean_metrics(test.labels.clean, scores, criterion.decides).items():
                found[criterion.selection, metric] = value
        return found


class TrackBest(KeptWeights):
    """Looks at validation rows after each epoch, and keeps the best."""

    def __init__(self, wanted: Sequence[Criterion], validation: HeldOut, loss: MultiLabelLoss) -> None:
        super().__init__(wanted, loss)
        self.validation = validation
        self.best: Tensor | None = None
        self.best_epoch: Tensor | None = None
        self.curve: list[Tensor] = []

    @torch.no_grad()
    def look(self, epoch: int, network: Network) -> Tensor | None:
        value = self.validation.labels.measure(self.wanted, self.validation.scores(network, self.loss))
        self.curve.append(value)
        # A run that diverged has NaN scores and cannot be the best.
        value = value.nan_to_num(nan=-torch.inf)
        if self.best is None or self.best_epoch is None:
            self.best, self.best_epoch = torch.full_like(value, -torch.inf), torch.zeros_like(value)
        better = value > self.best
        self.best = torch.where(better, value, self.best)
        self.best_epoch = torch.where(better, epoch, self.best_epoch)
        self.keep(network, better)
        return None


class KeepEpochs(KeptWeights):
    """Keeps each run at an epoch chosen before, (C, G, K): a refit has no validation rows left to look at."""

    def __init__(self, wanted: Sequence[Criterion], epochs: Tensor, loss: MultiLabelLoss) -> None:
        super().__init__(wanted, loss)
        self.epochs = epochs
        self._last = int(epochs.max())

    def look(self, epoch: int, network: Network) -> Tensor | None:
        self.keep(network, self.epochs == epoch)
        return None

    def finished(self, epoch: int) -> bool:
        return epoch >= self._last
