"""Sums over pairs of labels; ``pair_sum`` selects the algorithm."""

from ccmn.losses.pairs.pair_sum import pair_row_sums, pair_sum

__all__ = ["pair_row_sums", "pair_sum"]
