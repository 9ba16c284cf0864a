"""Sums over pairs of labels; ``pair_sum`` selects the algorithm."""

from ccmn.losses.pairs.pair_sum import pair_sum, pair_sums_by_label

__all__ = ["pair_sum", "pair_sums_by_label"]
