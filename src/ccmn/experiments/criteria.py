"""What epochs and learning rates are chosen by, and what is then reported, for a whole stack of runs at once.

Two selections stand side by side. ``clean``: every metric on clean validation labels, as the paper did. ``noisy``: what
a user without clean labels can do, metrics on noisy validation labels, corrected for the noise: the unbiased Hamming
loss, and for the metrics of rankings the pooled ranking loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ccmn.losses import MultiLabelLoss
from ccmn.metrics import MetricsTogether, Ranking, coverage_rows, pooled_wrong_from
from ccmn.training import Network
from ccmn.training.batches import Features

GREATER_IS_BETTER = {"hamming_loss": False, "ranking_loss": False, "average_precision": True, "coverage": False}
"""The metrics of the tables; coverage (normalised) in the journal version alone."""
TABLE_METRICS = ("hamming_loss", "ranking_loss", "average_precision")
SELECTIONS = ("clean", "noisy")

_MOST_KEPT = 256 << 20


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

    def __init__(self, features: Features, rows: Tensor, clean: Tensor, debiased: Tensor | None = None) -> None:
        self.features, self.rows = features, rows
        self.labels = HeldOutLabels(clean, debiased)
        self._X: Tensor | None = None

    def scores(self, network: Network, loss: MultiLabelLoss) -> Tensor:
        """(G, K, n, q)."""
        return loss.decision(network.outputs(self.X))

    @property
    def X(self) -> Tensor:
        """The features, gathered once where that is not too much to keep."""
        X = self.features.gather(self.rows) if self._X is None else self._X
        if X.layout == torch.strided and X.nbytes <= _MOST_KEPT:
            self._X = X
        return X


class HeldOutLabels:
    """Labels as in ``HeldOut``, and what scores (G, K, n, q) are worth by them."""

    def __init__(self, clean: Tensor, debiased: Tensor | None = None) -> None:
        self.clean, self.debiased = clean, debiased
        self._together = MetricsTogether(clean)

    def measure(self, wanted: Sequence[Criterion], scores: Tensor) -> Tensor:
        """Every criterion for every run, (C, G, K) in float64; greater is better, NaN for a run that diverged."""
        values = {("clean", name): value for name, value in self._clean(wanted, scores).items()}
        if self.debiased is not None:
            values |= {("noisy", name): value for name, value in self._corrected(self.debiased, scores).items()}
        found = torch.stack([c.sign * values[c.selection, c.name] for c in wanted])
        # Scores that are not numbers order nothing and predict nothing, which must not pass for being right.
        return found.masked_fill(~scores.sum((-1, -2)).isfinite(), torch.nan)

    def _clean(self, wanted: Sequence[Criterion], scores: Tensor) -> dict[str, Tensor]:
        names = {c.name for c in wanted if c.selection == "clean"}
        if not names:
            return {}
        values = dict(zip(TABLE_METRICS, self._together(scores)))
        if "coverage" in names:
            values["coverage"] = coverage_rows(self.clean, scores, normalised=True).mean(-1)
        return values

    def _corrected(self, p: Tensor, scores: Tensor) -> dict[str, Tensor]:
        """The unbiased Hamming loss and the pooled ranking loss, from debiased labels."""
        wrong, pairs = pooled_wrong_from(Ranking.of(p, scores))
        return {
            "hamming_loss": torch.where(scores >= 0, 1 - p, p).double().mean((-1, -2)),
            "ranking_loss": wrong.sum(-1) / pairs.sum(-1),
        }


def clean_metrics(Y: Tensor, scores: Tensor, metrics: Sequence[str]) -> dict[str, Tensor]:
    """Metrics of score matrices (..., n, q) against label matrices: (...) each."""
    values = dict(zip(TABLE_METRICS, MetricsTogether(Y)(scores)))
    if "coverage" in metrics:
        values["coverage"] = coverage_rows(Y, scores, normalised=True).mean(-1)
    return {metric: values[metric] for metric in metrics}
