"""Ranking loss in a few fused Triton kernels on a CUDA device; ``losses/pairs`` is the reference implementation."""

from __future__ import annotations

from ccmn.losses.triton.dispatch import can_fuse, fused_ranking_loss

__all__ = ["can_fuse", "fused_ranking_loss"]
