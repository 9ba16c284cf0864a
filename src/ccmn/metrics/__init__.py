r"""Multi-label metrics, and estimates from noisy labels of their values on the true labels.

A metric takes matrices in any container and returns a float. With ``noise=`` the labels are noisy, and debiased labels
p with :math:`E[p \mid y] = y` replace the labels y in the formula of the metric or in an equal one [1]_. The result is
an :class:`Estimate` of the value on the true labels: a float with a standard error and a status.

References
----------
.. [1] N. Natarajan, I. S. Dhillon, P. Ravikumar and A. Tewari, "Learning with Noisy Labels", NeurIPS, 2013.
"""

from ccmn.metrics.classification import hamming_loss, macro_auc, macro_f1, mean_average_precision, micro_f1
from ccmn.metrics.metric import Estimate
from ccmn.metrics.ranking_metrics import average_precision, coverage, one_error, ranking_loss
from ccmn.metrics.risk_control import RiskControl, control_risk
from ccmn.metrics.scorers import METRICS, make_noisy_scorer
from ccmn.metrics.top_k import ndcg_at_k, precision_at_k, psp_at_k, recall_at_k

__all__ = [
    "METRICS",
    "Estimate",
    "RiskControl",
    "average_precision",
    "control_risk",
    "coverage",
    "hamming_loss",
    "macro_auc",
    "macro_f1",
    "make_noisy_scorer",
    "mean_average_precision",
    "micro_f1",
    "ndcg_at_k",
    "one_error",
    "precision_at_k",
    "psp_at_k",
    "ranking_loss",
    "recall_at_k",
]
