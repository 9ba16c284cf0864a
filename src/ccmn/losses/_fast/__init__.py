"""Fast forms of the losses: on a CPU, compiled, and on a CUDA device."""

from ccmn.losses._fast.pair_sum import pair_sum, pair_sums_by_label

__all__ = ["pair_sum", "pair_sums_by_label"]
