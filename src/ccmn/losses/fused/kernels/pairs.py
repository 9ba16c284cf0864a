"""The pair sum and its gradient, pair by pair in registers: for few columns, the hinge, and rows of any width."""

# Triton reads annotations as its own, so that kernels have no types.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from ccmn.losses.fused.kernels.reading import NUMBERS, TENSORS, read


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
