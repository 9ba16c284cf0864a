"""The pair sum of the hinge on sorted rows: see :mod:`ccmn.losses.pairs.sorted` for the formulas.

With S_0(j) the sum of the n_k that count for j, f_k > f_j - 1, and R_0(j) that of the p_k for which j counts,

    dL/df_j = g_j = n_j R_0(j) - p_j S_0(j),   L = sum_j p_j S_0(j) + f_j g_j - p_j n_j.

Rows are taken some at a time: ``scores``, ``order`` and ``sums`` are those of the rows from ``first`` on.
"""

# Triton reads annotations as its own, so that kernels have no types.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from ccmn.losses.fused.kernels.reading import NUMBERS, TENSORS, read


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
