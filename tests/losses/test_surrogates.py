"""Every statement in a row of SURROGATES is checked numerically; so is each closed form."""

from __future__ import annotations

import math

import pytest
import torch

from ccmn.losses.surrogates import SURROGATES, resolve_surrogate
from reference import PHI

T = torch.linspace(-20, 20, 4001, dtype=torch.float64)
ROWS = pytest.mark.parametrize("row", SURROGATES.values(), ids=list(SURROGATES))


@ROWS
def test_phi_is_the_papers(row):
    expected = torch.tensor([PHI[row.name](t) for t in T.tolist()], dtype=torch.float64)
    torch.testing.assert_close(row.phi(T), expected, rtol=1e-12, atol=1e-15)


@ROWS
def test_slope_is_the_derivative(row):
    t = T[(T - 1).abs() > 1e-6].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(row.phi(t).sum(), t)
    torch.testing.assert_close(row.slope(t.detach()), gradient, rtol=1e-12, atol=1e-15)


@ROWS
def test_two_sided_form(row):
    f, pos, neg = torch.randn(3, 200, dtype=torch.float64)
    torch.testing.assert_close(row.two_sided(f, pos, neg), pos * row.phi(f) + neg * row.phi(-f))


@ROWS
def test_two_sided_form_with_its_slope(row):
    f, pos, neg = torch.randn(3, 200, dtype=torch.float64)
    f[:2] = torch.tensor([1.0, -1.0])  # kinks of the hinge
    value, slope = row.two_sided_slope(f, pos, neg)
    torch.testing.assert_close(value, row.two_sided(f, pos, neg))
    torch.testing.assert_close(slope, pos * row.slope(f) - neg * row.slope(-f))


@ROWS
def test_convex(row):
    phi = row.phi(T)
    second_difference = phi[2:] - 2 * phi[1:-1] + phi[:-2]
    assert bool((second_difference >= -1e-12).all()) == row.convex


@ROWS
def test_bounded(row):
    far = row.phi(torch.tensor([-1e6, 1e6], dtype=torch.float64))
    assert bool((far <= 2 * row.at_zero + 1e-9).all()) == row.bounded


@ROWS
def test_symmetric(row):
    total = row.phi(T) + row.phi(-T)
    assert bool(torch.allclose(total, torch.full_like(total, 2 * row.at_zero), atol=1e-12)) == row.symmetric


@ROWS
def test_negative_slope_at_zero(row):
    assert row.slope_at_zero < 0


@ROWS
def test_lipschitz(row):
    steepest = row.slope(torch.linspace(-1e4, 1e4, 200_001, dtype=torch.float64)).abs().max().item()
    if math.isinf(row.lipschitz):
        assert steepest > 1e4
    else:
        assert steepest == pytest.approx(row.lipschitz, rel=1e-6)


@ROWS
def test_consistency_claims_follow_from_the_theorems_conditions(row):
    """Theorem 3 and Theorem 5 (their conclusions are tested in tests/theory)."""
    if row.convex and row.slope_at_zero < 0:
        assert row.hamming_consistent
    non_increasing = bool((row.slope(T) <= 1e-12).all())
    assert row.ranking_consistent == (non_increasing and row.symmetric and row.slope_at_zero < 0)


def test_unknown_names_and_kinds():
    with pytest.raises(ValueError, match=r"unknown surrogate 'sigmod'; did you mean 'sigmoid'\? Known: square"):
        resolve_surrogate("sigmod")
    with pytest.raises(TypeError, match="must be one of square, hinge, sigmoid, logistic or a callable"):
        resolve_surrogate(3)
