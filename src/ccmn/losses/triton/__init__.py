"""Losses in a few fused Triton kernels on a CUDA device; ``hamming.py`` and ``pairs`` are the reference."""

from __future__ import annotations

from ccmn.losses.triton.dispatch import can_fuse, fused_loss

__all__ = ["can_fuse", "fused_loss"]
