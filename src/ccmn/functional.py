"""Losses as pure functions of scores and real-valued targets."""

from ccmn.losses.hamming import hamming_loss
from ccmn.losses.ranking import ranking_loss

__all__ = ["hamming_loss", "ranking_loss"]
