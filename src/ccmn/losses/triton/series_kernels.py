"""The pair sum and its gradient through Chebyshev moments: see :mod:`ccmn.losses.pairs.chebyshev` for the formulas.

Room is one piece of memory for every row: the lowest and highest score of its pieces, the sums of its blocks, and their
total. Arithmetic on labels is float32, in which the recurrence T_{a+1} = 2 x T_a - T_{a-1} loses no digits that count
(value 1e-7, gradient 3e-7 of their scales); what is done once a row is float64.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ccmn.losses.triton.pair_kernels import NUMBERS, TENSORS, read, some_pair_slopes, some_pair_values

# Triton reads annotations as its own, so that kernels have no types.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"


HEAD = 4
"""What stands before the series in a row's line: centre, 1 / w, order (-1: no series is long enough), nothing."""


@triton.jit
def _room(room, row, pieces, blocks, SLOT: tl.constexpr):
    """Where the ends of a row begin, and where the sums of its blocks."""
    ends = room + row * (2 * pieces + (blocks + 1) * SLOT)
    return ends, ends + 2 * pieces


@triton.jit
def _ends(
    outputs,
    labels,
    row,
    label_row,
    column,
    columns,
    DUMMY: tl.constexpr,
    MAY_MISS: tl.constexpr,
):
    """Lowest and highest score of some columns of a row, over the labels that are not missing."""
    counts = column < columns
    f = tl.load(outputs + row * columns + column, counts, 0.0).to(tl.float32)
    if MAY_MISS:
        label = column - DUMMY
        y = tl.load(labels + label_row * (columns - DUMMY) + label, counts & (label >= 0), 0.0)
        counts = counts & (y == y)
    return tl.min(tl.where(counts, f, float("inf"))), tl.max(tl.where(counts, f, float("-inf")))


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def extents(
    outputs,
    labels,
    room,
    columns,
    label_rows,
    blocks,
    SLOT: tl.constexpr,
    DUMMY: tl.constexpr,
    MAY_MISS: tl.constexpr,
    PIECE: tl.constexpr,
):
    """The ends of every piece of every row."""
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = piece * PIECE + tl.arange(0, PIECE)
    low, high = _ends(outputs, labels, row, row % label_rows, column, columns, DUMMY, MAY_MISS)
    ends, _ = _room(room, row, tl.num_programs(1), blocks, SLOT)
    tl.store(ends + 2 * piece, low)
    tl.store(ends + 2 * piece + 1, high)


@triton.jit
def _stored_ends(ends, pieces, PIECES: tl.constexpr):
    """Lowest and highest score of a row from those of its pieces."""
    piece = tl.arange(0, PIECES)
    low = tl.min(tl.load(ends + 2 * piece, piece < pieces, float("inf")))
    high = tl.max(tl.load(ends + 2 * piece + 1, piece < pieces, float("-inf")))
    return low, high


@triton.jit
def _frame(low, high, widths, LEVELS: tl.constexpr):
    """The centre of a row, and the first level of the ladder that is wide enough for it (LEVELS: none is)."""
    centre = low + (high - low) * 0.5
    # From the centre as it was rounded: no |x| is above 1.
    half_width = tl.maximum(high - centre, centre - low)
    level = tl.sum((tl.load(widths + tl.arange(0, LEVELS)) < half_width).to(tl.int32))
    return centre, level


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def moments(
    outputs,
    labels,
    scale,
    offset,
    widths,
    orders,
    room,
    columns,
    label_rows,
    pieces,
    SLOT: tl.constexpr,
    PIECES: tl.constexpr,
    LEVELS: tl.constexpr,
    PHI: tl.constexpr,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
    ALONE: tl.constexpr,
    MAY_MISS: tl.constexpr,
):
    """Of every block of a row: sum_j p_j n_j, then P_0, N_0, P_1, N_1 ...; its pair sum where the row is too wide."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    label_row = row % label_rows
    f, p, n, known = read(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
    ends, sums = _room(room, row, pieces, tl.num_programs(1), SLOT)
    sums += block * SLOT
    if ALONE:  # in short rows every program looks for the ends itself: that is quicker than one kernel more
        low, high = float("inf"), float("-inf")
        for start in range(0, columns, BLOCK):
            some_low, some_high = _ends(
                outputs, labels, row, label_row, start + tl.arange(0, BLOCK), columns, DUMMY, MAY_MISS
            )
            low, high = tl.minimum(low, some_low), tl.maximum(high, some_high)
        if block == 0:
            tl.store(ends, low)
            tl.store(ends + 1, high)
    else:
        low, high = _stored_ends(ends, pieces, PIECES)
    centre, level = _frame(low, high, widths, LEVELS)
    if level < LEVELS:
        order = tl.load(orders + level)
        x = tl.where(known, (f - centre) / tl.load(widths + level), 0.0)
        twice, odd, even = 2.0 * x, x, tl.full((BLOCK,), 1.0, tl.float32)  # T_{-1} = T_1
        tl.store(sums, tl.sum(p * n))
        sums += 1
        for _ in range(0, order, 2):  # two at a time: no value is moved from one register to another
            tl.store(sums, tl.sum(p * even))
            tl.store(sums + 1, tl.sum(n * even))
            odd = twice * even - odd
            tl.store(sums + 2, tl.sum(p * odd))
            tl.store(sums + 3, tl.sum(n * odd))
            even = twice * odd - even
            sums += 4
    else:
        found = 0.0
        for first in range(block * BLOCK, tl.minimum((block + 1) * BLOCK, columns), INNER):
            some = first + tl.arange(0, INNER)
            found += some_pair_values(outputs, labels, scale, offset, row, label_row, some, columns, PHI, DUMMY, DEBIAS)
        tl.store(sums, found)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def combine(
    widths,
    orders,
    starts,
    matrices,
    room,
    lines,
    values,
    blocks,
    pieces,
    at_zero,
    SLOT: tl.constexpr,
    LINE: tl.constexpr,
    HEAD: tl.constexpr,
    PIECES: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """The sums of a row's blocks added up; P C N; and its line: the series of its gradient, u_0, v_0, u_1, v_1 ..."""
    row = tl.program_id(0).to(tl.int64)
    ends, sums = _room(room, row, pieces, blocks, SLOT)
    low, high = _stored_ends(ends, pieces, PIECES)
    centre, level = _frame(low, high, widths, LEVELS)
    line = lines + row * LINE
    here, few = tl.arange(0, 64), tl.arange(0, 32)
    if level < LEVELS:
        order = tl.load(orders + level)
        total = sums + blocks * SLOT
        for first in range(0, 2 * order + 1, 64):
            slot = first + here
            added = tl.zeros((64,), tl.float64)
            for some in range(0, blocks, BLOCKS):
                block = some + tl.arange(0, BLOCKS)
                inside = (block[:, None] < blocks) & (slot[None, :] < 2 * order + 1)
                part = tl.load(sums + block[:, None] * SLOT + slot[None, :], inside, 0.0)
                added += tl.sum(part.to(tl.float64), 0)
            tl.store(total + slot, added.to(tl.float32), slot < 2 * order + 1)
        tl.debug_barrier()  # what other threads of this program have stored is read below
        P, N = total + 1, total + 2
        C = matrices + tl.load(starts + level) * 3
        U, V = C + order * order, C + 2 * order * order
        value = -at_zero * tl.load(total).to(tl.float64)
        for first in range(0, order, 64):
            column = first + here
            along, u, v = tl.zeros((64,), tl.float64), tl.zeros((64,), tl.float64), tl.zeros((64,), tl.float64)
            for some in range(0, order, 32):
                a = some + few
                inside = (a[:, None] < order) & (column[None, :] < order)
                place = a[:, None] * order + column[None, :]
                P_a = tl.load(P + 2 * a, a < order, 0.0).to(tl.float64)
                N_a = tl.load(N + 2 * a, a < order, 0.0).to(tl.float64)
                along += tl.sum(P_a[:, None] * tl.load(C + place, inside, 0.0), 0)
                u += tl.sum(N_a[:, None] * tl.load(U + place, inside, 0.0), 0)
                v += tl.sum(P_a[:, None] * tl.load(V + place, inside, 0.0), 0)
            value += tl.sum(along * tl.load(N + 2 * column, column < order, 0.0).to(tl.float64))
            tl.store(line + HEAD + 2 * column, u.to(tl.float32), column < order)
            tl.store(line + HEAD + 2 * column + 1, v.to(tl.float32), column < order)
        tl.store(line, centre)
        tl.store(line + 1, 1.0 / tl.load(widths + level))
        tl.store(line + 2, order.to(tl.float32))
        tl.store(values + row, value.to(tl.float32))
    else:
        pairs = tl.zeros((64,), tl.float64)
        for ahead in range(0, blocks, 64):
            pairs += tl.load(sums + (ahead + here) * SLOT, ahead + here < blocks, 0.0).to(tl.float64)
        tl.store(line + 2, -1.0)
        tl.store(values + row, tl.sum(pairs).to(tl.float32))


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def gradient(
    outputs,
    labels,
    scale,
    offset,
    lines,
    grad,
    out,
    columns,
    label_rows,
    share,
    LINE: tl.constexpr,
    HEAD: tl.constexpr,
    PHI: tl.constexpr,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    BY_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
):
    """(p_j sum_a u_a T_a(x_j) + n_j sum_a v_a T_a(x_j)) times what comes from behind the row's value."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    label_row = row % label_rows
    factor = tl.load(grad + row * BY_ROW) * share
    line = lines + row * LINE
    order = tl.load(line + 2).to(tl.int32)
    out += row * columns
    if order >= 0:
        column = block * BLOCK + tl.arange(0, BLOCK)
        f, p, n, known = read(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
        x = tl.where(known, (f - tl.load(line)) * tl.load(line + 1), 0.0)
        twice, odd, even = 2.0 * x, x, tl.full((BLOCK,), 1.0, tl.float32)
        u, v = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
        line += HEAD
        for _ in range(0, order, 2):
            u += tl.load(line) * even
            v += tl.load(line + 1) * even
            odd = twice * even - odd
            u += tl.load(line + 2) * odd
            v += tl.load(line + 3) * odd
            even = twice * odd - even
            line += 4
        tl.store(out + column, ((p * u + n * v) * factor).to(out.dtype.element_ty), column < columns)
    else:
        for start in range(block * BLOCK, tl.minimum((block + 1) * BLOCK, columns), INNER):
            some = start + tl.arange(0, INNER)
            found = some_pair_slopes(outputs, labels, scale, offset, row, label_row, some, columns, PHI, DUMMY, DEBIAS)
            tl.store(out + some, (found * factor).to(out.dtype.element_ty), some < columns)
