"""Flat index of the pure functions of the losses (re-exports only)."""

from ccmn.losses.hamming import hamming_loss
from ccmn.losses.ranking import ranking_loss

__all__ = ["hamming_loss", "ranking_loss"]
