"""Multi-label losses on tensors of shape (..., q), unbiased under label noise."""

from ccmn._registry import Registry
from ccmn.losses.forward import ForwardLoss
from ccmn.losses.hamming import HammingLoss, hamming_loss
from ccmn.losses.multilabel_loss import CORRECTIONS as CORRECTIONS
from ccmn.losses.multilabel_loss import MultiLabelLoss as MultiLabelLoss
from ccmn.losses.ranking import RankingLoss, ranking_loss
from ccmn.losses.surrogates import SURROGATES

LOSSES: Registry[type[MultiLabelLoss]] = Registry("loss", {"hamming": HammingLoss, "ranking": RankingLoss})

__all__ = ["SURROGATES", "ForwardLoss", "HammingLoss", "RankingLoss", "hamming_loss", "ranking_loss"]
