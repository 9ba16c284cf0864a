"""How good predictions are: one family of metrics per file, this index, nothing else.

A metric takes whole matrices in any container and returns one value. Under it stand pure functions of tensors
(``..._rows``: one value per row; ``..._from``: the same from a ``Ranking`` at hand) without checks or device
synchronisation, for a training loop that evaluates many models at once, several metrics from one ranking:

>>> import torch
>>> Y, scores = torch.tensor([[1, 0], [0, 1]]), torch.randn(5, 2, 2)  # five models, two rows, two labels
>>> ranking = Ranking.of(Y, scores)
>>> ranking_loss_from(ranking).shape, average_precision_from(ranking).shape
(torch.Size([5, 2]), torch.Size([5, 2]))
"""

from __future__ import annotations

from ccmn._registry import Registry
from ccmn.metrics.batched import MetricsTogether
from ccmn.metrics.classification import auc_rows, f1_over, hamming_loss, hamming_rows, macro_auc, macro_f1, micro_f1
from ccmn.metrics.metric import Estimate, EstimatedNoise, Metric, Noise, Value
from ccmn.metrics.ranking_metrics import (
    Ranking,
    average_precision,
    average_precision_from,
    average_precision_rows,
    coverage,
    coverage_rows,
    one_error,
    one_error_rows,
    pooled_wrong_from,
    ranking_loss,
    ranking_loss_from,
    ranking_loss_rows,
)
from ccmn.metrics.scorers import NoisyScorer, make_noisy_scorer

METRICS: Registry[Metric] = Registry(
    "metric",
    {
        metric.name: metric
        for metric in (
            Metric("hamming_loss", hamming_loss, needs="labels", greater_is_better=False),
            Metric("ranking_loss", ranking_loss, needs="scores", greater_is_better=False),
            Metric("average_precision", average_precision, needs="scores", greater_is_better=True),
            Metric("one_error", one_error, needs="scores", greater_is_better=False),
            Metric("coverage", coverage, needs="scores", greater_is_better=False, maximum="n_labels"),
            Metric("micro_f1", micro_f1, needs="labels", greater_is_better=True),
            Metric("macro_f1", macro_f1, needs="labels", greater_is_better=True),
            Metric("macro_auc", macro_auc, needs="scores", greater_is_better=True),
        )
    },
)


__all__ = [
    "METRICS",
    "Estimate",
    "EstimatedNoise",
    "Metric",
    "MetricsTogether",
    "Noise",
    "NoisyScorer",
    "Ranking",
    "Value",
    "auc_rows",
    "average_precision",
    "average_precision_from",
    "average_precision_rows",
    "coverage",
    "coverage_rows",
    "f1_over",
    "hamming_loss",
    "hamming_rows",
    "macro_auc",
    "macro_f1",
    "make_noisy_scorer",
    "micro_f1",
    "one_error",
    "one_error_rows",
    "pooled_wrong_from",
    "ranking_loss",
    "ranking_loss_from",
    "ranking_loss_rows",
]
