r"""Chebyshev pair sums for the sigmoid and logistic surrogates: O(q M) time and O(q) memory, to a chosen tolerance.

Center a row into [-w, w] and let x = f / w. The kernel :math:`K(x, y) = \phi(w (x - y))` is analytic in each
variable up to its poles (or branch points) at distance pi from the real line. Its Chebyshev series therefore converges
like :math:`R^{-M}` with :math:`R = \pi/w + \sqrt{1 + (\pi/w)^2}` [1]_:

.. math:: \sum_{j,k} p_j n_k \phi(f_j - f_k) = \sum_{a,b} C_{ab} P_a N_b, \quad
          P_a = \sum_j p_j T_a(x_j), \quad N_b = \sum_k n_k T_b(x_k)

C depends only on phi, w and M and is cached. No exponential of a score is computed. The order M grows with w.

T_{ka+b} is a combination of the products :math:`T_{ki} T_l`, i <= a, l < k, because
:math:`T_{ka+b} = 2 T_{ka} T_b - T_{ka-b}`. With k of the order of :math:`\sqrt M`, few polynomials of a score
are evaluated, and their products are part of a matrix product. C is converted to this basis once.

All arithmetic is float64 for every input dtype: the result does not depend on the user's ``float32_matmul_precision``.

References
----------
.. [1] L. N. Trefethen, "Approximation Theory and Approximation Practice", SIAM, 2013, chapter 8.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.fft
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn.losses.surrogates import SURROGATES

MAX_WIDTH = 100.0
"""Half width of about ``MAX_ORDER`` terms in float32."""
MAX_ORDER = 640
"""Rows that need more terms than this (a half width of about 100) use the double sum."""

TILE_SIZE = {"cpu": 1 << 19, "cuda": 1 << 25}
"""Number of values of polynomials in memory at once."""

N_LEVELS = 32
"""Number of half widths in an ``ExpansionTable``, a power of two because a kernel compares with all of them at once."""
_WIDTH_RATIOS = {"square": 2.0, "sigmoid": 2.0**0.2, "logistic": 2.0**0.2}
"""Ratio of consecutive half widths, which start at 1. The largest is 73, or 2^31 for the three terms of the square."""


class PairSums(NamedTuple):
    r"""Value :math:`L = \sum_{j \ne k} p_j n_k \phi(f_j - f_k)` of every row, and its derivatives (rows, q).

    dL/dp_j is the sum over k != j of n_k phi(f_j - f_k), and dL/dn_k the sum over j != k of p_j phi(f_j - f_k).
    """

    value: Tensor
    by_scores: Tensor | None
    by_pos: Tensor | None
    by_neg: Tensor | None


class Needs(NamedTuple):
    """Derivatives to compute."""

    by_scores: bool
    by_weights: bool


_thread_memory = threading.local()


def workspace(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor of ``size`` values that the next call in this thread overwrites.

    New memory costs more than the arithmetic on it, because each page causes a page fault. The workspace is kept on
    a CPU only; the allocators of accelerators cache memory.
    """
    if device.type != "cpu":
        return torch.empty(size, dtype=dtype, device=device)
    buffers: dict[torch.dtype, Tensor] = _thread_memory.__dict__.setdefault("buffers", {})
    if dtype not in buffers or buffers[dtype].numel() < size:
        # An inference tensor could not be written to during training.
        with torch.inference_mode(False):
            buffers[dtype] = torch.empty(size, dtype=dtype, device="cpu")
    return buffers[dtype][:size]


def order_for(half_width: float, dtype: torch.dtype) -> int:
    """Return the number of terms M for the tolerance of a dtype: 1e-8 for float32, 1e-14 for float64.

    >>> order_for(5.0, torch.float32), order_for(8.0, torch.float32)
    (36, 53)
    """
    tolerance = 1e-14 if dtype == torch.float64 else 1e-8
    ratio = math.pi / half_width
    return math.ceil(-math.log(tolerance) / math.asinh(ratio)) + 4


@lru_cache(maxsize=64)
def kernel_coefficients(surrogate: str, half_width: float, order: int) -> NDArray[np.float64]:
    """Return the coefficients C (M, M) of phi(w (x - y)), a cosine transform of its values on the Chebyshev grid."""
    x = np.cos(np.pi * (np.arange(order) + 0.5) / order)
    t = half_width * (x[:, None] - x[None, :])
    # softplus of PyTorch has errors of 2e-9 at its threshold, where the series would converge slowly.
    grid = np.logaddexp(0, -t) if surrogate == "logistic" else SURROGATES[surrogate].phi(torch.from_numpy(t)).numpy()
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


def few_terms(order: int) -> int:
    """Return k, larger than the root of the order because a T_{ka} costs more than a T_b (measured)."""
    return min(order, math.isqrt(4 * order) + 1)


def values_per_score(order: int) -> int:
    """Return the number of values in memory for each score: T_b, T_{ka}, and two products with T_{ka} in two passes."""
    return few_terms(order) + 5 * -(-order // few_terms(order))


@lru_cache(maxsize=64)
def product_basis(order: int) -> NDArray[np.float64]:
    """Return R (order, A k) such that T_m = sum of R[m, k a + b] T_{ka} T_b over a < A and b < k."""
    k = few_terms(order)
    R = np.eye(-(-order // k) * k)
    for m in range(k, len(R)):
        if m % k:
            R[m] = 2 * R[m] - R[m - 2 * (m % k)]  # T_{ka+b} = 2 T_{ka} T_b - T_{ka-b}
    return R[:order]


class Expansion(NamedTuple):
    """Expansion of one kernel in products of polynomials, for rows of at most one width.

    With the matrices V, U and W, the value is P V N. The gradient is p times the series N U, plus n times the series
    P W.
    """

    half_width: float
    order: int
    value: Tensor
    along_pos: Tensor
    along_neg: Tensor


@lru_cache(maxsize=64)
def expansion_for(surrogate: str, half_width: float, order: int, device: torch.device) -> Expansion:
    """Return the expansion for rows of at most this half width, on a device."""
    R, C, D = product_basis(order), kernel_coefficients(surrogate, half_width, order), derivative_matrix(order)
    matrices = (R.T @ M @ R for M in (C, C.T @ D / half_width, C @ D / half_width))
    return Expansion(half_width, order, *(torch.from_numpy(np.ascontiguousarray(M)).to(device) for M in matrices))


def expansion_for_width(surrogate: str, scores: Tensor, half_width: float) -> Expansion | None:
    """Return the expansion for rows of a known width, or None if it needs more than ``MAX_ORDER`` terms."""
    if not half_width <= 1e4:  # also for NaN and infinite scores, which the double sum propagates
        return None
    half_width = float(2.0 ** (math.ceil(4 * math.log2(max(half_width, 1.0))) / 4))  # few widths are cached
    order = order_for(half_width, scores.dtype)
    return expansion_for(surrogate, half_width, order, scores.device) if order <= MAX_ORDER else None


def rows_per_tile(scores: Tensor, order: int) -> int:
    """Return the number of rows whose polynomials are in memory at once, at least one."""
    return max(1, TILE_SIZE[scores.device.type] // (scores.shape[1] * values_per_score(order)))


def chebyshev_pair_sum(
    scores: Tensor, pos: Tensor, neg: Tensor, at_zero: float, expansion: Expansion, needs: Needs
) -> PairSums:
    """Return the pair sums of rows (n, q) from their moments; no row may be wider than the expansion."""
    rows, q = scores.shape
    k = few_terms(expansion.order)
    sizes = [k + 1, *((len(expansion.value) // k) * n for n in (1, 2, 2))]
    low, high = torch.aminmax(scores, dim=-1, keepdim=True)
    center = (low.double() + high.double()) / 2
    step = max(1, TILE_SIZE[scores.device.type] // (rows * values_per_score(expansion.order)))
    tiles = [slice(start, start + step) for start in range(0, q, step)]

    def polynomials(tile: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return T_b, b < k; T_{ka}; p T_{ka}, n T_{ka}; and space for products, each (rows, ., labels of a tile)."""
        x = (scores[:, tile].double() - center) / expansion.half_width
        memory = torch.split(workspace(x.numel() * sum(sizes), x.dtype, x.device), [size * x.numel() for size in sizes])
        few, giant, weighted, product = (part.view(rows, -1, x.shape[1]) for part in memory)
        _chebyshev(x, few)
        _chebyshev(few[:, k], giant)
        weights = torch.stack((pos[:, tile], neg[:, tile]), 1).double()
        torch.mul(weights.unsqueeze(2), giant.unsqueeze(1), out=weighted.view(rows, 2, *giant.shape[1:]))
        return few[:, :k], giant, weighted, product

    kept = [polynomials(tile) for tile in tiles] if len(tiles) == 1 else None
    moments = sum(
        torch.bmm(weighted, few.transpose(1, 2))
        for few, _, weighted, _ in kept or (polynomials(tile) for tile in tiles)
    )
    assert isinstance(moments, Tensor)
    P, N = moments.view(rows, 2, -1).unbind(1)
    value = ((P @ expansion.value * N).sum(-1) - at_zero * (pos.double() * neg).sum(-1)).to(scores.dtype)
    slopes = torch.stack((N @ expansion.along_pos, P @ expansion.along_neg), 1).view(rows, -1, k)
    series = torch.stack((N @ expansion.value.t(), P @ expansion.value), 1).view(rows, -1, k)
    by_scores = torch.empty_like(scores) if needs.by_scores else None
    by_pos, by_neg = (torch.empty_like(pos), torch.empty_like(neg)) if needs.by_weights else (None, None)
    for tile, (few, giant, weighted, product) in zip(tiles, kept or (polynomials(tile) for tile in tiles)):
        if by_scores is not None:
            by_scores[:, tile] = torch.bmm(slopes, few, out=product).mul_(weighted).sum(1)
        if by_pos is not None and by_neg is not None:
            products = torch.bmm(series, few, out=product).view(rows, 2, *giant.shape[1:])
            sums = products.mul_(giant.unsqueeze(1)).sum(2)
            by_pos[:, tile] = sums[:, 0] - at_zero * neg[:, tile]
            by_neg[:, tile] = sums[:, 1] - at_zero * pos[:, tile]
    return PairSums(value, by_scores, by_pos, by_neg)


def _chebyshev(x: Tensor, out: Tensor) -> None:
    """Compute T_a(x) for all a of ``out``, shape (rows, order, labels)."""
    terms, twice = out.unbind(1), 2 * x
    terms[0].fill_(1)
    for a, T in enumerate(terms[1:], 1):
        if a == 1:
            T.copy_(x)
        else:
            torch.mul(terms[a - 1], twice, out=T).sub_(terms[a - 2])


class ExpansionTable(NamedTuple):
    """Expansions for ``N_LEVELS`` half widths on a device; in a kernel each row selects its own.

    ``widths`` w are float32 and ascending, ``orders`` M int32 and even, and ``starts`` int32, the sum of M^2 over the
    levels before. ``matrices`` are C, then C'D / w, then C D / w of every level, in float64. P C N is the value; N C'D
    / w and P C D / w are the series of the gradient that are multiplied by p and by n.
    """

    widths: Tensor
    orders: Tensor
    starts: Tensor
    matrices: Tensor
    max_order: int


@lru_cache(maxsize=16)
def expansion_table(surrogate: str, device: torch.device) -> ExpansionTable:
    """Return the table of a surrogate on a device."""
    widths = (_WIDTH_RATIOS[surrogate] ** np.arange(N_LEVELS)).astype(np.float32)
    orders = [3 if surrogate == "square" else order_for(float(w), torch.float32) for w in widths]
    orders = [order + order % 2 for order in orders]  # kernels compute two terms per step
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
