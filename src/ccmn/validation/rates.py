"""Noise rates, and what else noise is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ccmn.validation.arrays import FloatArray
from ccmn.validation.names import name_some


def check_rates(rates: ArrayLike, argument: str, n_labels: int | None) -> FloatArray:
    """One rate per label in [0, 1]; a single number is repeated for ``n_labels``.

    The half-open end (a rate below 1) follows from ``check_rate_sums``.
    """
    try:
        array = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{argument} must be a number or a list of numbers, one rate per label; got {rates!r}"
        ) from None
    if array.ndim == 0:
        if n_labels is None:
            raise ValueError(
                f"{argument} is the single number {array}; say for how many labels with n_labels=q, "
                "or give one rate per label"
            )
        array = np.full(n_labels, float(array))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{argument} must have one rate per label, shape (q,); got shape {array.shape}")
    if n_labels is not None and array.size != n_labels:
        raise ValueError(f"{argument} has {array.size} rates, but there are {n_labels} labels")
    if np.isnan(array).any():
        where = name_some(np.flatnonzero(np.isnan(array)), None, array.size)
        raise ValueError(f"{argument} is NaN for {where}: every label needs a rate (0 where it is never wrong)")
    if ((array < 0) | (array > 1)).any():
        wrong = np.flatnonzero((array < 0) | (array > 1))
        raise ValueError(
            f"{argument} holds probabilities, between 0 and 1; got {array[wrong[0]]:g} "
            f"for {name_some(wrong, None, array.size)}"
        )
    return array


def check_rate_sums(rho_pos: FloatArray, rho_neg: FloatArray, names: Sequence[str] | None) -> None:
    """The paper's condition rho_pos + rho_neg < 1, label by label."""
    # 1 - (0.3 + 0.7) is not 0 in floating point; a signal this weak cannot be inverted either way.
    wrong = np.flatnonzero(1.0 - rho_pos - rho_neg < 1e-9)
    if wrong.size:
        j = wrong[0]
        raise ValueError(
            f"rho_pos + rho_neg must be below 1 for every label; got {rho_pos[j]:g} + {rho_neg[j]:g} for "
            f"{name_some(wrong, names, rho_pos.size)}. At 1 the noisy label carries nothing about the true one: "
            "lower a rate or drop the label."
        )


def check_transition(T: ArrayLike) -> FloatArray:
    """A square, invertible matrix of probabilities whose rows sum to 1."""
    try:
        matrix = np.array(T, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"T must be a square matrix of probabilities; got {T!r}") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"T must be a square matrix (true class x noisy class); got shape {matrix.shape}")
    if not ((matrix >= 0) & (matrix <= 1)).all():
        raise ValueError("T holds probabilities: every entry must be between 0 and 1")
    sums = matrix.sum(1)
    if not np.allclose(sums, 1, atol=1e-6):
        j = int(np.abs(sums - 1).argmax())
        columns = " Its columns do: pass T.T." if np.allclose(matrix.sum(0), 1, atol=1e-6) else ""
        raise ValueError(f"the rows of T (true classes) must sum to 1; row {j} sums to {sums[j]:g}.{columns}")
    if np.linalg.cond(matrix) > 1e8:
        raise ValueError(
            "T is singular (or nearly): two true classes cannot be told apart by their noisy labels. "
            "Merge them, or lower the rates."
        )
    matrix.flags.writeable = False
    return matrix


def check_joint(joint: Any) -> FloatArray:
    """Counts or shares (q, 2, 2), every true class there."""
    counts = np.asarray(joint, dtype=np.float64)
    if counts.ndim != 3 or counts.shape[1:] != (2, 2) or not counts.size:
        raise ValueError(f"a confident joint must have shape (labels, 2, 2): observed, then true; got {counts.shape}")
    if not (counts >= 0).all() or not (counts.sum(1) > 0).all():
        raise ValueError("a confident joint must hold counts, none negative, and some rows of either true class")
    return counts
