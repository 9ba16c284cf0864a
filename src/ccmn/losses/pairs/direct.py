"""The double sum with its gradient by hand, in tiles that stay in cache: the fastest way for few labels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ccmn.losses.pairs.indicators import hinge_indicator_sum
from ccmn.losses.pairs.result import PairSums, Wanted
from ccmn.losses.pairs.symmetric import symmetric_pair_sum
from ccmn.losses.pairs.workspace import workspace
from ccmn.losses.surrogates import Surrogate

_TILE = 1 << 19
"""Pairs in a tile on a CPU: few enough to stay in its last cache, enough to share among threads."""
_TILE_ELSEWHERE = 1 << 24
"""Pairs in a tile elsewhere: enough to keep a device busy."""
_SMALL = 1 << 18
"""Up to so many pairs in all they are taken at once."""
_MOST_TO_HALVE = 512
"""Up to so many labels one row's pairs fit a tile, and a symmetric phi needs half of them."""
_ROWS_TO_TRANSPOSE = 16
"""From this many rows on, rows go last: the innermost loop then runs over rows, not over a few labels."""


def direct_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, wanted: Wanted) -> PairSums:
    """Value and derivatives of each row's pair sum through tiles of phi(f_j - f_k), all in the same piece of memory."""
    rows, q = scores.shape
    if rows * q * q <= _SMALL and not wanted.by_weights:
        return _small_pair_sum(scores, pos, neg, surrogate, wanted)
    tile = _TILE if scores.device.type == "cpu" else _TILE_ELSEWHERE
    if surrogate.name == "hinge" and not wanted.by_weights and tile >= _ROWS_TO_TRANSPOSE * q * q:
        return hinge_indicator_sum(scores, pos, neg, wanted, tile)
    if surrogate.symmetric and not wanted.by_weights and 1 < q <= _MOST_TO_HALVE:
        return symmetric_pair_sum(scores, pos, neg, surrogate, wanted, tile)
    tiles = list(_tiles(rows, q, tile))
    largest = max((r.stop - r.start) * (j.stop - j.start) * q for r, j in tiles)
    room = workspace(4 * largest, scores.dtype, scores.device).view(4, largest)
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
    room = workspace(2 * scores.numel() * scores.shape[1], scores.dtype, scores.device)
    phi, slope = room.view(2, *scores.shape, scores.shape[1])
    weights = pos.unsqueeze(2) * neg.unsqueeze(1)
    weights.diagonal(0, 1, 2).zero_()
    surrogate.fill(scores.unsqueeze(1) - scores.unsqueeze(2), weights, phi, slope)
    by_scores = slope.sum(2).sub_(slope.sum(1)) if wanted.by_scores else None
    return PairSums(phi.sum((1, 2)), by_scores, None, None)


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
    f_j, p_j = (t.narrow(j_dim, label.start, some).unsqueeze(k_dim) for t in (f, p))
    f_k, n_k = f.unsqueeze(j_dim), n.unsqueeze(j_dim)
    shape = (some, *f.shape) if j_dim == 0 else (f.shape[0], some, f.shape[1])
    minus_t, weights, phi, slope = (part[: some * f.numel()].view(shape) for part in room)
    torch.sub(f_k, f_j, out=minus_t)
    if wanted.by_weights:
        return _unweighted_sums(minus_t, weights, phi, slope, p_j, n_k, label.start, j_dim, surrogate)
    torch.mul(p_j, n_k, out=weights)
    torch.diagonal(weights, label.start, j_dim, k_dim).zero_()
    surrogate.fill(minus_t, weights, phi, slope)
    by_scores = None
    if wanted.by_scores:
        by_scores = slope.sum(j_dim).neg_()
        by_scores.narrow(j_dim, label.start, some).add_(slope.sum(k_dim))
    return PairSums(phi.sum((j_dim, k_dim)), by_scores, None, None)


def _unweighted_sums(
    minus_t: Tensor,
    work: Tensor,
    phi: Tensor,
    slope: Tensor,
    p_j: Tensor,
    n_k: Tensor,
    start: int,
    j_dim: int,
    surrogate: Surrogate,
) -> PairSums:
    """The same where the derivatives by the weights are wanted too, which need phi itself."""
    k_dim = j_dim + 1
    surrogate.fill(minus_t, work.fill_(1), phi, slope)
    for values in (phi, slope):
        torch.diagonal(values, start, j_dim, k_dim).zero_()
    by_pos = torch.mul(phi, n_k, out=work).sum(k_dim)
    value = (p_j.squeeze(k_dim) * by_pos).sum(j_dim)
    by_neg = torch.mul(phi, p_j, out=work).sum(j_dim)
    slope.mul_(p_j).mul_(n_k)
    by_scores = slope.sum(j_dim).neg_()
    by_scores.narrow(j_dim, start, p_j.shape[j_dim]).add_(slope.sum(k_dim))
    return PairSums(value, by_scores, by_pos, by_neg)
