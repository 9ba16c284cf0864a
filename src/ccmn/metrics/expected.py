r"""Average precision and coverage of a row as multilinear functions of its labels.

Both are built from products and quotients of labels, but every function of 0/1 labels has one multilinear form, in
which no label occurs twice in a term. In it real numbers may stand for the labels:

- debiased labels give an unbiased estimate, since labels flip independently (and never is one p squared);
- probabilities give the expectation under labels that are independent, each with its probability.

Labels p are (n, q), scores (..., n, q), row weights (n,); (...) in float64 comes back. O(n q) memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccmn.metrics.corrected import mean_of_rows

_MOST_NODES = 32
"""Exact for up to 64 labels; beyond, to 1e-9 and better: the integrand is smooth."""

_TRIES = 6
"""Sets of nodes to choose from: products are divided by their factors, so none should be near 0."""


def corrected_average_precision(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""The mean of the multilinear average precision of rows; rows with NaN left out.

    .. math:: \prod_i (1 - p_i) + \int_0^1 \sum_j \frac{p_j}{r_j} \Big( \prod_{i \ne j} g_i(z)
              + z \sum_{k \ne j,\, f_k \ge f_j} p_k \prod_{i \ne j, k} g_i(z) \Big) dz,
              \qquad g_i(z) = 1 - p_i + p_i z

    with :math:`r_j` the rank of label j. The integral is that of :math:`z^{|P| - 1}`, which is :math:`1 / |P|`: what
    the average over the true labels divides by. The first product is the row without labels, which counts 1.
    """
    labels, place = _sorted_labels(p, scores)
    integral: Tensor = _Integral.apply(labels, place, _nodes(p))  # type: ignore[no-untyped-call]
    return mean_of_rows((1 - labels).prod(-1) + integral, p, weights)


def corrected_coverage(p: Tensor, scores: Tensor, weights: Tensor | None = None, *, normalised: bool = False) -> Tensor:
    r"""The mean of the multilinear coverage of rows; rows with NaN left out.

    .. math:: \sum_k \Big( 1 - \prod_{i:\, f_i \le f_k} (1 - p_i) \Big)

    Label k is passed on the way down where a label with its score or a lower one is true. ``normalised`` takes off
    one for the top label where any is true, :math:`1 - \prod_i (1 - p_i)`, and divides by q.
    """
    labels, _ = _sorted_labels(p, scores)
    ordered = scores.sort(dim=-1).values.contiguous()
    last_tied = torch.searchsorted(ordered, ordered, right=True) - 1
    none_below = (1 - labels).cumprod(-1)
    count = (1 - none_below.gather(-1, last_tied)).sum(-1)
    if normalised:
        count = (count - (1 - none_below[..., -1])) / labels.shape[-1]
    return mean_of_rows(count, p, weights)


def _sorted_labels(p: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Labels from the lowest score to the highest, 0 for NaN; and for each how many have strictly lower scores."""
    ordered, order = scores.contiguous().sort(dim=-1)
    labels = p.double().nan_to_num(0.0).expand(scores.shape).gather(-1, order)
    return labels, torch.searchsorted(ordered, ordered)


def _nodes(p: Tensor) -> list[tuple[float, float]]:
    """Nodes and weights of Gauss and Legendre on [0, 1], enough for polynomials of degree q - 1."""
    fewest = min(p.shape[-1] // 2 + 1, _MOST_NODES)
    # The factor 1 - p + p z is 0 at some z where p is above 1: at 1/2, say, for p = 2.
    large = np.unique(p.detach()[p > 1].double().cpu().numpy())
    ways = [np.polynomial.legendre.leggauss(fewest + more) for more in range(_TRIES if large.size else 1)]
    rooms = [np.abs(1 - large * (1 - (z[:, None] + 1) / 2)).min(initial=1.0) for z, _ in ways]
    nodes, shares = ways[int(np.argmax(rooms))]
    return [((z + 1) / 2, share / 2) for z, share in zip(nodes.tolist(), shares.tolist())]


class _Integral(torch.autograd.Function):
    """The sum of ``_precision_at`` over nodes, whose derivative is worked out with it, node by node.

    Rows do not mix, so the derivative is one matrix (..., n, q); what is kept does not grow with the number of nodes.
    """

    @staticmethod
    def forward(ctx: Any, labels: Tensor, place: Tensor, nodes: list[tuple[float, float]]) -> Tensor:
        wanted = ctx.needs_input_grad[0]
        total, slope = labels.new_zeros(labels.shape[:-1]), torch.zeros_like(labels)
        for z, share in nodes:
            leaf = labels.detach().requires_grad_(wanted)
            with torch.set_grad_enabled(wanted):
                part = share * _precision_at(leaf, place, z)
                if wanted:
                    slope += torch.autograd.grad(part.sum(), leaf)[0]
            total += part.detach()
        ctx.save_for_backward(slope)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None


def _precision_at(labels: Tensor, place: Tensor, z: float) -> Tensor:
    """The integrand: products without one or two factors, by dividing the whole product by them."""
    factor = 1 - labels + labels * z
    odds = labels / factor
    # All with this score or a higher one, but for the label itself.
    others = odds.sum(-1, keepdim=True) - (odds.cumsum(-1) - odds).gather(-1, place) - odds
    rank = labels.shape[-1] - place
    return factor.prod(-1) * (odds / rank * (1 + z * others)).sum(-1)
