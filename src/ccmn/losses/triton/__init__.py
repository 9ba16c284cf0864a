"""The ranking loss on a CUDA device in a few kernels; the eager ways stay the reference, and take what these do not."""

from __future__ import annotations

from ccmn.losses.triton.dispatch import can_fuse, fused_loss

__all__ = ["can_fuse", "fused_loss"]
