"""Accuracy of every pair-sum algorithm, compared with the double sum in float64.

The tolerances are 1e-6 for values and 1e-5 for gradients, relative to their largest possible size.
"""

import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from numpy.polynomial import chebyshev

from ccmn.losses import SURROGATES, ranking_loss
from ccmn.losses._fast.chebyshev import (
    TILE_SIZE,
    Needs,
    PairSums,
    chebyshev_pair_sum,
    expansion_for_width,
    expansion_table,
)
from ccmn.losses._fast.pair_sum import blocked_pair_sum, double_sum, hinge_pair_sum
from ccmn.losses.ranking import pair_sum
from helpers import slope_of
from reference import PHI
from reference import double_sum as plain_loops
from strategies import pair_rows

ALL_DERIVATIVES = Needs(True, True)
BY_NAME = pytest.mark.parametrize("surrogate", SURROGATES.values(), ids=list(SURROGATES))


def reference_sums(f, p, n, surrogate):
    """Return the double sum and its derivatives in float64, and the scales of their errors."""
    f, p, n = f.double(), p.double(), n.double()
    off = 1 - torch.eye(f.shape[-1], dtype=torch.float64)
    difference = f[:, :, None] - f[:, None, :]
    phi, slope = surrogate.phi(difference) * off, slope_of(surrogate, difference) * off
    by_pos, by_neg = (phi * n[:, None]).sum(2), (phi * p[:, :, None]).sum(1)
    by_scores = p * (slope * n[:, None]).sum(2) - n * (slope * p[:, :, None]).sum(1)
    P, N = p.abs().sum(1, True), n.abs().sum(1, True)
    largest_phi = phi.abs().amax((1, 2)).clamp_min(1)
    largest_slope = slope.abs().amax((1, 2)).clamp_min(1)
    scales = {
        "value": (P * N).squeeze(1) * largest_phi,
        "by_scores": (p.abs() * N + n.abs() * P).amax(1) * largest_slope,
        "by_pos": N.squeeze(1) * largest_phi,
        "by_neg": P.squeeze(1) * largest_phi,
    }
    found = {"value": (p * by_pos).sum(1), "by_scores": by_scores, "by_pos": by_pos, "by_neg": by_neg}
    return found, scales


def assert_accurate(sums, f, p, n, surrogate):
    expected, scales = reference_sums(f, p, n, surrogate)
    for name, tolerance in (("value", 1e-6), ("by_scores", 1e-5), ("by_pos", 1e-6), ("by_neg", 1e-6)):
        error = (getattr(sums, name).double() - expected[name]).abs()
        error = error.amax(-1) if error.ndim > 1 else error
        assert (error <= tolerance * scales[name] + 1e-30).all(), (name, (error / scales[name]).max())


def differentiated(function, f, p, n):
    """Return the value and the derivatives of a differentiable sum."""
    leaves = [t.clone().requires_grad_() for t in (f, p, n)]
    value = function(*leaves)
    return PairSums(value.detach(), *torch.autograd.grad(value.sum(), leaves))


def algorithms(surrogate, f):
    """Yield every algorithm that applies to this phi and these rows, not only the one that is selected."""
    yield lambda *rows: differentiated(lambda *leaves: pair_sum(*leaves, surrogate), *rows)
    if surrogate.name == "hinge":
        yield lambda *rows: differentiated(hinge_pair_sum, *rows)
    elif surrogate.name != "square":
        yield lambda f, p, n: double_sum(f, p, n, surrogate.name, ALL_DERIVATIVES)
        series = expansion_for_width(surrogate.name, f, float(f.amax(-1).sub(f.amin(-1)).max() / 2))
        if series is not None:
            yield lambda f, p, n: chebyshev_pair_sum(f, p, n, surrogate.at_zero, series, ALL_DERIVATIVES)


@pytest.mark.parametrize("shift", [0.0, -3.0, 1e6])
def test_hinge_at_the_kink(shift):
    f = torch.tensor([[0.0, 1.0, 2.0, 1.0, -1.0]]) + shift
    p, n = torch.tensor([[1.0, 2.0, -1.0, 0.5, 3.0]]), torch.tensor([[2.0, 1.0, 1.0, -1.0, 0.5]])
    for algorithm in algorithms(SURROGATES["hinge"], f):
        assert_accurate(algorithm(f, p, n), f, p, n, SURROGATES["hinge"])


@BY_NAME
@settings(max_examples=60)
@given(rows=pair_rows())
def test_every_algorithm_is_accurate_in_float32(surrogate, rows):
    for algorithm in algorithms(surrogate, rows[0]):
        assert_accurate(algorithm(*rows), *rows, surrogate)


@BY_NAME
@pytest.mark.parametrize("q", [1, 2, 3, 40, 150])
def test_float64_equals_plain_loops(surrogate, q):
    torch.manual_seed(q)
    f, p, n = torch.randn(3, q, dtype=torch.float64)
    expected = plain_loops(f.tolist(), p.tolist(), n.tolist(), PHI[surrogate.name])
    scale = float(p.abs().sum() * n.abs().sum())
    assert pair_sum(f, p, n, surrogate).item() == pytest.approx(expected, rel=1e-12, abs=1e-12 * scale)
    for algorithm in algorithms(surrogate, f[None]):
        assert algorithm(f[None], p[None], n[None]).value.item() == pytest.approx(
            expected, rel=1e-12, abs=1e-12 * scale
        )


@BY_NAME
def test_empty_batches(surrogate):
    assert pair_sum(*torch.zeros(3, 0, 5), surrogate).shape == (0,)
    assert pair_sum(*torch.zeros(3, 4, 0), surrogate).tolist() == [0, 0, 0, 0]


def test_blocked_sum_of_a_learned_phi(monkeypatch):
    """The parameters of phi get the same gradient with and without recomputed blocks."""
    f, p, n = torch.randn(3, 2, 9, dtype=torch.float64)
    gradients = []
    for max_pairs in (1 << 22, 8):
        monkeypatch.setattr(sys.modules["ccmn.losses._fast.pair_sum"], "_MAX_BLOCK_PAIRS", max_pairs)
        steepness = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
        leaf = f.clone().requires_grad_()
        blocked_pair_sum(leaf, p, n, lambda t, s=steepness: torch.exp(-s * t)).sum().backward()
        gradients.append((leaf.grad, steepness.grad))
    torch.testing.assert_close(gradients[0], gradients[1])


def test_small_tiles_give_the_same_result(monkeypatch):
    """Small tiles split rows and labels."""
    torch.manual_seed(0)
    f, p, n = torch.randn(3, 40, 70, dtype=torch.float64)
    expected = double_sum(f, p, n, "sigmoid", ALL_DERIVATIVES)
    series = expansion_for_width("sigmoid", f, 8.0)
    expected_series = chebyshev_pair_sum(f, p, n, 0.5, series, ALL_DERIVATIVES)
    monkeypatch.setattr(sys.modules["ccmn.losses._fast.pair_sum"], "_TILE_SIZE", (1000, 1000))
    monkeypatch.setitem(TILE_SIZE, "cpu", 10_000)
    torch.testing.assert_close(double_sum(f, p, n, "sigmoid", ALL_DERIVATIVES), expected)
    torch.testing.assert_close(chebyshev_pair_sum(f, p, n, 0.5, series, ALL_DERIVATIVES), expected_series)
    torch.testing.assert_close(expected_series.value, expected.value, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("q", [10, 200])
def test_infinite_scores_do_not_raise(q):
    f = torch.zeros(2, q)
    f[0, 0] = float("inf")
    f[1, 1] = float("nan")
    p = torch.rand(2, q)
    assert pair_sum(f, p, 1 - p, SURROGATES["sigmoid"]).shape == (2,)


def test_threads_have_separate_memory():
    """Parallel threads give the results of a single thread."""
    torch.manual_seed(0)
    rows = [torch.randn(2, 8, 300) for _ in range(6)]
    expected = [ranking_loss(*r) for r in rows]
    wrong = []

    def work(i):
        results = [ranking_loss(*rows[i]) for _ in range(30)]
        wrong.extend(i for result in results if not torch.equal(result, expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_from_inference_mode_is_usable_in_training():
    f, p = torch.randn(2, 5, 2000)
    with torch.inference_mode():
        ranking_loss(f, p)
    leaf = f.clone().requires_grad_()
    ranking_loss(leaf, p).sum().backward()
    assert leaf.grad.isfinite().all()


@pytest.mark.parametrize("surrogate", ["square", "sigmoid", "logistic"])
@pytest.mark.parametrize("level", [0, 5, 13, 20])
def test_each_level_of_the_expansion_table_gives_value_and_gradient(surrogate, level):
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
