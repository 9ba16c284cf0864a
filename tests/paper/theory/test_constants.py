"""kappa, mu and the Lipschitz constants, compared with the modified phi of Eq. (4) and (6) in all cases."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given

from ccmn import ClassConditionalNoise
from ccmn.losses import SURROGATES
from ccmn.noise import TransitionNoise
from ccmn.paper.theory import _lipschitz_hamming, _lipschitz_ranking, _mu_hamming, _mu_ranking
from reference import eq4, eq6, paper_rates
from strategies import noises


def corner(up: float, down: float):
    """Return a phi with the value ``up`` for positive and ``down`` for negative arguments."""
    return lambda t: up if t > 0 else down


CORNERS = [corner(up, down) for up, down in itertools.product((0.0, 1.0), repeat=2)]


def range_hamming(noise) -> float:
    """Return the largest range over labels of the modified phi if label and score change, with 0 <= phi <= 1."""
    spans = []
    for rho in paper_rates(noise):
        values = [eq4([1.0], [y], [rho], phi) for y in (-1, 1) for phi in CORNERS]
        spans.append(max(values) - min(values))
    return max(spans)


def range_ranking(noise) -> float:
    spans = []
    for rho in itertools.combinations(paper_rates(noise), 2):
        values = [eq6([1.0, 0.0], y, rho, phi) for y in itertools.product((-1, 1), repeat=2) for phi in CORNERS]
        spans.append(max(values) - min(values))
    return max(spans)


@given(noises())
def test_mu_hamming_is_the_range_of_the_modified_phi(noise):
    assert _mu_hamming(noise) == pytest.approx(range_hamming(noise))
    assert _mu_hamming(noise, printed=True) == pytest.approx((1 / (1 - noise.rho_pos - noise.rho_neg)).max())
    assert _mu_hamming(noise, printed=True) <= _mu_hamming(noise) <= 2 * _mu_hamming(noise, printed=True)


@given(noises().filter(lambda noise: noise.n_labels > 1))
def test_mu_ranking_is_the_range_of_the_modified_phi(noise):
    assert _mu_ranking(noise) == pytest.approx(range_ranking(noise))
    signal, difference = 1 - noise.rho_pos - noise.rho_neg, abs(noise.rho_pos - noise.rho_neg)
    assert _mu_ranking(noise, printed=True) == pytest.approx(((1 + difference) / signal**2).max())
    # The factor 2 of the printed Theorem 4 compensates for this ratio.
    assert _mu_ranking(noise) <= np.sqrt(2) * _mu_ranking(noise, printed=True) * (1 + 1e-12)


def steepest(values: np.ndarray, t: np.ndarray) -> float:
    return float(np.abs(np.diff(values) / np.diff(t)).max())


@given(noises())
def test_lipschitz_hamming_is_the_steepest_slope(noise):
    t = np.linspace(-1e-3, 1e-3, 3)
    sigmoid = SURROGATES["sigmoid"].phi
    slopes = [
        steepest(np.array([eq4([x], [y], [rho], lambda s: float(sigmoid(torch.tensor(s)))) for x in t]), t)
        for rho in paper_rates(noise)
        for y in (-1, 1)
    ]
    assert max(slopes) == pytest.approx(_lipschitz_hamming(noise, 0.25), rel=1e-4)


@given(noises().filter(lambda noise: noise.n_labels > 1))
def test_lipschitz_ranking_is_the_steepest_slope_of_the_four_noisy_pairs(noise):
    t = np.array([1.0, 1.1])

    def slope(phi):
        return max(
            steepest(np.array([eq6([x, 0.0], y, rho, phi) for x in t]), t)
            for rho in itertools.combinations(paper_rates(noise), 2)
            for y in itertools.product((-1, 1), repeat=2)
        )

    # phi(t) = abs(t) attains the constant: both terms have slopes of the same sign.
    assert slope(abs) == pytest.approx(_lipschitz_ranking(noise, 1.0))
    assert slope(lambda s: max(0.0, 2 - s)) <= _lipschitz_ranking(noise, 1.0) * (1 + 1e-9)


@pytest.mark.parametrize("tied", [[0.2, 0.2, 0.2], [0.2, 0.2, 0.1]])
def test_labels_with_equal_rates_are_a_pair(tied):
    noise = ClassConditionalNoise(tied, tied)
    assert _mu_ranking(noise) == pytest.approx(1 / 0.36)


def test_invalid_arguments():
    with pytest.raises(TypeError, match=r"ClassConditionalNoise.*TransitionNoise"):
        _mu_hamming(TransitionNoise([[0.9, 0.1], [0.2, 0.8]]))
    with pytest.raises(ValueError, match="two labels"):
        _mu_ranking(ClassConditionalNoise([0.1], [0.1]))
    with pytest.raises(ValueError, match=r"lipschitz.*inf.*square"):
        _lipschitz_hamming(ClassConditionalNoise([0.1], [0.1]), float("inf"))
