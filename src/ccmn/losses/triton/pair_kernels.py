"""Triton kernels that load a batch, sum over labels or all pairs, and sum over sorted rows for the hinge.

The kernels load outputs and labels without conversion and debias labels in registers. The formulas for sorted rows are
those of :mod:`ccmn.losses.pairs.exact_sums`. With S_0(j) the sum of the n_k with f_k > f_j - 1, and R_0(j) the sum of
the p_k with f_j > f_k - 1,

    dL/df_j = g_j = n_j R_0(j) - p_j S_0(j),   L = sum_j p_j S_0(j) + f_j g_j - p_j n_j.

Rows are sorted in groups: ``scores``, ``order`` and ``sums`` belong to the rows from ``first`` on.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Kernels have no type hints, because Triton gives annotations its own meaning.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"


# Arguments for which Triton must not specialize a compiled kernel: ``Launcher`` caches kernels by dtypes and constants.
NUMBERS = ["columns", "label_rows", "pieces", "blocks", "first", "steps", "at_zero", "row_factor"]
TENSORS = [
    *("outputs", "labels", "scale", "offset", "grad", "out"),
    *("workspace", "records", "values", "widths", "orders", "starts", "matrices"),
    *("scores", "order", "sums", "parts", "gradient"),
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
def _phi(t, PHI: tl.constexpr):
    """Compute phi(t)."""
    if PHI == "hinge":
        value = tl.maximum(1.0 - t, 0.0)
    elif PHI == "sigmoid":
        value = tl.sigmoid(-t)
    elif PHI == "logistic":
        value = tl.maximum(-t, 0.0) + _log1p(tl.exp(-tl.abs(t)))
    else:
        value = (1.0 - t) * (1.0 - t)
    return value


@triton.jit
def _slopes(t, PHI: tl.constexpr):
    """Compute phi'(t) and phi'(-t)."""
    if PHI == "hinge":
        there, back = tl.where(t < 1.0, -1.0, 0.0), tl.where(t > -1.0, -1.0, 0.0)
    elif PHI == "sigmoid":
        value = tl.sigmoid(t)
        there = value * value - value
        back = there
    elif PHI == "logistic":
        back = -tl.sigmoid(t)
        there = -1.0 - back
    else:
        there, back = 2.0 * t - 2.0, -2.0 * t - 2.0
    return there, back


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
    else:
        value = _phi(t, PHI)
        there, back = _slopes(t, PHI)
    return value, there, back


@triton.jit
def column_values(
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
):
    """Compute the sum over the given columns j, and all k != j, of p_j n_k phi(f_j - f_k)."""
    f, p, n, _known = load_columns(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
    found = tl.zeros((column.shape[0], 32), tl.float32)
    for start in range(0, columns, 32):
        others = start + tl.arange(0, 32)
        f_k, _p_k, n_k, _known_k = load_columns(
            outputs, labels, scale, offset, row, label_row, others, columns, DUMMY, DEBIAS
        )
        found += n_k[None, :] * _phi(f[:, None] - f_k[None, :], PHI)
    return tl.sum(p * (tl.sum(found, 1) - n * _phi(f - f, PHI)))


@triton.jit
def column_slopes(
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
):
    """Compute sum_k p_j n_k phi'(f_j - f_k) - n_j p_k phi'(f_k - f_j) of the given columns j; k = j cancels."""
    f, p, n, _known = load_columns(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
    along = tl.zeros((column.shape[0], 32), tl.float32)
    against = tl.zeros((column.shape[0], 32), tl.float32)
    for start in range(0, columns, 32):
        others = start + tl.arange(0, 32)
        f_k, p_k, n_k, _known_k = load_columns(
            outputs, labels, scale, offset, row, label_row, others, columns, DUMMY, DEBIAS
        )
        there, back = _slopes(f[:, None] - f_k[None, :], PHI)
        along += n_k[None, :] * there
        against += p_k[None, :] * back
    return p * tl.sum(along, 1) - n * tl.sum(against, 1)


@triton.jit
def _column_values_and_slopes(
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
    BLOCK: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """Compute ``column_values`` and ``column_slopes`` in one pass over the pairs."""
    f, p, n, _known = load_columns(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
    found = tl.zeros((BLOCK, OTHERS), tl.float32)
    along = tl.zeros((BLOCK, OTHERS), tl.float32)
    against = tl.zeros((BLOCK, OTHERS), tl.float32)
    for start in range(0, columns, OTHERS):
        others = start + tl.arange(0, OTHERS)
        f_k, p_k, n_k, _known_k = load_columns(
            outputs, labels, scale, offset, row, label_row, others, columns, DUMMY, DEBIAS
        )
        value, there, back = _phi_and_slopes(f[:, None] - f_k[None, :], PHI)
        found += n_k[None, :] * value
        along += n_k[None, :] * there
        against += p_k[None, :] * back
    value = tl.sum(p * (tl.sum(found, 1) - n * _phi(f - f, PHI)))
    return value, p * tl.sum(along, 1) - n * tl.sum(against, 1)


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
    if GRADIENT:
        value, slope = _column_values_and_slopes(
            outputs, labels, scale, offset, row, label_row, column, columns, PHI, DUMMY, DEBIAS, BLOCK, OTHERS
        )
        tl.store(gradient + row * columns + column, slope * row_factor, column < columns)
    else:
        value = column_values(outputs, labels, scale, offset, row, label_row, column, columns, PHI, DUMMY, DEBIAS)
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
    tl.store(parts + row * tl.num_programs(1) + block, tl.sum(p * value + n * _phi(-f, PHI)) * row_factor)
    if GRADIENT:
        tl.store(gradient + row * columns + column, (p * there - n * back) * row_factor, column < columns)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def prefix_sums(
    outputs,
    labels,
    scale,
    offset,
    scores,
    order,
    sums,
    columns,
    label_rows,
    first,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    STRIP: tl.constexpr,
):
    """Store the prefix sums of p and n of every sorted row, strip by strip, with float64 totals."""
    here = tl.program_id(0).to(tl.int64)
    row = first + here
    positive = sums + here * columns
    negative = positive + tl.num_programs(0).to(tl.int64) * columns
    carried_p, carried_n = tl.sum(tl.zeros((1,), tl.float64)), tl.sum(tl.zeros((1,), tl.float64))
    for start in range(0, columns, STRIP):
        position = start + tl.arange(0, STRIP)
        column = tl.load(order + here * columns + position, position < columns, columns)
        _f, p, n, _known = load_columns(
            outputs, labels, scale, offset, row, row % label_rows, column, columns, DUMMY, DEBIAS
        )
        tl.store(positive + position, (tl.cumsum(p, 0) + carried_p).to(tl.float32), position < columns)
        tl.store(negative + position, (tl.cumsum(n, 0) + carried_n).to(tl.float32), position < columns)
        carried_p += tl.sum(p).to(tl.float64)
        carried_n += tl.sum(n).to(tl.float64)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def sorted_sums(
    outputs,
    labels,
    scale,
    offset,
    scores,
    order,
    sums,
    parts,
    gradient,
    columns,
    label_rows,
    first,
    steps,
    row_factor,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store the gradient and parts of the value from prefix sums.

    Two binary searches find the number of scores <= f_j - 1 and the number of k with f_k - 1 < f_j. Both use the same
    comparison, so that value and gradient agree at the kink.
    """
    here, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = first + here
    position = block * BLOCK + tl.arange(0, BLOCK)
    inside = position < columns
    positive = sums + here * columns
    negative = positive + tl.num_programs(0).to(tl.int64) * columns
    scores += here * columns
    column = tl.load(order + here * columns + position, inside, columns)
    f, p, n, known = load_columns(outputs, labels, scale, offset, row, row % label_rows, column, columns, DUMMY, DEBIAS)
    own = tl.load(scores + position, inside, 0.0)
    begin, begin_end = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.int32) + columns
    ended, ended_end = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.int32) + columns
    for _ in range(steps):
        middle = (begin + begin_end) // 2
        searching = begin < begin_end
        before = tl.load(scores + middle, searching, 0.0) <= own - 1.0
        begin, begin_end = (
            tl.where(searching & before, middle + 1, begin),
            tl.where(searching & (before == 0), middle, begin_end),
        )
        middle = (ended + ended_end) // 2
        searching = ended < ended_end
        before = tl.load(scores + middle, searching, 0.0) - 1.0 < own
        ended, ended_end = (
            tl.where(searching & before, middle + 1, ended),
            tl.where(searching & (before == 0), middle, ended_end),
        )
    S = tl.load(negative + columns - 1) - tl.load(negative + begin - 1, begin > 0, 0.0)
    R = tl.load(positive + ended - 1, ended > 0, 0.0)
    slope = n * R - p * S
    middle_score = tl.load(scores + columns // 2)
    center = tl.where(tl.abs(middle_score) < float("inf"), middle_score, 0.0)
    value = tl.where(known, p * (S - n) + (f - center) * slope, 0.0)
    tl.store(parts + row * tl.num_programs(1) + block, tl.sum(value) * row_factor)
    tl.store(gradient + row * columns + column, slope * row_factor, inside)
