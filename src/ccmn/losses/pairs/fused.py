"""The two passes of the Chebyshev moments as one kernel each, for CUDA devices with Triton.

Nothing of size (rows, q, M) is ever in memory: every T_a(x) lives in a register, by the recurrence
T_{a+1} = 2 x T_a - T_{a-1}. A pass reads the scores and weights once. Arithmetic is float64, as in the eager passes,
which remain the reference. This module is imported on a CUDA device only.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


class FusedPasses:
    """Moments and series of rows (n, q), as ``TiledPasses`` has them."""

    def __init__(self, scores: Tensor, pos: Tensor, neg: Tensor, centre: Tensor, width: Tensor) -> None:
        self.scores, self.pos, self.neg = (t.contiguous() for t in (scores, pos, neg))
        self.centre, self.width = centre.contiguous(), width
        self.blocks = triton.cdiv(scores.shape[1], _BLOCK)
        self.grid = (len(scores), self.blocks)

    def moments(self, order: int) -> Tensor:
        """P_a and N_a of every row: (n, M, 2)."""
        parts = self.scores.new_empty((len(self.scores), self.blocks, order, 2), dtype=torch.float64)
        _moments[self.grid](*self._inputs(), parts, self.scores.shape[1], order, BLOCK=_BLOCK)
        return parts.sum(1)

    def by_scores(self, along_pos: Tensor, along_neg: Tensor) -> Tensor:
        """p_j sum_a u_a T_a(x_j) + n_j sum_a v_a T_a(x_j) for series u, v of every row, (n, M)."""
        out = torch.empty_like(self.scores)
        series = torch.stack((along_pos, along_neg), 1)
        _series[self.grid](
            *self._inputs(), series, out, out, self.scores.shape[1], series.shape[2], WEIGHTED=True, BLOCK=_BLOCK
        )
        return out

    def values(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """sum_a u_a T_a(x_j) and sum_a v_a T_a(x_j)."""
        out, other = torch.empty_like(self.scores), torch.empty_like(self.scores)
        series = torch.stack((first, second), 1)
        _series[self.grid](
            *self._inputs(), series, out, other, self.scores.shape[1], series.shape[2], WEIGHTED=False, BLOCK=_BLOCK
        )
        return out, other

    def _inputs(self) -> tuple[Tensor, ...]:
        return self.scores, self.pos, self.neg, self.centre, self.width


@triton.jit  # type: ignore[untyped-decorator]  # kernels have no types: Triton reads annotations as its own
def _moments(  # type: ignore[no-untyped-def]
    scores, pos, neg, centre, width, out, q, order, BLOCK: tl.constexpr
):
    row, block = tl.program_id(0), tl.program_id(1)
    label = block * BLOCK + tl.arange(0, BLOCK)
    place, inside = row.to(tl.int64) * q + label, label < q
    x = (tl.load(scores + place, inside, 0.0).to(tl.float64) - tl.load(centre + row)) / tl.load(width)
    p = tl.load(pos + place, inside, 0.0).to(tl.float64)
    n = tl.load(neg + place, inside, 0.0).to(tl.float64)
    before, now = x, tl.full((BLOCK,), 1.0, tl.float64)  # T_{-1} = T_1
    out += (row.to(tl.int64) * tl.num_programs(1) + block) * order * 2
    for _ in range(order):
        tl.store(out, tl.sum(p * now))
        tl.store(out + 1, tl.sum(n * now))
        out += 2
        now, before = 2 * x * now - before, now


@triton.jit  # type: ignore[untyped-decorator]
def _series(  # type: ignore[no-untyped-def]
    scores,
    pos,
    neg,
    centre,
    width,
    series,
    out,
    other,
    q,
    order,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, block = tl.program_id(0), tl.program_id(1)
    label = block * BLOCK + tl.arange(0, BLOCK)
    place, inside = row.to(tl.int64) * q + label, label < q
    x = (tl.load(scores + place, inside, 0.0).to(tl.float64) - tl.load(centre + row)) / tl.load(width)
    before, now = x, tl.full((BLOCK,), 1.0, tl.float64)
    u, v = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
    series += row.to(tl.int64) * 2 * order
    for a in range(order):
        u += tl.load(series + a) * now
        v += tl.load(series + order + a) * now
        now, before = 2 * x * now - before, now
    if WEIGHTED:
        p = tl.load(pos + place, inside, 0.0).to(tl.float64)
        n = tl.load(neg + place, inside, 0.0).to(tl.float64)
        tl.store(out + place, p * u + n * v, inside)
    else:
        tl.store(out + place, u, inside)
        tl.store(other + place, v, inside)
