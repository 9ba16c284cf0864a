r"""A symmetric matrix as :math:`Q T Q^\top` with T tridiagonal: what shifted systems need, and no more.

:math:`(A + c I) x = r` becomes :math:`(T + c I) z = Q^\top r`, which costs O(n) for every c. An eigendecomposition
begins with the same reduction and goes on to the eigenvectors, at about three times the cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ccmn.validation import FloatArray

_BLOCK = 64


class Tridiagonal:
    """The reduction of a positive semidefinite matrix (n, n), whose memory is used for it."""

    def __init__(self, matrix: FloatArray) -> None:
        n = len(matrix)
        # A symmetric matrix is its own transpose: what is row-major here is column-major to LAPACK, without a copy.
        reduced, self._diagonal, beside, self._tau, _ = lapack.dsytrd(
            matrix.T, lower=1, lwork=_BLOCK * n, overwrite_a=1
        )
        self._beside = beside if n > 1 else np.zeros(1)  # LAPACK wants one number there even so
        # Q leaves the first coordinate alone; its reflectors are stored as those of a QR decomposition of the rest.
        self._reflectors = np.asfortranarray(reduced[1:, :-1])
        # Shifts below the rounding errors of the reduction mean nothing, and T + c I might not be positive definite.
        self._least = 4 * n * np.finfo(np.float64).eps * float(np.abs(self._diagonal).max(initial=0.0))

    def rotate(self, columns: NDArray[np.floating[Any]]) -> FloatArray:
        """Q' B of columns B (n, m)."""
        return self._apply("T", columns)

    def rotate_back(self, columns: FloatArray) -> FloatArray:
        """Q Z of columns Z (n, m)."""
        return self._apply("N", columns)

    def solve(self, shift: float, right: FloatArray) -> FloatArray:
        """(T + shift I) Z = R for columns R (n, m)."""
        *_, solution, failed = lapack.dptsv(self._diagonal + max(shift, self._least), self._beside, right)
        if failed:
            raise ValueError("the matrix is not positive semidefinite, beyond what rounding explains")
        return np.asarray(solution)

    def _apply(self, how: str, columns: NDArray[np.floating[Any]]) -> FloatArray:
        found = np.array(columns, dtype=np.float64, order="F")
        if len(found) > 1 and found.shape[1]:
            lwork = _BLOCK * found.shape[1]
            found[1:] = lapack.dormqr("L", how, self._reflectors, self._tau, found[1:], lwork)[0]
        return found
