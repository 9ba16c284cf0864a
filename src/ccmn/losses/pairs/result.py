"""What every fast pair sum returns: the value and, where asked for, its derivatives, one row each."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class PairSums(NamedTuple):
    r""":math:`L = \sum_{j \ne k} p_j n_k \phi(f_j - f_k)` of every row, with its derivatives."""

    value: Tensor
    """L, shape (rows,)."""
    by_scores: Tensor | None
    """dL/df, shape (rows, q)."""
    by_pos: Tensor | None
    """dL/dp_j = sum over k != j of n_k phi(f_j - f_k), shape (rows, q): the row sums of 12.3's corrections."""
    by_neg: Tensor | None
    """dL/dn_k = sum over j != k of p_j phi(f_j - f_k), shape (rows, q)."""


class Wanted(NamedTuple):
    """Which derivatives to compute."""

    by_scores: bool
    by_weights: bool
