r"""Double sums over all label pairs: O(q^2) time and O(q) memory per row.

:func:`direct_pair_sum` computes the value and its derivatives in tiles that stay in the CPU cache. Two special cases
need less work. For a symmetric phi (the sigmoid), :math:`\phi(t) + \phi(-t) = 2 \phi(0)`, so the two orders of a pair
need one value of phi:

.. math:: p_j n_k \phi(t) + p_k n_j \phi(-t) = (p_j n_k - p_k n_j)\, \phi(t) + 2 \phi(0)\, p_k n_j

For the hinge, let :math:`m_{jk} = 1[f_k > f_j - 1]` and :math:`s_{jk} = p_j n_k m_{jk}`. Then the value follows from
the gradient, without the differences of the scores and without phi:

.. math:: \frac{\partial L}{\partial f_j} = \sum_k s_{kj} - \sum_k s_{jk}, \qquad
          L = \sum_{j \ne k} s_{jk} (1 - f_j + f_k) = \sum_{j \ne k} s_{jk} + \sum_j f_j \frac{\partial L}{\partial f_j}

:func:`blocked_pair_sum` uses differentiable operations only. It serves callables and second derivatives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ccmn.losses.surrogates import Surrogate

_TILE_SIZE = 1 << 19
"""Number of pairs in a tile on a CPU. A tile fits into the last-level cache and is large enough for all threads."""
_DEVICE_TILE_SIZE = 1 << 24
"""Number of pairs in a tile on an accelerator, enough to keep it busy."""
MAX_PAIRS_WITHOUT_TILES = 1 << 18
"""Batches with at most this number of pairs are computed in one step."""
_MAX_SYMMETRIC_LABELS = 512
"""The symmetric form is used up to this number of labels, where the pairs of a row fit into a tile."""
_MIN_ROWS_LAST = 16
"""From this number of rows, the rows are the last dimension, so that the inner loop runs over rows."""
_MAX_BLOCK_PAIRS = 1 << 22
"""Number of pairs in memory at once in ``blocked_pair_sum``."""


def _fill_square(minus_t: Tensor, weights: Tensor, phi: Tensor, slope: Tensor) -> None:
    u = minus_t.add_(1)
    torch.mul(weights, u, out=slope)
    torch.mul(slope, u, out=phi)
    slope.mul_(-2)


def _fill_hinge(minus_t: Tensor, weights: Tensor, phi: Tensor, slope: Tensor) -> None:
    u = minus_t.add_(1).clamp_min_(0)
    torch.mul(weights, u, out=phi)
    torch.mul(weights, u.sign_(), out=slope).neg_()


def _fill_sigmoid(minus_t: Tensor, weights: Tensor, phi: Tensor, slope: Tensor) -> None:
    value = minus_t.sigmoid_()
    torch.mul(weights, value, out=phi)
    torch.addcmul(phi, phi, value, value=-1, out=slope).neg_()


def _fill_logistic(minus_t: Tensor, weights: Tensor, phi: Tensor, slope: Tensor) -> None:
    torch.logaddexp(minus_t, minus_t.new_zeros(()), out=phi).mul_(weights)
    torch.mul(weights, minus_t.sigmoid_(), out=slope).neg_()


FILL = {"square": _fill_square, "hinge": _fill_hinge, "sigmoid": _fill_sigmoid, "logistic": _fill_logistic}
"""Functions (minus_t, weights, phi, slope) that write weights * phi(t) and weights * phi'(t) into the last two.

They allocate no memory and overwrite ``minus_t``."""


class PairSums(NamedTuple):
    r"""Value :math:`L = \sum_{j \ne k} p_j n_k \phi(f_j - f_k)` of every row, and its derivatives."""

    value: Tensor
    """L, shape (rows,)."""
    by_scores: Tensor | None
    """dL/df, shape (rows, q)."""
    by_pos: Tensor | None
    """dL/dp_j = sum over k != j of n_k phi(f_j - f_k), shape (rows, q)."""
    by_neg: Tensor | None
    """dL/dn_k = sum over j != k of p_j phi(f_j - f_k), shape (rows, q)."""


class Needs(NamedTuple):
    """Derivatives to compute."""

    by_scores: bool
    by_weights: bool


def direct_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, needs: Needs) -> PairSums:
    """Return the pair sums of rows (n, q) from tiles of phi(f_j - f_k) that share one workspace."""
    rows, q = scores.shape
    if rows * q * q <= MAX_PAIRS_WITHOUT_TILES and not needs.by_weights:
        return _small_pair_sum(scores, pos, neg, surrogate, needs)
    tile = _TILE_SIZE if scores.device.type == "cpu" else _DEVICE_TILE_SIZE
    if surrogate.name == "hinge" and not needs.by_weights and tile >= _MIN_ROWS_LAST * q * q:
        return hinge_indicator_sum(scores, pos, neg, needs, tile)
    if surrogate.symmetric and not needs.by_weights and 1 < q <= _MAX_SYMMETRIC_LABELS:
        return symmetric_pair_sum(scores, pos, neg, surrogate, needs, tile)
    tiles = list(_tiles(rows, q, tile))
    largest = max((r.stop - r.start) * (j.stop - j.start) * q for r, j in tiles)
    buffer = workspace(4 * largest, scores.dtype, scores.device).view(4, largest)
    value = scores.new_zeros(rows)
    by_scores = torch.zeros_like(scores) if needs.by_scores else None
    by_pos, by_neg = (torch.zeros_like(scores), torch.zeros_like(scores)) if needs.by_weights else (None, None)
    for row, label in tiles:
        rows_last = row.stop - row.start >= _MIN_ROWS_LAST
        f, p, n = (t[row].t().contiguous() if rows_last else t[row] for t in (scores, pos, neg))
        part = _tile_sums(f, p, n, label, 0 if rows_last else 1, surrogate, needs, buffer)
        value[row] += part.value
        for total, term, columns in (
            (by_pos, part.by_pos, label),
            (by_neg, part.by_neg, slice(None)),
            (by_scores, part.by_scores, slice(None)),
        ):
            if total is not None and term is not None:
                total[row, columns] += term.t() if rows_last else term
    return PairSums(value, by_scores, by_pos, by_neg)


def _small_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, needs: Needs) -> PairSums:
    """Return the pair sums of a small batch in few operations, whose overhead exceeds the arithmetic."""
    buffer = workspace(2 * scores.numel() * scores.shape[1], scores.dtype, scores.device)
    phi, slope = buffer.view(2, *scores.shape, scores.shape[1])
    weights = pos.unsqueeze(2) * neg.unsqueeze(1)
    weights.diagonal(0, 1, 2).zero_()
    FILL[surrogate.name](scores.unsqueeze(1) - scores.unsqueeze(2), weights, phi, slope)
    by_scores = slope.sum(2).sub_(slope.sum(1)) if needs.by_scores else None
    return PairSums(phi.sum((1, 2)), by_scores, None, None)


def _tiles(rows: int, q: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices (rows, positive labels) of at most ``tile`` pairs each, or of one label if that is more."""
    tile_rows = max(1, tile // (q * q))
    tile_labels = q if q * q <= tile else max(1, tile // q)
    for i in range(0, rows, tile_rows):
        for j in range(0, q, tile_labels):
            yield slice(i, min(i + tile_rows, rows)), slice(j, min(j + tile_labels, q))


def _tile_sums(
    f: Tensor, p: Tensor, n: Tensor, label: slice, j_dim: int, surrogate: Surrogate, needs: Needs, buffer: Tensor
) -> PairSums:
    """Return the sums of one tile; tensors are (q, rows) for j_dim = 0 and (rows, q) for j_dim = 1."""
    k_dim, size = j_dim + 1, label.stop - label.start
    f_j, p_j = (t.narrow(j_dim, label.start, size).unsqueeze(k_dim) for t in (f, p))
    f_k, n_k = f.unsqueeze(j_dim), n.unsqueeze(j_dim)
    shape = (size, *f.shape) if j_dim == 0 else (f.shape[0], size, f.shape[1])
    minus_t, weights, phi, slope = (part[: size * f.numel()].view(shape) for part in buffer)
    torch.sub(f_k, f_j, out=minus_t)
    by_scores = by_pos = by_neg = None
    if needs.by_weights:
        # The derivatives with respect to the weights need phi without weights.
        FILL[surrogate.name](minus_t, weights.fill_(1), phi, slope)
        for values in (phi, slope):
            torch.diagonal(values, label.start, j_dim, k_dim).zero_()
        by_pos = torch.mul(phi, n_k, out=weights).sum(k_dim)
        by_neg = torch.mul(phi, p_j, out=weights).sum(j_dim)
        value = (p_j.squeeze(k_dim) * by_pos).sum(j_dim)
        slope.mul_(p_j).mul_(n_k)
    else:
        torch.mul(p_j, n_k, out=weights)
        torch.diagonal(weights, label.start, j_dim, k_dim).zero_()
        FILL[surrogate.name](minus_t, weights, phi, slope)
        value = phi.sum((j_dim, k_dim))
    if needs.by_scores:
        by_scores = slope.sum(j_dim).neg_()
        by_scores.narrow(j_dim, label.start, size).add_(slope.sum(k_dim))
    return PairSums(value, by_scores, by_pos, by_neg)


def symmetric_pair_sum(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, needs: Needs, tile: int
) -> PairSums:
    """Return value and gradient for a symmetric phi from half of the pairs, in tiles of at most ``tile`` pairs."""
    rows, q = scores.shape
    tile_rows = max(1, tile // max(1, q * (q // 2)))
    value, by_scores = scores.new_empty(rows), torch.empty_like(scores)
    buffer = workspace(4 * q * (q // 2) * min(tile_rows, rows), scores.dtype, scores.device)
    for start in range(0, rows, tile_rows):
        part = slice(start, start + tile_rows)
        _symmetric_rows(scores[part], pos[part], neg[part], surrogate, buffer, value[part], by_scores[part])
    return PairSums(value, by_scores if needs.by_scores else None, None, None)


def _symmetric_rows(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, buffer: Tensor, value: Tensor, by_scores: Tensor
) -> None:
    """Sum over the pairs (j, j + s mod q), s = 1 .. q/2; for even q the last s has each pair twice, at half weight."""
    rows, q = scores.shape
    steps = q // 2
    f, p, n = (t.t().contiguous() for t in (scores, pos, neg))
    # With the labels repeated once, the labels j + s of all j are a window that needs no copy.
    f_k, p_k, n_k = (
        torch.cat((t, t)).as_strided((steps, q, rows), (rows, rows, 1), storage_offset=rows) for t in (f, p, n)
    )
    minus_t, reverse, weights, phi = (b[: steps * q * rows].view(steps, q, rows) for b in buffer.chunk(4))
    torch.sub(f_k, f, out=minus_t)
    torch.mul(p_k, n, out=reverse)
    torch.mul(p, n_k, out=weights).sub_(reverse)
    if q % 2 == 0:
        weights[-1] *= 0.5
        reverse[-1] *= 0.5
    constant = reverse.sum((0, 1))
    slope = reverse
    FILL[surrogate.name](minus_t, weights, phi, slope)
    torch.add(phi.sum((0, 1)), constant, alpha=2 * surrogate.at_zero, out=value)
    shifted = scores.new_zeros(2 * q, rows)
    for s in range(steps):
        shifted[s + 1 : s + 1 + q] += slope[s]
    by_scores.copy_((slope.sum(0) - shifted[:q] - shifted[q:]).t())


def hinge_indicator_sum(scores: Tensor, pos: Tensor, neg: Tensor, needs: Needs, tile: int) -> PairSums:
    """Return value and gradient of the hinge from indicators, in tiles of at most ``tile`` pairs."""
    rows, q = scores.shape
    tile_rows = min(rows, max(1, tile // (q * q)))
    buffer = workspace(2 * q * q * tile_rows, scores.dtype, scores.device)
    value, by_scores = scores.new_empty(rows), torch.empty_like(scores)
    for start in range(0, rows, tile_rows):
        part = slice(start, start + tile_rows)
        # The rows are the last dimension, so that the inner loop runs over rows and not over a few labels.
        f, p, n = (t[part].t().contiguous() for t in (scores, pos, neg))
        active, weighted = (half[: q * f.numel()].view(q, *f.shape) for half in buffer.chunk(2))
        torch.gt(f, (f - 1).unsqueeze(1), out=active)
        active.diagonal(0, 0, 1).zero_()
        as_positive = torch.mul(active, n, out=weighted).sum(1).mul_(p)
        slopes = active.mul_(p.unsqueeze(1)).sum(0).mul_(n).sub_(as_positive)
        by_scores[part] = slopes.t()
        # The slopes have the sum 0, so the scores can be centered, which reduces rounding errors.
        torch.sum(as_positive.addcmul_(f - f.mean(0), slopes), 0, out=value[part])
    return PairSums(value, by_scores if needs.by_scores else None, None, None)


_thread_memory = threading.local()


def workspace(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor of ``size`` values that the next call in this thread overwrites.

    New memory costs more than the arithmetic on it, because each page causes a page fault. The workspace is kept on
    a CPU only; the allocators of accelerators cache memory.
    """
    if device.type != "cpu":
        return torch.empty(size, dtype=dtype, device=device)
    buffers: dict[torch.dtype, Tensor] = _thread_memory.__dict__.setdefault("buffers", {})
    if dtype not in buffers or buffers[dtype].numel() < size:
        # An inference tensor could not be written to during training.
        with torch.inference_mode(False):
            buffers[dtype] = torch.empty(size, dtype=dtype, device="cpu")
    return buffers[dtype][:size]


def blocked_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the pair sum of each row for any phi, by differentiable operations.

    The backward pass recomputes the blocks, so memory stays O(q). The parameters of a learned phi get gradients.
    """
    rows, q = scores.shape
    size = max(1, _MAX_BLOCK_PAIRS // max(1, rows * q))
    if size >= q:
        return pair_block(scores, pos, neg, phi, 0, q)
    total = scores.new_zeros(rows)
    for start in range(0, q, size):
        part = checkpoint(pair_block, scores, pos, neg, phi, start, min(start + size, q), use_reentrant=False)
        assert isinstance(part, Tensor)
        total = total + part
    return total


def pair_block(
    scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor], start: int, stop: int
) -> Tensor:
    """Return the part of the sum with positive labels j in [start, stop)."""
    values = phi(scores[:, start:stop, None] - scores[:, None, :])
    labels = torch.arange(scores.shape[1], device=scores.device)
    # p_j n_j is 0 for 0/1 labels, but not for debiased labels, so j = k is excluded explicitly.
    values = values.masked_fill(labels[start:stop, None] == labels, 0)
    return (pos[:, start:stop] * (values * neg[:, None, :]).sum(-1)).sum(-1)
