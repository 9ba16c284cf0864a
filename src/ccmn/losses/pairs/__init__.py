"""Sums over pairs of labels: one file per way of computing them; ``pair_sum`` chooses."""

from ccmn.losses.pairs.pair_sum import pair_row_sums, pair_sum

__all__ = ["pair_row_sums", "pair_sum"]
