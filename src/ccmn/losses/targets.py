"""Targets into weights: what a label contributes as a positive and as a negative."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Weighted(NamedTuple):
    """Scores with their positive and negative weights; all three 0 where the label is not observed."""

    scores: Tensor
    pos: Tensor
    neg: Tensor


def weigh(scores: Tensor, targets: Tensor) -> Weighted:
    """pos = p, neg = 1 - p; a NaN target takes its label out of the loss, whatever the score there.

    The score itself is replaced there as well, so that the gradient is exactly 0 even where it is infinite.
    """
    if targets.dtype != scores.dtype:
        targets = targets.to(scores.dtype)
    # Asking a device whether any label is missing would make the host wait; on a CPU it saves three passes (and the
    # sum, NaN if any target is, is quicker than a test of each).
    if scores.device.type == "cpu" and not torch.compiler.is_compiling() and not math.isnan(targets.sum()):
        return Weighted(scores, targets, 1 - targets)
    missing = targets.isnan()
    pos = targets.masked_fill(missing, 0)
    return Weighted(scores.masked_fill(missing, 0), pos, (1 - targets).masked_fill(missing, 0))
