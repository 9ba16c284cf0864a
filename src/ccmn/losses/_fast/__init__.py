"""Fast forms of the losses; each entry returns the value of the formula beside its call, or None."""

from ccmn.losses._fast.cuda import fused_loss
from ccmn.losses._fast.pair_sum import pair_sum, two_sided_sum

__all__ = ["fused_loss", "pair_sum", "two_sided_sum"]
