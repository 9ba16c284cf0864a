"""Losses as pure functions of scores and real-valued targets, and published losses to compare with."""

from ccmn.losses.hamming import hamming_loss
from ccmn.losses.published import (
    asymmetric_loss,
    focal_loss,
    generalized_cross_entropy,
    hill_loss,
    large_loss_rejection,
)
from ccmn.losses.ranking import ranking_loss

__all__ = [
    "asymmetric_loss",
    "focal_loss",
    "generalized_cross_entropy",
    "hamming_loss",
    "hill_loss",
    "large_loss_rejection",
    "ranking_loss",
]
