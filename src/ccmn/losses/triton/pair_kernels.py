"""How kernels read a batch: outputs and labels as they were given, debiased in registers.

The pair sum and its gradient, pair by pair in registers: for few columns, the hinge, and rows of any width.

The pair sum of the hinge on sorted rows: see :mod:`ccmn.losses.pairs.sorted_sums` for the formulas.

With S_0(j) the sum of the n_k that count for j, f_k > f_j - 1, and R_0(j) that of the p_k for which j counts,

    dL/df_j = g_j = n_j R_0(j) - p_j S_0(j),   L = sum_j p_j S_0(j) + f_j g_j - p_j n_j.

Rows are taken some at a time: ``scores``, ``order`` and ``sums`` are those of the rows from ``first`` on.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Triton reads annotations as its own, so that kernels have no types.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"


# What a compiled kernel shall not depend on: it serves all sizes and places, and launch.py keeps it by types alone.
NUMBERS = ["columns", "label_rows", "pieces", "blocks", "first", "steps", "at_zero", "share"]
TENSORS = [
    *("outputs", "labels", "scale", "offset", "grad", "out"),
    *("room", "lines", "values", "widths", "orders", "starts", "matrices"),
    *("scores", "order", "sums", "parts", "gradient"),
]


@triton.jit
def read(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY: tl.constexpr, DEBIAS: tl.constexpr):
    """f, p and n of some columns of a row, all 0 outside of it and where the label is missing; and where it is not.

    p = scale y - offset, n = 1 - p; p = n = 1 for the dummy label.
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


# Triton reads annotations as its own, so that kernels have no types.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"


@triton.jit
def _phi(t, PHI: tl.constexpr):
    """phi(t)."""
    if PHI == "hinge":
        value = tl.maximum(1.0 - t, 0.0)
    elif PHI == "sigmoid":
        value = tl.sigmoid(-t)
    elif PHI == "logistic":
        value = tl.maximum(-t, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(t)))
    else:
        value = (1.0 - t) * (1.0 - t)
    return value


@triton.jit
def _slopes(t, PHI: tl.constexpr):
    """phi'(t) and phi'(-t)."""
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
def some_pair_values(
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
    """The sum over some columns j, and all k != j, of p_j n_k phi(f_j - f_k)."""
    f, p, n, _known = read(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
    found = tl.zeros((column.shape[0], 32), tl.float32)
    for start in range(0, columns, 32):
        others = start + tl.arange(0, 32)
        f_k, _p_k, n_k, _known_k = read(outputs, labels, scale, offset, row, label_row, others, columns, DUMMY, DEBIAS)
        found += n_k[None, :] * _phi(f[:, None] - f_k[None, :], PHI)
    return tl.sum(p * (tl.sum(found, 1) - n * _phi(f - f, PHI)))


@triton.jit
def some_pair_slopes(
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
    """sum_k p_j n_k phi'(f_j - f_k) - n_j p_k phi'(f_k - f_j) of some columns j; k = j is in both and cancels."""
    f, p, n, _known = read(outputs, labels, scale, offset, row, label_row, column, columns, DUMMY, DEBIAS)
    along = tl.zeros((column.shape[0], 32), tl.float32)
    against = tl.zeros((column.shape[0], 32), tl.float32)
    for start in range(0, columns, 32):
        others = start + tl.arange(0, 32)
        f_k, p_k, n_k, _known_k = read(outputs, labels, scale, offset, row, label_row, others, columns, DUMMY, DEBIAS)
        there, back = _slopes(f[:, None] - f_k[None, :], PHI)
        along += n_k[None, :] * there
        against += p_k[None, :] * back
    return p * tl.sum(along, 1) - n * tl.sum(against, 1)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def pair_values(
    outputs,
    labels,
    scale,
    offset,
    out,
    columns,
    label_rows,
    PHI: tl.constexpr,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The pair sum of every block of every row, pair by pair."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    found = some_pair_values(outputs, labels, scale, offset, row, row % label_rows, column, columns, PHI, DUMMY, DEBIAS)
    tl.store(out + row * tl.num_programs(1) + block, found)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def pair_gradient(
    outputs,
    labels,
    scale,
    offset,
    grad,
    out,
    columns,
    label_rows,
    share,
    PHI: tl.constexpr,
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    BY_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Its gradient, pair by pair."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    found = some_pair_slopes(outputs, labels, scale, offset, row, row % label_rows, column, columns, PHI, DUMMY, DEBIAS)
    found *= tl.load(grad + row * BY_ROW) * share
    tl.store(out + row * columns + column, found.to(out.dtype.element_ty), column < columns)


# Triton reads annotations as its own, so that kernels have no types.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def prefixes(
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
    """Sums of the first p and of the first n of every sorted row, strip by strip, carried on in float64."""
    here = tl.program_id(0).to(tl.int64)
    row = first + here
    positive = sums + here * columns
    negative = positive + tl.num_programs(0).to(tl.int64) * columns
    carried_p, carried_n = tl.sum(tl.zeros((1,), tl.float64)), tl.sum(tl.zeros((1,), tl.float64))
    for start in range(0, columns, STRIP):
        place = start + tl.arange(0, STRIP)
        column = tl.load(order + here * columns + place, place < columns, columns)
        _f, p, n, _known = read(outputs, labels, scale, offset, row, row % label_rows, column, columns, DUMMY, DEBIAS)
        tl.store(positive + place, (tl.cumsum(p, 0) + carried_p).to(tl.float32), place < columns)
        tl.store(negative + place, (tl.cumsum(n, 0) + carried_n).to(tl.float32), place < columns)
        carried_p += tl.sum(p).to(tl.float64)
        carried_n += tl.sum(n).to(tl.float64)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def places(
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
    DUMMY: tl.constexpr,
    DEBIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """By bisection, how many scores are <= f_j - 1, and of how many f_k - 1 < f_j: the same comparison, both ways."""
    here, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = first + here
    place = block * BLOCK + tl.arange(0, BLOCK)
    inside = place < columns
    positive = sums + here * columns
    negative = positive + tl.num_programs(0).to(tl.int64) * columns
    scores += here * columns
    column = tl.load(order + here * columns + place, inside, columns)
    f, p, n, known = read(outputs, labels, scale, offset, row, row % label_rows, column, columns, DUMMY, DEBIAS)
    mine = tl.load(scores + place, inside, 0.0)
    begin, begin_end = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.int32) + columns
    ended, ended_end = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.int32) + columns
    for _ in range(steps):
        middle = (begin + begin_end) // 2
        open_ = begin < begin_end
        before = tl.load(scores + middle, open_, 0.0) <= mine - 1.0
        begin, begin_end = (
            tl.where(open_ & before, middle + 1, begin),
            tl.where(open_ & (before == 0), middle, begin_end),
        )
        middle = (ended + ended_end) // 2
        open_ = ended < ended_end
        before = tl.load(scores + middle, open_, 0.0) - 1.0 < mine
        ended, ended_end = (
            tl.where(open_ & before, middle + 1, ended),
            tl.where(open_ & (before == 0), middle, ended_end),
        )
    S = tl.load(negative + columns - 1) - tl.load(negative + begin - 1, begin > 0, 0.0)
    R = tl.load(positive + ended - 1, ended > 0, 0.0)
    slope = n * R - p * S
    middle_score = tl.load(scores + columns // 2)
    centre = tl.where(tl.abs(middle_score) < float("inf"), middle_score, 0.0)
    value = tl.where(known, p * (S - n) + (f - centre) * slope, 0.0)
    tl.store(parts + row * tl.num_programs(1) + block, tl.sum(value))
    tl.store(gradient + row * columns + column, slope, inside)
