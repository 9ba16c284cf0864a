"""Triton kernels of the fused losses: sums over labels, over all pairs, and from Chebyshev moments.

The kernels load outputs and labels without conversion and debias labels in registers.

**Chebyshev moments.** The formulas are those of :mod:`ccmn.losses._fast.chebyshev`. The workspace of a row holds the
range of the scores of its pieces, the sums of its blocks, and their total. The record of a row holds the series of its
gradient. Arithmetic on labels is float32, in which the recurrence T_{a+1} = 2 x T_a - T_{a-1} is accurate enough
(errors of 1e-7 in the value and 3e-7 in the gradient, relative to their scales). Arithmetic on moments is float64.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Kernels have no type hints, because Triton gives annotations its own meaning.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

# Arguments for which Triton must not specialize a compiled kernel: ``Launch`` caches kernels by dtypes and constants.
NUMBERS = ["columns", "label_rows", "pieces", "blocks", "at_zero", "row_factor"]
TENSORS = [
    *("outputs", "labels", "scale", "offset", "grad", "out"),
    *("workspace", "records", "values", "widths", "orders", "starts", "matrices"),
    *("parts", "gradient"),
]


@triton.jit
def load_columns(
    outputs, labels, scale, offset, row, label_row, column, columns, DUMMY: tl.constexpr, DEBIAS: tl.constexpr
):
    """Load f, p and n of columns of a row (0 outside of the row and where a label is NaN), and a mask of the others.

    p = scale * y - offset and n = 1 - p; p = n = 1 for the dummy label.
    """
    inside = column < columns
    label = column - DUMMY
    known = inside & (label >= 0)
    f = tl.load(outputs + row * columns + column, inside, 0.0).to(tl.float32)
    y = tl.load(labels + label_row * (columns - DUMMY) + label, known, 0).to(tl.float32)
    if DEBIAS:
        y = y * tl.load(scale + label, known, 0.0) - tl.load(offset + label, known, 0.0)
    known = known & (y == y)
    p = tl.where(known, y, 0.0)
    n = tl.where(known, 1.0 - y, 0.0)
    if DUMMY:
        p = tl.where(label < 0, 1.0, p)
        n = tl.where(label < 0, 1.0, n)
        known = known | (label < 0)
    return tl.where(known, f, 0.0), p, n, known


@triton.jit
def _log1p(x):
    """Compute log(1 + x) for 0 <= x <= 1; without the series, a small x would be lost in 1 + x."""
    return tl.where(x < 1e-3, x - 0.5 * x * x, tl.log(1.0 + x))


@triton.jit
def _phi_and_slopes(t, PHI: tl.constexpr):
    """Compute phi(t), phi'(t) and phi'(-t)."""
    if PHI == "sigmoid":
        value = tl.sigmoid(-t)
        there = value * value - value
        back = there
    elif PHI == "logistic":
        small = tl.exp(-tl.abs(t))
        value = tl.maximum(-t, 0.0) + _log1p(small)
        back = -tl.where(t >= 0.0, 1.0, small) / (1.0 + small)
        there = -1.0 - back
    elif PHI == "hinge":
        value = tl.maximum(1.0 - t, 0.0)
        there, back = tl.where(t < 1.0, -1.0, 0.0), tl.where(t > -1.0, -1.0, 0.0)
    else:
        value = (1.0 - t) * (1.0 - t)
        there, back = 2.0 * t - 2.0, -2.0 * t - 2.0
    return value, there, back


@triton.jit
def _column_sums(
    outputs,
    labels,
    scale,
    offset,
    row,
    label_row,
    column,
    columns,
    PHI: tl.constexpr,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    GRADIENT: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """Compute the sum over the given columns j, and all k != j, of p_j n_k phi(f_j - f_k), and its derivatives.

    The derivatives are sum_k p_j n_k phi'(f_j - f_k) - n_j p_k phi'(f_k - f_j), where k = j cancels; only if GRADIENT.
    """
    f, p, n, _known = load_columns(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
    found = tl.zeros((column.shape[0], OTHERS), tl.float32)
    along = tl.zeros((column.shape[0], OTHERS), tl.float32)
    against = tl.zeros((column.shape[0], OTHERS), tl.float32)
    for start in range(0, columns, OTHERS):
        others = start + tl.arange(0, OTHERS)
        f_k, p_k, n_k, _known_k = load_columns(
            outputs, labels, scale, offset, row, label_row, others, columns, DUMMY, DEBIAS
        )
        value, there, back = _phi_and_slopes(f[:, None] - f_k[None, :], PHI)
        found += n_k[None, :] * value
        if GRADIENT:
            along += n_k[None, :] * there
            against += p_k[None, :] * back
    at_zero, _there, _back = _phi_and_slopes(f - f, PHI)
    return tl.sum(p * (tl.sum(found, 1) - n * at_zero)), p * tl.sum(along, 1) - n * tl.sum(against, 1)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def pair_sums(
    outputs,
    labels,
    scale,
    offset,
    parts,
    gradient,
    columns,
    label_rows,
    row_factor,
    PHI: tl.constexpr,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """Store the pair sum of every block of every row, and its gradient."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    label_row = row % label_rows
    column = block * BLOCK + tl.arange(0, BLOCK)
    value, slope = _column_sums(
        outputs, labels, scale, offset, row, label_row, column, columns, PHI, DUMMY, DEBIAS, GRADIENT, OTHERS
    )
    if GRADIENT:
        tl.store(gradient + row * columns + column, slope * row_factor, column < columns)
    tl.store(parts + row * tl.num_programs(1) + block, value * row_factor)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def label_sums(
    outputs,
    labels,
    scale,
    offset,
    parts,
    gradient,
    columns,
    label_rows,
    row_factor,
    PHI: tl.constexpr,
    DEBIAS: tl.constexpr,
    GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store sum_j p_j phi(f_j) + n_j phi(-f_j) of every block of every row, and its gradient."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    f, p, n, _known = load_columns(outputs, labels, scale, offset, row, row % label_rows, column, columns, 0, DEBIAS)
    value, there, back = _phi_and_slopes(f, PHI)
    opposite, _there, _back = _phi_and_slopes(-f, PHI)
    tl.store(parts + row * tl.num_programs(1) + block, tl.sum(p * value + n * opposite) * row_factor)
    if GRADIENT:
        tl.store(gradient + row * columns + column, (p * there - n * back) * row_factor, column < columns)


@triton.jit
def _row_workspace(workspace, row, pieces, blocks, SLOT: tl.constexpr):
    """Return pointers to the ranges of the pieces of a row and to the sums of its blocks."""
    ranges = workspace + row * (2 * pieces + (blocks + 1) * SLOT)
    return ranges, ranges + 2 * pieces


@triton.jit
def _range_of_columns(
    outputs, labels, row, label_row, column, columns, DUMMY: tl.constexpr, MAY_HAVE_NAN: tl.constexpr
):
    """Compute the lowest and highest score of columns of a row, without labels that are NaN."""
    counts = column < columns
    f = tl.load(outputs + row * columns + column, counts, 0.0).to(tl.float32)
    if MAY_HAVE_NAN:
        label = column - DUMMY
        y = tl.load(labels + label_row * (columns - DUMMY) + label, counts & (label >= 0), 0.0)
        counts = counts & (y == y)
    return tl.min(tl.where(counts, f, float("inf"))), tl.max(tl.where(counts, f, float("-inf")))


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def row_ranges(
    outputs,
    labels,
    workspace,
    columns,
    label_rows,
    blocks,
    SLOT: tl.constexpr,
    DUMMY: tl.constexpr,
    MAY_HAVE_NAN: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Store the range of the scores of every piece of every row."""
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = piece * PIECE + tl.arange(0, PIECE)
    low, high = _range_of_columns(outputs, labels, row, row % label_rows, column, columns, DUMMY, MAY_HAVE_NAN)
    ranges, _ = _row_workspace(workspace, row, tl.num_programs(1), blocks, SLOT)
    tl.store(ranges + 2 * piece, low)
    tl.store(ranges + 2 * piece + 1, high)


@triton.jit
def _range_of_row(ranges, pieces, MAX_PIECES: tl.constexpr):
    """Compute the lowest and highest score of a row from the ranges of its pieces."""
    piece = tl.arange(0, MAX_PIECES)
    low = tl.min(tl.load(ranges + 2 * piece, piece < pieces, float("inf")))
    high = tl.max(tl.load(ranges + 2 * piece + 1, piece < pieces, float("-inf")))
    return low, high


@triton.jit
def _center_and_level(low, high, widths, LEVELS: tl.constexpr):
    """Compute the center of a row and the first level that is wide enough for it (LEVELS if none is)."""
    center = low + (high - low) * 0.5
    # Computed from the rounded center, so that |x| <= 1.
    half_width = tl.maximum(high - center, center - low)
    level = tl.sum((tl.load(widths + tl.arange(0, LEVELS)) < half_width).to(tl.int32))
    return center, level


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def moments(
    outputs,
    labels,
    scale,
    offset,
    widths,
    orders,
    workspace,
    columns,
    label_rows,
    pieces,
    SLOT: tl.constexpr,
    MAX_PIECES: tl.constexpr,
    LEVELS: tl.constexpr,
    PHI: tl.constexpr,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
    SINGLE_PIECE: tl.constexpr,
    MAY_HAVE_NAN: tl.constexpr,
):
    """Store sum_j p_j n_j, then P_0, N_0, P_1, N_1, ... of every block; its pair sum if the row is too wide."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    label_row = row % label_rows
    f, p, n, known = load_columns(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
    ranges, sums = _row_workspace(workspace, row, pieces, tl.num_programs(1), SLOT)
    sums += block * SLOT
    if SINGLE_PIECE:  # for short rows this is faster than another kernel launch
        low, high = float("inf"), float("-inf")
        for start in range(0, columns, BLOCK):
            some_low, some_high = _range_of_columns(
                outputs, labels, row, label_row, start + tl.arange(0, BLOCK), columns, DUMMY, MAY_HAVE_NAN
            )
            low, high = tl.minimum(low, some_low), tl.maximum(high, some_high)
        if block == 0:
            tl.store(ranges, low)
            tl.store(ranges + 1, high)
    else:
        low, high = _range_of_row(ranges, pieces, MAX_PIECES)
    center, level = _center_and_level(low, high, widths, LEVELS)
    if level < LEVELS:
        order = tl.load(orders + level)
        x = tl.where(known, (f - center) / tl.load(widths + level), 0.0)
        two_x, odd, even = 2.0 * x, x, tl.full((BLOCK,), 1.0, tl.float32)  # T_{-1} = T_1
        tl.store(sums, tl.sum(p * n))
        sums += 1
        for _ in range(0, order, 2):  # two terms per step avoid copies between registers
            tl.store(sums, tl.sum(p * even))
            tl.store(sums + 1, tl.sum(n * even))
            odd = two_x * even - odd
            tl.store(sums + 2, tl.sum(p * odd))
            tl.store(sums + 3, tl.sum(n * odd))
            even = two_x * odd - even
            sums += 4
    else:
        found = 0.0
        for first in range(block * BLOCK, tl.minimum((block + 1) * BLOCK, columns), INNER):
            some = first + tl.arange(0, INNER)
            value, _slope = _column_sums(
                outputs, labels, scale, offset, row, label_row, some, columns, PHI, DUMMY, DEBIAS, 0, 32
            )
            found += value
        tl.store(sums, found)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def combine(
    widths,
    orders,
    starts,
    matrices,
    workspace,
    records,
    values,
    blocks,
    pieces,
    at_zero,
    row_factor,
    SLOT: tl.constexpr,
    RECORD: tl.constexpr,
    HEADER: tl.constexpr,
    MAX_PIECES: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Add the sums of the blocks of a row; store P C N and the series of the gradient, u_0, v_0, u_1, v_1, ..."""
    row = tl.program_id(0).to(tl.int64)
    ranges, sums = _row_workspace(workspace, row, pieces, blocks, SLOT)
    low, high = _range_of_row(ranges, pieces, MAX_PIECES)
    center, level = _center_and_level(low, high, widths, LEVELS)
    record = records + row * RECORD
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
        tl.debug_barrier()  # the values stored by other threads are read below
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
            tl.store(record + HEADER + 2 * column, u.to(tl.float32), column < order)
            tl.store(record + HEADER + 2 * column + 1, v.to(tl.float32), column < order)
        tl.store(record, center)
        tl.store(record + 1, 1.0 / tl.load(widths + level))
        tl.store(record + 2, order.to(tl.float32))
        tl.store(values + row, (value * row_factor).to(tl.float32))
    else:
        pairs = tl.zeros((64,), tl.float64)
        for ahead in range(0, blocks, 64):
            pairs += tl.load(sums + (ahead + here) * SLOT, ahead + here < blocks, 0.0).to(tl.float64)
        tl.store(record + 2, -1.0)
        tl.store(values + row, (tl.sum(pairs) * row_factor).to(tl.float32))


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def series_gradient(
    outputs,
    labels,
    scale,
    offset,
    records,
    grad,
    out,
    columns,
    label_rows,
    row_factor,
    RECORD: tl.constexpr,
    HEADER: tl.constexpr,
    PHI: tl.constexpr,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    BY_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
):
    """Store (p_j sum_a u_a T_a(x_j) + n_j sum_a v_a T_a(x_j)) times the upstream gradient of the row."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    label_row = row % label_rows
    factor = tl.load(grad + row * BY_ROW) * row_factor
    record = records + row * RECORD
    order = tl.load(record + 2).to(tl.int32)
    out += row * columns
    if order >= 0:
        column = block * BLOCK + tl.arange(0, BLOCK)
        f, p, n, known = load_columns(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
        x = tl.where(known, (f - tl.load(record)) * tl.load(record + 1), 0.0)
        two_x, odd, even = 2.0 * x, x, tl.full((BLOCK,), 1.0, tl.float32)
        u, v = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
        record += HEADER
        for _ in range(0, order, 2):
            u += tl.load(record) * even
            v += tl.load(record + 1) * even
            odd = two_x * even - odd
            u += tl.load(record + 2) * odd
            v += tl.load(record + 3) * odd
            even = two_x * odd - even
            record += 4
        tl.store(out + column, ((p * u + n * v) * factor).to(out.dtype.element_ty), column < columns)
    else:
        for start in range(block * BLOCK, tl.minimum((block + 1) * BLOCK, columns), INNER):
            some = start + tl.arange(0, INNER)
            _value, found = _column_sums(
                outputs, labels, scale, offset, row, label_row, some, columns, PHI, DUMMY, DEBIAS, 1, 32
            )
            tl.store(out + some, (found * factor).to(out.dtype.element_ty), some < columns)
