"""Multi-label metrics, and estimates from noisy labels of their values on the true labels.

A metric takes matrices in any container and returns one value. With ``noise=`` the labels are noisy, and the metric
returns an :class:`Estimate` of its value on the true labels: value, standard error and status.
"""

from __future__ import annotations

from ccmn.metrics.classification import hamming_loss, macro_auc, macro_f1, micro_f1
from ccmn.metrics.metric import Estimate, Metric
from ccmn.metrics.ranking_metrics import average_precision, coverage, one_error, ranking_loss
from ccmn.metrics.scorers import METRICS, NoisyScorer, make_noisy_scorer

__all__ = [
    "METRICS",
    "Estimate",
    "Metric",
    "NoisyScorer",
    "average_precision",
    "coverage",
    "hamming_loss",
    "macro_auc",
    "macro_f1",
    "make_noisy_scorer",
    "micro_f1",
    "one_error",
    "ranking_loss",
]
