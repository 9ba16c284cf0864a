"""The double sum with its gradient by hand, in tiles that stay in cache: the fastest way for few labels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ccmn.losses.pairs.result import PairSums, Wanted
from ccmn.losses.surrogates import Surrogate

_TILE = 1 << 19
"""Pairs in a tile on a CPU: few enough to stay in its last cache, enough to share among threads."""
_TILE_ELSEWHERE = 1 << 24
"""Pairs in a tile elsewhere: enough to keep a device busy."""
_SMALL = 1 << 18
"""Up to so many pairs in all they are taken at once."""
_ROWS_TO_TRANSPOSE = 16
"""From this many rows on, rows go last: the innermost loop then runs over rows, not over a few labels."""


def direct_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, wanted: Wanted) -> PairSums:
    """Value and derivatives of each row's pair sum through tiles of phi(f_j - f_k).

    The tiles are written into one piece of memory again and again: fresh memory of a megabyte costs more than the
    arithmetic on it.
    """
    rows, q = scores.shape
    if rows * q * q <= _SMALL and not wanted.by_weights:
        return _small_pair_sum(scores, pos, neg, surrogate, wanted)
    tiles = list(_tiles(rows, q, _TILE if scores.device.type == "cpu" else _TILE_ELSEWHERE))
    room = scores.new_empty(3, max((r.stop - r.start) * (j.stop - j.start) * q for r, j in tiles))
    value = scores.new_zeros(rows)
    by_scores = torch.zeros_like(scores) if wanted.by_scores else None
    by_pos, by_neg = (torch.zeros_like(scores), torch.zeros_like(scores)) if wanted.by_weights else (None, None)
    for row, label in tiles:
        rows_last = row.stop - row.start >= _ROWS_TO_TRANSPOSE
        f, p, n = (t[row].t().contiguous() if rows_last else t[row] for t in (scores, pos, neg))
        part = _tile_sums(f, p, n, label, 0 if rows_last else 1, surrogate, wanted, room)
        value[row] += part.value
        for whole, piece, where in (
            (by_pos, part.by_pos, label),
            (by_neg, part.by_neg, slice(None)),
            (by_scores, part.by_scores, slice(None)),
        ):
            if whole is not None and piece is not None:
                whole[row, where] += piece.t() if rows_last else piece
    return PairSums(value, by_scores, by_pos, by_neg)


def _small_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, wanted: Wanted) -> PairSums:
    """All pairs at once in as few operations as there can be: with few pairs, it is their number that costs."""
    phi, slope = scores.new_empty(2, *scores.shape, scores.shape[1])
    surrogate.fill(scores.unsqueeze(2) - scores.unsqueeze(1), phi, slope)
    weights = pos.unsqueeze(2) * neg.unsqueeze(1)
    weights.diagonal(0, 1, 2).zero_()
    value = phi.mul_(weights).sum((1, 2))
    if not wanted.by_scores:
        return PairSums(value, None, None, None)
    slope.mul_(weights)
    return PairSums(value, slope.sum(2).sub_(slope.sum(1)), None, None)


def _tiles(rows: int, q: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Slices (rows, positive labels) of at most ``tile`` pairs each, where one label's pairs fit."""
    some_rows = max(1, tile // (q * q))
    some_labels = q if q * q <= tile else max(1, tile // q)
    for i in range(0, rows, some_rows):
        for j in range(0, q, some_labels):
            yield slice(i, min(i + some_rows, rows)), slice(j, min(j + some_labels, q))


def _tile_sums(
    f: Tensor, p: Tensor, n: Tensor, label: slice, j_dim: int, surrogate: Surrogate, wanted: Wanted, room: Tensor
) -> PairSums:
    """One tile. With j_dim = 0 the tensors are (q, rows), with j_dim = 1 they are (rows, q)."""
    k_dim, some = j_dim + 1, label.stop - label.start
    f_j, p_j = (t.narrow(j_dim, label.start, some) for t in (f, p))
    shape = (some, *f.shape) if j_dim == 0 else (f.shape[0], some, f.shape[1])
    work, phi, slope = (part[: some * f.numel()].view(shape) for part in room)
    surrogate.fill(torch.sub(f_j.unsqueeze(k_dim), f.unsqueeze(j_dim), out=work), phi, slope)
    for values in (phi, slope):
        torch.diagonal(values, label.start, j_dim, k_dim).zero_()
    n_k, p_row = n.unsqueeze(j_dim), p_j.unsqueeze(k_dim)
    by_pos = torch.mul(phi, n_k, out=work).sum(k_dim)
    value = (p_j * by_pos).sum(j_dim)
    by_neg = torch.mul(phi, p_row, out=work).sum(j_dim) if wanted.by_weights else None
    by_scores = None
    if wanted.by_scores:
        by_scores = n * torch.mul(slope, p_row, out=work).sum(j_dim).neg_()
        by_scores.narrow(j_dim, label.start, some).addcmul_(p_j, torch.mul(slope, n_k, out=work).sum(k_dim))
    return PairSums(value, by_scores, by_pos if wanted.by_weights else None, by_neg)
