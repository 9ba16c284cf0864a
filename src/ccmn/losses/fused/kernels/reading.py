"""How kernels read a batch: outputs and labels as they were given, debiased in registers."""

# Triton reads annotations as its own, so that kernels have no types.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

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
