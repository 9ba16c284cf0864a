from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from audit import reference
from ccmn.audit import p_wrong
from reference import noisy_vectors
from strategies import SEEDS, noises


@given(noises(q=4), SEEDS)
def test_exact_in_the_population(noise, seed):
    """Four labels that depend on each other: every true and every noisy vector with its probability."""
    p_true = dict(zip(itertools.product((0, 1), repeat=4), np.random.default_rng(seed).dirichlet(np.full(16, 0.5))))
    seen, wrong = np.zeros((2, 4)), np.zeros((2, 4))
    for true, p in p_true.items():
        for noisy, flipped in noisy_vectors(true, noise.rho_pos, noise.rho_neg):
            for j in range(4):
                seen[noisy[j], j] += p * flipped
                wrong[noisy[j], j] += p * flipped * (true[j] != noisy[j])
    given_labels = np.array([[0] * 4, [1] * 4])
    found = p_wrong(given_labels, np.stack([seen[1], seen[1]]), noise.rho_pos, noise.rho_neg)
    # Times the probability of being seen: of what is hardly ever seen, rounding leaves no ratio.
    assert_allclose(found * seen, wrong, atol=1e-12)


@given(noises(q=3), SEEDS)
def test_slow_twin(noise, seed):
    """Scores anywhere in [0, 1], the ends and the ends of the noise's range among them."""
    rng = np.random.default_rng(seed)
    # Rates of 0 or at least 0.001: at the end of a range of rate 1e-300, the last bit of a score decides everything.
    rho_pos, rho_neg = noise.rho_pos.round(3), noise.rho_neg.round(3)
    P = np.concatenate([rng.random((4, 3)), [[0, 1, 0], [1, 0, 1]], [rho_neg, 1 - rho_pos]])
    Y = rng.integers(0, 2, P.shape)
    expected = [
        [reference.p_wrong(y, p, a, b) for y, p, a, b in zip(labels, scores, rho_pos, rho_neg)]
        for labels, scores in zip(Y.tolist(), P.tolist())
    ]
    assert_allclose(p_wrong(Y, P, rho_pos, rho_neg), expected, atol=1e-11)


@given(noises(q=2), st.integers(0, 1))
def test_the_less_probable_the_given_label_the_more_suspicious(noise, value):
    P = np.linspace(0, 1, 101)[:, None].repeat(2, axis=1)
    found = p_wrong(np.full(P.shape, value), P, noise.rho_pos, noise.rho_neg)
    assert ((found >= 0) & (found <= 1)).all()
    steps = np.diff(found, axis=0) * (1 if value == 0 else -1)
    assert (steps >= -1e-15).all()


def test_what_is_sure_to_be_wrong_keeps_the_order_of_the_scores():
    found = p_wrong(np.ones((3, 1)), np.array([[0.1], [0.2], [0.3]]), np.array([0.2]), np.array([0.4]))
    assert_allclose(found, 1, atol=1e-12)
    assert found[0] > found[1] > found[2]


def test_a_side_without_noise_is_never_wrong():
    Y, P = np.array([[0, 1], [0, 1]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    assert p_wrong(Y, P, np.array([0.0, 0.3]), np.array([0.4, 0.0])).tolist() == [[0, 0], [0, 0]]


def test_not_observed():
    found = p_wrong(np.array([np.nan, 1.0]), np.array([0.5, 0.5]), np.array([0.1, 0.1]), np.array([0.2, 0.2]))
    assert np.isnan(found).tolist() == [True, False]
