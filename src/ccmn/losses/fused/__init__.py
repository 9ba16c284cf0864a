"""The ranking loss on a CUDA device in a few kernels; the eager ways stay the reference, and take what these do not."""

from ccmn.losses.fused.door import can_fuse, fused_loss

__all__ = ["can_fuse", "fused_loss"]
