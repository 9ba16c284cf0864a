"""Expansion tables of the fused kernels: the computation of a kernel in numpy, compared with the double sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

from ccmn.losses import SURROGATES
from ccmn.losses._fast.chebyshev import expansion_table


@pytest.mark.parametrize("surrogate", ["square", "sigmoid", "logistic"])
@pytest.mark.parametrize("level", [0, 5, 13, 20])
def test_each_level_gives_value_and_gradient(surrogate, level):
    widths, orders, starts, matrices, _ = expansion_table(surrogate, torch.device("cpu"))
    w, M, start = float(widths[level]), int(orders[level]), 3 * int(starts[level])
    C, U, V = matrices[start : start + 3 * M * M].view(3, M, M).numpy()
    rng = np.random.default_rng(level)
    f, p = rng.uniform(-w, w, 40), rng.normal(size=40)
    T = chebyshev.chebvander(f / w, M - 1)
    P, N = p @ T, (1 - p) @ T
    leaf = torch.tensor(f, requires_grad=True)
    weights = torch.from_numpy(np.outer(p, 1 - p))
    exact = (weights * SURROGATES[surrogate].phi(leaf.unsqueeze(1) - leaf)).sum()
    exact.backward()
    scale = float(weights.abs().sum()) * max(1.0, float(SURROGATES[surrogate].phi(torch.tensor(-2 * w))))
    assert abs(P @ C @ N - exact.item()) < 1e-7 * scale
    gradient = p * (T @ (N @ U)) + (1 - p) * (T @ (P @ V))
    assert np.abs(gradient - leaf.grad.numpy()).max() < 1e-6 * scale
