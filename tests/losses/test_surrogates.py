"""Numerical checks of every property and closed form of the surrogates."""

import math

import pytest
import torch

from ccmn.losses import SURROGATES, HammingLoss
from helpers import slope_of
from reference import PHI

T = torch.linspace(-20, 20, 4001, dtype=torch.float64)
ALL = pytest.mark.parametrize("surrogate", SURROGATES.values(), ids=list(SURROGATES))


@ALL
def test_phi_equals_the_reference(surrogate):
    expected = torch.tensor([PHI[surrogate.name](t) for t in T.tolist()], dtype=torch.float64)
    torch.testing.assert_close(surrogate.phi(T), expected, rtol=1e-12, atol=1e-15)


def slope_at_zero(surrogate):
    return float(slope_of(surrogate, torch.zeros((), dtype=torch.float64)))


@ALL
def test_convex_bounded_symmetric_and_decreasing_at_zero(surrogate):
    phi, middle = surrogate.phi(T), 2 * surrogate.at_zero
    assert bool((phi[2:] - 2 * phi[1:-1] + phi[:-2] >= -1e-12).all()) == surrogate.convex
    far = surrogate.phi(torch.tensor([-1e6, 1e6], dtype=torch.float64))
    assert bool((far <= middle + 1e-9).all()) == surrogate.bounded
    total = phi + surrogate.phi(-T)
    assert bool(torch.allclose(total, torch.full_like(total, middle), atol=1e-12)) == surrogate.symmetric
    assert slope_at_zero(surrogate) < 0


@ALL
def test_lipschitz(surrogate):
    steepest = slope_of(surrogate, torch.linspace(-1e4, 1e4, 200_001, dtype=torch.float64)).abs().max().item()
    if math.isinf(surrogate.lipschitz):
        assert steepest > 1e4
    else:
        assert steepest == pytest.approx(surrogate.lipschitz, rel=1e-6)


@ALL
def test_consistency_follows_from_the_conditions_of_the_theorems(surrogate):
    """Theorems 3 and 5; tests/theory checks their conclusions."""
    if surrogate.convex and slope_at_zero(surrogate) < 0:
        assert surrogate.hamming_consistent
    non_increasing = bool((slope_of(surrogate, T) <= 1e-12).all())
    assert surrogate.ranking_consistent == (non_increasing and surrogate.symmetric and slope_at_zero(surrogate) < 0)


def test_unknown_surrogates_are_rejected():
    with pytest.raises(ValueError, match="'sigmod'; did you mean 'sigmoid'"):
        HammingLoss("sigmod")
    with pytest.raises(TypeError, match="square, hinge, sigmoid, logistic"):
        HammingLoss(3)
