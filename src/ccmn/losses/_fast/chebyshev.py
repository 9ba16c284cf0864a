r"""Chebyshev pair sums for the sigmoid and logistic surrogates: O(q M) time and O(q) memory, to a chosen tolerance.

Center a row into [-w, w] and let x = f / w. The kernel :math:`K(x, y) = \phi(w (x - y))` is analytic in each
variable up to its poles (or branch points) at distance pi from the real line. Its Chebyshev series therefore converges
like :math:`R^{-M}` with :math:`R = \pi/w + \sqrt{1 + (\pi/w)^2}` [1]_:

.. math:: \sum_{j,k} p_j n_k \phi(f_j - f_k) = \sum_{a,b} C_{ab} P_a N_b, \quad
          P_a = \sum_j p_j T_a(x_j), \quad N_b = \sum_k n_k T_b(x_k)

C depends only on phi, w and M and is cached. No exponential of a score is computed. The order M grows with w.

All arithmetic is float64 for every input dtype. It costs a third more than float32, and the result does not depend on
the user's ``float32_matmul_precision``.

References
----------
.. [1] L. N. Trefethen, "Approximation Theory and Approximation Practice", SIAM, 2013, chapter 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.fft
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn.losses._fast.direct import Needs, PairSums, workspace
from ccmn.losses.surrogates import SURROGATES

MAX_ORDER = 640
"""Rows that need more terms than this (a half width of about 100) use the double sum."""

_TILE_SIZE = 1 << 19
"""Number of Chebyshev values in memory at once on a CPU (4 MB)."""
_DEVICE_TILE_SIZE = 1 << 26
"""Number of Chebyshev values in memory at once on an accelerator."""

N_LEVELS = 32
"""Number of half widths in an ``ExpansionTable``, a power of two because a kernel compares with all of them at once."""
_WIDTH_RATIOS = {"square": 2.0, "sigmoid": 2.0**0.2, "logistic": 2.0**0.2}
"""Ratio of consecutive half widths, which start at 1. The largest is 73, or 2^31 for the three terms of the square."""


class Expansion(NamedTuple):
    """Chebyshev expansion of one kernel: half width w, coefficients C, and the derivative on coefficients."""

    half_width: Tensor
    coefficients: Tensor
    derivative: Tensor


def order_for(half_width: float, dtype: torch.dtype) -> int:
    """Return the number of terms M for the tolerance of a dtype: 1e-8 for float32, 1e-14 for float64.

    >>> order_for(5.0, torch.float32), order_for(8.0, torch.float32)
    (36, 53)
    """
    tolerance = 1e-14 if dtype == torch.float64 else 1e-8
    ratio = math.pi / half_width
    return math.ceil(-math.log(tolerance) / math.asinh(ratio)) + 4


def round_up_width(half_width: float) -> float:
    """Round up to one of the widths 1, 2^(1/4), 2^(1/2), ..., so that few expansions are cached."""
    return float(2.0 ** (math.ceil(4 * math.log2(max(half_width, 1.0))) / 4))


@lru_cache(maxsize=64)
def kernel_coefficients(surrogate: str, half_width: float, order: int) -> NDArray[np.float64]:
    """Return the coefficients C (M, M) of phi(w (x - y)), a cosine transform of its values on the Chebyshev grid."""
    x = np.cos(np.pi * (np.arange(order) + 0.5) / order)
    grid = SURROGATES[surrogate].phi(torch.from_numpy(half_width * (x[:, None] - x[None, :]))).numpy()
    C: NDArray[np.float64] = scipy.fft.dctn(grid, type=2) / order**2
    C[0] /= 2
    C[:, 0] /= 2
    return C


@lru_cache(maxsize=64)
def derivative_matrix(order: int) -> NDArray[np.float64]:
    """Return D such that c D are the coefficients of the derivative of sum_a c_a T_a.

    T_a' = 2a (T_{a-1} + T_{a-3} + ...), with half of the coefficient of T_0.
    """
    a, b = np.meshgrid(np.arange(order), np.arange(order), indexing="ij")
    D = np.where((a > b) & ((a - b) % 2 == 1), 2.0 * a, 0.0)
    D[:, 0] /= 2
    return D


@lru_cache(maxsize=64)
def expansion_for(surrogate: str, half_width: float, order: int, device: torch.device) -> Expansion:
    """Return the expansion for rows of at most this half width, on a device."""
    return Expansion(
        torch.tensor(half_width, dtype=torch.float64, device=device),
        torch.from_numpy(kernel_coefficients(surrogate, half_width, order)).to(device),
        torch.from_numpy(derivative_matrix(order)).to(device),
    )


def chebyshev_pair_sum(
    scores: Tensor, pos: Tensor, neg: Tensor, at_zero: float, expansion: Expansion, needs: Needs
) -> PairSums:
    """Return the pair sums from the moments of each row; no row may be wider than the expansion.

    The first pass over T_a(x) computes the moments, the second evaluates the series of the derivatives.
    """
    w, C, D = expansion
    low, high = torch.aminmax(scores, dim=-1, keepdim=True)
    passes = TiledPasses(scores, pos, neg, (low.double() + high.double()) / 2, w)
    P, N = passes.moments(len(C)).unbind(-1)
    A, B = N @ C.t(), P @ C
    value = ((P * A).sum(-1) - at_zero * _diagonal(pos, neg)).to(scores.dtype)
    by_scores = passes.by_scores(A @ D / w, B @ D / w) if needs.by_scores else None
    if not needs.by_weights:
        return PairSums(value, by_scores, None, None)
    by_pos, by_neg = passes.values(A, B)
    return PairSums(value, by_scores, by_pos - at_zero * neg, by_neg - at_zero * pos)


def _diagonal(pos: Tensor, neg: Tensor) -> Tensor:
    """Return sum_j p_j n_j of every row in float64, in blocks of labels to bound the memory."""
    labels = max(1, (_TILE_SIZE if pos.device.type == "cpu" else _DEVICE_TILE_SIZE) // len(pos))
    if pos.shape[1] <= labels:
        return (pos.double() * neg).sum(-1)
    total = pos.new_zeros(len(pos), dtype=torch.float64)
    for p, n in zip(torch.split(pos, labels, 1), torch.split(neg, labels, 1)):
        total += (p.double() * n).sum(-1)
    return total


class TiledPasses:
    """Passes over the Chebyshev values of rows, tile by tile: a recurrence and a matrix product each."""

    def __init__(self, scores: Tensor, pos: Tensor, neg: Tensor, center: Tensor, width: Tensor) -> None:
        self.scores, self.pos, self.neg, self.center, self.width = scores, pos, neg, center, width

    def moments(self, order: int) -> Tensor:
        """Return P_a and N_a of every row, (n, M, 2)."""
        moments = self.scores.new_zeros((len(self.scores), order, 2), dtype=torch.float64)
        for (row, label), T in self._tiles(order):
            weights = torch.stack((self.pos[row, label], self.neg[row, label]), -1).double()
            moments[row] += torch.bmm(T, weights)
        return moments / 2  # the tiles hold 2 T

    def by_scores(self, along_pos: Tensor, along_neg: Tensor) -> Tensor:
        """Return p_j sum_a u_a T_a(x_j) + n_j sum_a v_a T_a(x_j) for the series u, v (n, M)."""
        u, v = self.values(along_pos, along_neg)
        return self.pos * u + self.neg * v

    def values(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Return sum_a u_a T_a(x_j) and sum_a v_a T_a(x_j)."""
        u, v = torch.empty_like(self.scores), torch.empty_like(self.scores)
        series = torch.stack((first, second), 1) / 2
        for (row, label), T in self._tiles(first.shape[1]):
            u[row, label], v[row, label] = torch.bmm(series[row], T).unbind(1)
        return u, v

    def _tiles(self, order: int) -> Iterator[tuple[tuple[slice, slice], Tensor]]:
        """Yield slices (rows, labels), complete rows or parts of a row, and their 2 T_a(x), (rows, M, labels)."""
        rows, q = self.scores.shape
        cells = max(64, (_TILE_SIZE if self.scores.device.type == "cpu" else _DEVICE_TILE_SIZE) // order)
        tile_rows, tile_labels = min(rows, max(1, cells // q)), min(q, cells)
        buffer = workspace((order + order // 2) * tile_rows * tile_labels, torch.float64, self.scores.device)
        for i in range(0, rows, tile_rows):
            for j in range(0, q, tile_labels):
                row, label = slice(i, i + tile_rows), slice(j, j + tile_labels)
                x = (self.scores[row, label].double() - self.center[row]) / self.width
                yield (row, label), _doubled_chebyshev(x, order, buffer)


@lru_cache(maxsize=64)
def _descending(order: int, device: torch.device) -> Tensor:
    """Return the numbers order - 1, ..., 0."""
    return torch.arange(order - 1, -1, -1, device=device)


def _doubled_chebyshev(x: Tensor, order: int, buffer: Tensor) -> Tensor:
    """Write S_a = 2 T_a(x) for a < order into ``buffer`` and return it, shape (rows, order, labels).

    S_{m+k} = S_m S_k - S_{m-k}, so each of the log2(order) steps doubles the number of known terms. Without the factor
    2 each step would need one more operation.
    """
    rows, labels = x.shape
    S = buffer[: rows * order * labels].view(rows, order, labels)
    scratch, descending = buffer[rows * order * labels :], _descending(order, x.device)
    S[:, 0] = 2
    if order > 1:
        torch.mul(x, 2, out=S[:, 1])
    known = 1
    while known < order - 1:
        more = min(known, order - 1 - known)
        torch.mul(S[:, known : known + 1], S[:, 1 : more + 1], out=S[:, known + 1 : known + more + 1])
        # The reversed terms go to the workspace: new memory costs more than the subtraction.
        reversed_terms = scratch[: rows * more * labels].view(rows, more, labels)
        torch.index_select(S, 1, descending[order - known : order - known + more], out=reversed_terms)
        S[:, known + 1 : known + more + 1] -= reversed_terms
        known += more
    return S


def max_half_width(scores: Tensor) -> Tensor:
    """Return half the range of the scores of the widest row, as a tensor on the device of the scores."""
    low, high = torch.aminmax(scores, dim=-1)
    return (high - low).amax() / 2


def expansion_for_width(surrogate: str, scores: Tensor, half_width: float) -> Expansion | None:
    """Return the expansion for rows of a known width, or None if it needs more than ``MAX_ORDER`` terms."""
    if not half_width <= 1e4:  # also for NaN and infinite scores, which the double sum propagates
        return None
    half_width = round_up_width(half_width)
    order = order_for(half_width, scores.dtype)
    return expansion_for(surrogate, half_width, order, scores.device) if order <= MAX_ORDER else None


class ExpansionTable(NamedTuple):
    """Expansions for ``N_LEVELS`` half widths on a device; in a kernel each row selects its own."""

    widths: Tensor
    """Half widths w, float32 (N_LEVELS,), ascending."""
    orders: Tensor
    """Orders M, int32 (N_LEVELS,), even."""
    starts: Tensor
    """Sum of M^2 over the levels before, int32 (N_LEVELS,)."""
    matrices: Tensor
    """float64: C, then C'D / w, then C D / w of every level. P C N is the value; N C'D / w and P C D / w are the series
    of the gradient that are multiplied by p and by n."""
    max_order: int
    """Largest order."""


def _table_levels(surrogate: str) -> tuple[NDArray[np.float32], list[int]]:
    """Return the half widths and orders of the levels of a table."""
    widths = (_WIDTH_RATIOS[surrogate] ** np.arange(N_LEVELS)).astype(np.float32)
    orders = [3 if surrogate == "square" else order_for(float(w), torch.float32) for w in widths]
    return widths, [order + order % 2 for order in orders]  # kernels compute two terms per step


@lru_cache(maxsize=16)
def largest_table_order(surrogate: str) -> int:
    """Return ``max_order`` of the table of a surrogate, without computing the table."""
    return max(_table_levels(surrogate)[1])


@lru_cache(maxsize=16)
def expansion_table(surrogate: str, device: torch.device) -> ExpansionTable:
    """Return the table of a surrogate on a device."""
    widths, orders = _table_levels(surrogate)
    matrices = []
    for w, order in zip(widths.tolist(), orders):
        C, D = kernel_coefficients(surrogate, w, order), derivative_matrix(order)
        matrices += [m.ravel() for m in (C, C.T @ D / w, C @ D / w)]
    starts = np.cumsum([0, *(order**2 for order in orders[:-1])])
    return ExpansionTable(
        torch.from_numpy(widths).to(device),
        torch.tensor(orders, dtype=torch.int32, device=device),
        torch.tensor(starts, dtype=torch.int32, device=device),
        torch.from_numpy(np.concatenate(matrices)).to(device),
        max(orders),
    )
