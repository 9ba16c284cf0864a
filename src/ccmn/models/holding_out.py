"""Rows to choose epoch, learning rate and l2 by: held out of the training rows, or given."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccmn._containers import is_sparse
from ccmn.models.samples import Labels, Sample
from ccmn.models.targets import Targets, encode_like
from ccmn.noise import NoiseModel
from ccmn.training import SparseLabels

FEWEST_TO_HOLD_OUT = 50
"""Below this many rows none are held out: the training rows themselves choose the epoch."""


def hold_out(whole: Sample, labels: Labels, fraction: float, seed: int) -> tuple[Sample, Labels, Sample]:
    """Training rows with the labels the loss takes, and a seeded fraction of the rows to choose by."""
    n = whole.X.shape[0]
    if n < FEWEST_TO_HOLD_OUT:
        return whole, labels, whole
    order = np.random.default_rng(seed).permutation(n)
    n_out = min(max(1, round(fraction * n)), n - 1)
    out, kept = np.sort(order[:n_out]), np.sort(order[n_out:])
    return whole.take(kept), labels[kept], whole.take(out)


def given_rows(X: Any, y: Any, targets: Targets, noise: NoiseModel | None) -> Sample:
    """Rows that the user gives, whose labels are clean (``noise=None``) or went wrong like the training labels."""
    Y = encode_like(y, targets)
    if Y.shape[0] != X.shape[0]:
        raise ValueError(f"validation has {X.shape[0]} rows of X and {Y.shape[0]} of y")
    if is_sparse(Y):
        return Sample(X, SparseLabels(Y, None if noise is None else noise.debiasing()), None)
    return Sample(X, Y if noise is None else noise.debias(Y), None)
