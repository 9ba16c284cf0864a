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

from ccmn.losses.pairs.direct import PairSums, Wanted, workspace
from ccmn.losses.surrogates import SURROGATES

LARGEST_ORDER = 640
"""Rows so wide that they need more terms than this (a half width of about 100) go to the double sum."""

_TILE = 1 << 19
"""Values of T in memory at once on a CPU: 4 MB."""
_TILE_ELSEWHERE = 1 << 26


class Expansion(NamedTuple):
    """The series of one kernel: half width, coefficients C, and d/dx on Chebyshev coefficients."""

    half_width: Tensor
    coefficients: Tensor
    derivative: Tensor


def order_for(half_width: float, dtype: torch.dtype) -> int:
    """How many terms M reach the tolerance of a dtype: 1e-8 for float32, 1e-14 for float64.

    >>> order_for(5.0, torch.float32), order_for(8.0, torch.float32)
    (36, 53)
    """
    tolerance = 1e-14 if dtype == torch.float64 else 1e-8
    ratio = math.pi / half_width
    return math.ceil(-math.log(tolerance) / math.asinh(ratio)) + 4


def round_up_width(half_width: float) -> float:
    """The next of the widths that are kept: 1, 2^(1/4), 2^(1/2), ...; cached coefficients are few."""
    return float(2.0 ** (math.ceil(4 * math.log2(max(half_width, 1.0))) / 4))


@lru_cache(maxsize=64)
def kernel_coefficients(surrogate: str, half_width: float, order: int) -> NDArray[np.float64]:
    """C of phi(w (x - y)), (M, M): phi on the Chebyshev grid, and a cosine transform."""
    x = np.cos(np.pi * (np.arange(order) + 0.5) / order)
    grid = SURROGATES[surrogate].phi(torch.from_numpy(half_width * (x[:, None] - x[None, :]))).numpy()
    C: NDArray[np.float64] = scipy.fft.dctn(grid, type=2) / order**2
    C[0] /= 2
    C[:, 0] /= 2
    return C


@lru_cache(maxsize=64)
def derivative_matrix(order: int) -> NDArray[np.float64]:
    """D with (c D)_b the coefficients of the derivative of sum_a c_a T_a: T_a' = 2a (T_{a-1} + T_{a-3} + ...)."""
    a, b = np.meshgrid(np.arange(order), np.arange(order), indexing="ij")
    D = np.where((a > b) & ((a - b) % 2 == 1), 2.0 * a, 0.0)
    D[:, 0] /= 2
    return D


@lru_cache(maxsize=64)
def expansion_for(surrogate: str, half_width: float, order: int, device: torch.device) -> Expansion:
    """The series for rows of at most this half width, on a device."""
    return Expansion(
        torch.tensor(half_width, dtype=torch.float64, device=device),
        torch.from_numpy(kernel_coefficients(surrogate, half_width, order)).to(device),
        torch.from_numpy(derivative_matrix(order)).to(device),
    )


def chebyshev_pair_sum(
    scores: Tensor, pos: Tensor, neg: Tensor, at_zero: float, expansion: Expansion, wanted: Wanted
) -> PairSums:
    """Pair sums through the moments of each row. No row may be wider than the expansion's width.

    Two passes over T_a(x): moments in the first, the three series in the second. The derivative of a series is again
    one in T.
    """
    w, C, D = expansion
    low, high = torch.aminmax(scores, dim=-1, keepdim=True)
    passes = TiledPasses(scores, pos, neg, (low.double() + high.double()) / 2, w)
    P, N = passes.moments(len(C)).unbind(-1)
    A, B = N @ C.t(), P @ C
    value = ((P * A).sum(-1) - at_zero * _diagonal(pos, neg)).to(scores.dtype)
    by_scores = passes.by_scores(A @ D / w, B @ D / w) if wanted.by_scores else None
    if not wanted.by_weights:
        return PairSums(value, by_scores, None, None)
    by_pos, by_neg = passes.values(A, B)
    return PairSums(value, by_scores, by_pos - at_zero * neg, by_neg - at_zero * pos)


def _diagonal(pos: Tensor, neg: Tensor) -> Tensor:
    """sum_j p_j n_j of every row in float64, some labels at a time: of the whole there may be too many."""
    most = _TILE if pos.device.type == "cpu" else _TILE_ELSEWHERE
    labels = max(1, most // len(pos))
    if pos.shape[1] <= labels:
        return (pos.double() * neg).sum(-1)
    total = pos.new_zeros(len(pos), dtype=torch.float64)
    for p, n in zip(torch.split(pos, labels, 1), torch.split(neg, labels, 1)):
        total += (p.double() * n).sum(-1)
    return total


class TiledPasses:
    """The passes with torch's own operations, tile by tile: a recurrence and a matrix product each."""

    def __init__(self, scores: Tensor, pos: Tensor, neg: Tensor, centre: Tensor, width: Tensor) -> None:
        self.scores, self.pos, self.neg, self.centre, self.width = scores, pos, neg, centre, width

    def moments(self, order: int) -> Tensor:
        """P_a and N_a of every row: (n, M, 2)."""
        found = self.scores.new_zeros((len(self.scores), order, 2), dtype=torch.float64)
        for (row, label), T in self._tiles(order):
            weights = torch.stack((self.pos[row, label], self.neg[row, label]), -1).double()
            found[row] += torch.bmm(T, weights)
        return found / 2  # of T, not of 2 T

    def by_scores(self, along_pos: Tensor, along_neg: Tensor) -> Tensor:
        """p_j sum_a u_a T_a(x_j) + n_j sum_a v_a T_a(x_j) for series u, v of every row, (n, M)."""
        u, v = self.values(along_pos, along_neg)
        return self.pos * u + self.neg * v

    def values(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """sum_a u_a T_a(x_j) and sum_a v_a T_a(x_j)."""
        u, v = torch.empty_like(self.scores), torch.empty_like(self.scores)
        series = torch.stack((first, second), 1) / 2
        for (row, label), T in self._tiles(first.shape[1]):
            u[row, label], v[row, label] = torch.bmm(series[row], T).unbind(1)
        return u, v

    def _tiles(self, order: int) -> Iterator[tuple[tuple[slice, slice], Tensor]]:
        """Places, and 2 T_a(x) there: (rows, M, labels)."""
        tiles = list(_tiles(self.scores, order))
        room = workspace(max(order * _size(tile) for tile in tiles), torch.float64, self.scores.device)
        for row, label in tiles:
            x = (self.scores[row, label].double() - self.centre[row]) / self.width
            yield (row, label), _doubled_chebyshev(x, order, room)


def _tiles(scores: Tensor, order: int) -> Iterator[tuple[slice, slice]]:
    """Slices (rows, labels) whose Chebyshev values are few enough: whole rows, or a part of one."""
    rows, q = scores.shape
    cells = max(64, (_TILE if scores.device.type == "cpu" else _TILE_ELSEWHERE) // order)
    some_rows, some_labels = max(1, cells // q), min(q, cells)
    for i in range(0, rows, some_rows):
        for j in range(0, q, some_labels):
            yield slice(i, min(i + some_rows, rows)), slice(j, min(j + some_labels, q))


def _size(tile: tuple[slice, slice]) -> int:
    row, label = tile
    return int((row.stop - row.start) * (label.stop - label.start))


def _doubled_chebyshev(x: Tensor, order: int, room: Tensor) -> Tensor:
    """S_a = 2 T_a(x) for a < order, shape (rows, order, labels), written into ``room``.

    S_{m+k} = S_m S_k - S_{m-k}: each step doubles what is known, so there are log2(order) steps; without the
    factor two each step would need one operation more.
    """
    rows, labels = x.shape
    S = room[: rows * order * labels].view(rows, order, labels)
    S[:, 0] = 2
    if order > 1:
        torch.mul(x, 2, out=S[:, 1])
    known = 1
    while known < order - 1:
        more = min(known, order - 1 - known)
        torch.mul(S[:, known : known + 1], S[:, 1 : more + 1], out=S[:, known + 1 : known + more + 1])
        S[:, known + 1 : known + more + 1] -= S[:, known - more : known].flip(1)
        known += more
    return S


def largest_half_width(scores: Tensor) -> Tensor:
    """Half the distance from the lowest to the highest score, of the widest row, on the scores' device."""
    low, high = torch.aminmax(scores, dim=-1)
    return (high - low).amax() / 2


def exact_expansion(surrogate: str, scores: Tensor, half_width: float) -> Expansion | None:
    """The series for rows of a known width, or None where too many terms would be needed."""
    if not half_width <= 1e4:  # NaN and infinite scores too: the double sum tells what comes of them
        return None
    half_width = round_up_width(half_width)
    order = order_for(half_width, scores.dtype)
    return expansion_for(surrogate, half_width, order, scores.device) if order <= LARGEST_ORDER else None


LEVELS = 32
"""A power of two, since a kernel looks at all of them at once."""
_STEP = {"square": 2.0, "sigmoid": 2.0**0.2, "logistic": 2.0**0.2}
"""From one half width to the next, beginning with 1: the series end at 73, the square's three terms at 2^31."""


class Ladder(NamedTuple):
    """Half widths w, orders M, and the matrices of all levels one behind the other, on a device."""

    widths: Tensor
    """float32 (LEVELS,), ascending."""
    orders: Tensor
    """int32 (LEVELS,), even."""
    starts: Tensor
    """int32 (LEVELS,): how many M^2 come before."""
    matrices: Tensor
    """float64: C, then C'D / w, then C D / w of every level: P C N is the value, N C'D / w and P C D / w the series of
    the gradient along p and along n."""
    largest_order: int


@lru_cache(maxsize=16)
def ladder_for(surrogate: str, device: torch.device) -> Ladder:
    """The ladder of a surrogate on a device; made once."""
    widths = (_STEP[surrogate] ** np.arange(LEVELS)).astype(np.float32)
    orders = [_even(3 if surrogate == "square" else order_for(float(w), torch.float32)) for w in widths]
    matrices = np.concatenate([_matrices(surrogate, float(w), order) for w, order in zip(widths, orders)])
    starts = np.cumsum([0, *(order**2 for order in orders[:-1])])
    return Ladder(
        torch.from_numpy(widths).to(device),
        torch.tensor(orders, dtype=torch.int32, device=device),
        torch.tensor(starts, dtype=torch.int32, device=device),
        torch.from_numpy(matrices).to(device),
        max(orders),
    )


def _even(order: int) -> int:
    """Kernels take two terms at a time."""
    return order + order % 2


def _matrices(surrogate: str, half_width: float, order: int) -> np.ndarray:
    C, D = kernel_coefficients(surrogate, half_width, order), derivative_matrix(order)
    return np.concatenate([m.ravel() for m in (C, C.T @ D / half_width, C @ D / half_width)])
