r"""What every fast pair sum returns: the value and, where asked for, its derivatives, one row each.

Memory that is used again by the next call, one piece per thread.

Fresh megabytes cost more than the arithmetic on them (every page is a fault), and a training step would ask for them
thousands of times.

The double sum over half of the pairs, for a symmetric surrogate (the sigmoid).

With :math:`\phi(t) + \phi(-t) = 2 \phi(0)` the two orders of a pair need one value of phi:

.. math:: p_j n_k \phi(t) + p_k n_j \phi(-t) = (p_j n_k - p_k n_j)\, \phi(t) + 2 \phi(0)\, p_k n_j

and its slope is the weight in brackets times phi'(t).

The double sum of the hinge from indicators alone, in tiles that stay in cache.

With :math:`m_{jk} = 1[f_k > f_j - 1]` (the pairs that count) and :math:`s_{jk} = p_j n_k m_{jk}`,

.. math:: \frac{\partial L}{\partial f_j} = \sum_k s_{kj} - \sum_k s_{jk}, \qquad
          L = \sum_{j \ne k} s_{jk} (1 - f_j + f_k) = \sum_{j \ne k} s_{jk} + \sum_j f_j \frac{\partial L}{\partial f_j}

so that neither the differences nor phi itself are ever written down.

The double sum with its gradient by hand, in tiles that stay in cache: the fastest way for few labels.

The double sum itself, block by block, differentiable as often as phi is: O(q^2) time, O(q) memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ccmn.losses.surrogates import Surrogate


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


_kept = threading.local()


def workspace(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """At least ``size`` values, to be overwritten by the next call in this thread.

    Kept on a CPU only: accelerators have allocators of their own that keep memory.
    """
    if device.type != "cpu":
        return torch.empty(size, dtype=dtype, device=device)
    pieces: dict[torch.dtype, Tensor] = _kept.__dict__.setdefault("pieces", {})
    if dtype not in pieces or pieces[dtype].numel() < size:
        # Outlives the context it is made in: an inference tensor could not be written to in training.
        with torch.inference_mode(False):
            pieces[dtype] = torch.empty(size, dtype=dtype, device="cpu")
    return pieces[dtype][:size]


def symmetric_pair_sum(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, wanted: Wanted, tile: int
) -> PairSums:
    """Value and gradient by the scores, rows in tiles of at most ``tile`` pairs (or one row)."""
    rows, q = scores.shape
    steps = q // 2
    some = max(1, tile // max(1, q * steps))
    value, by_scores = scores.new_empty(rows), torch.empty_like(scores)
    room = workspace(4 * q * steps * min(some, rows), scores.dtype, scores.device)
    for start in range(0, rows, some):
        part = slice(start, start + some)
        _rows(scores[part], pos[part], neg[part], surrogate, room, value[part], by_scores[part])
    return PairSums(value, by_scores if wanted.by_scores else None, None, None)


def _rows(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, room: Tensor, value: Tensor, by_scores: Tensor
) -> None:
    """Pairs (j, j + s mod q) for s = 1 .. q/2: every pair once, those half way round twice at half weight."""
    rows, q = scores.shape
    steps = q // 2
    f, p, n = (t.t().contiguous() for t in (scores, pos, neg))
    # Twice the labels in a row: label j + s of every j is then a window that is read where it lies.
    f_k, p_k, n_k = (
        torch.cat((t, t)).as_strided((steps, q, rows), (rows, rows, 1), storage_offset=rows) for t in (f, p, n)
    )
    minus_t, other, weights, phi = (b[: steps * q * rows].view(steps, q, rows) for b in room.chunk(4))
    torch.sub(f_k, f, out=minus_t)
    torch.mul(p_k, n, out=other)
    torch.mul(p, n_k, out=weights).sub_(other)
    if q % 2 == 0:
        weights[-1] *= 0.5
        other[-1] *= 0.5
    constant = other.sum((0, 1))
    slope = other
    surrogate.fill(minus_t, weights, phi, slope)
    torch.add(phi.sum((0, 1)), constant, alpha=2 * surrogate.at_zero, out=value)
    taken = scores.new_zeros(2 * q, rows)
    for s in range(steps):
        taken[s + 1 : s + 1 + q] += slope[s]
    by_scores.copy_((slope.sum(0) - taken[:q] - taken[q:]).t())


def hinge_indicator_sum(scores: Tensor, pos: Tensor, neg: Tensor, wanted: Wanted, tile: int) -> PairSums:
    """Value and gradient by the scores, rows in tiles of at most ``tile`` pairs (or one row)."""
    rows, q = scores.shape
    some = min(rows, max(1, tile // (q * q)))
    room = workspace(2 * q * q * some, scores.dtype, scores.device)
    value, by_scores = scores.new_empty(rows), torch.empty_like(scores)
    for start in range(0, rows, some):
        part = slice(start, start + some)
        _rows_indicators(scores[part], pos[part], neg[part], room, value[part], by_scores[part])
    return PairSums(value, by_scores if wanted.by_scores else None, None, None)


def _rows_indicators(scores: Tensor, pos: Tensor, neg: Tensor, room: Tensor, value: Tensor, by_scores: Tensor) -> None:
    # Rows go last: the innermost loop then runs over rows, not over a few labels.
    f, p, n = (t.t().contiguous() for t in (scores, pos, neg))
    q, rows = f.shape
    counts, weighted = (part[: q * q * rows].view(q, q, rows) for part in room.chunk(2))
    torch.gt(f, (f - 1).unsqueeze(1), out=counts)
    counts.diagonal(0, 0, 1).zero_()
    as_positive = torch.mul(counts, n, out=weighted).sum(1).mul_(p)
    slopes = counts.mul_(p.unsqueeze(1)).sum(0).mul_(n).sub_(as_positive)
    # The slopes add up to 0, so that the scores may be moved: small ones keep their digits.
    torch.sum(as_positive.addcmul_(f - f.mean(0), slopes), 0, out=value)
    by_scores.copy_(slopes.t())


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


_MOST_AT_ONCE = 1 << 22
"""Pairs in memory at once."""


def blocked_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    """The pair sum of each row for any phi, by ordinary differentiable operations.

    Blocks of labels are recomputed in the backward pass instead of being kept, so memory stays O(q); gradients
    reach the parameters of a learned phi, too.
    """
    rows, q = scores.shape
    size = max(1, _MOST_AT_ONCE // max(1, rows * q))
    if size >= q:
        return _block(scores, pos, neg, phi, 0, q)
    total = scores.new_zeros(rows)
    for start in range(0, q, size):
        part = checkpoint(_block, scores, pos, neg, phi, start, min(start + size, q), use_reentrant=False)
        assert isinstance(part, Tensor)
        total = total + part
    return total


def _block(scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor], start: int, stop: int) -> Tensor:
    """The part of the sum whose positive label j is in [start, stop)."""
    values = phi(scores[:, start:stop, None] - scores[:, None, :])
    labels = torch.arange(scores.shape[1], device=scores.device)
    # p_j n_j is 0 for true labels but not for debiased ones: j = k is left out by hand.
    values = values.masked_fill(labels[start:stop, None] == labels, 0)
    return (pos[:, start:stop] * (values * neg[:, None, :]).sum(-1)).sum(-1)
