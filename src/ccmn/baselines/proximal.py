r"""Proximal steps: :math:`\arg\min_Z \tfrac12 \lVert Z - A \rVert_F^2 + t \lVert Z \rVert` for the norms used here."""

from __future__ import annotations

import numpy as np

from ccmn._validation import FloatArray


def soft_threshold(A: FloatArray, t: float) -> FloatArray:
    r"""For the l1 norm: entries :math:`a \to \mathrm{sign}(a) \max(\lvert a\rvert - t, 0)`.

    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    return np.asarray(A - np.clip(A, -t, t))


def shrink_singular_values(A: FloatArray, t: float) -> FloatArray:
    r"""For the trace norm: singular values :math:`s \to \max(s - t, 0)`; exact zeros when none survives."""
    if t <= 0:
        return A
    # No singular value is above the Frobenius norm: while a penalty is huge, nothing needs decomposing.
    if np.linalg.norm(A) <= t:
        return np.zeros_like(A)
    left, values, right = np.linalg.svd(A, full_matrices=False)
    kept = values > t
    return np.asarray((left[:, kept] * (values[kept] - t)) @ right[kept])


def shrink_tall(A: FloatArray, t: float) -> FloatArray:
    r"""The same for many rows and few columns, through the small Gram matrix.

    With :math:`A^\top A = Q\, \mathrm{diag}(s^2)\, Q^\top` it is :math:`A\, Q\, \mathrm{diag}(\max(1 - t/s, 0))\,
    Q^\top`: no decomposition of anything as long as the rows. Values near t are exact to about
    :math:`10^{-16} s_{\max}^2 / t`.
    """
    if t <= 0:
        return A
    squares, vectors = np.linalg.eigh(A.T @ A)
    kept = squares > t * t
    if not kept.any():
        return np.zeros_like(A)
    factor = 1 - t / np.sqrt(squares[kept])
    return np.asarray(A @ ((vectors[:, kept] * factor) @ vectors[:, kept].T))
