from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ccmn.noise import ClassConditionalNoise, TransitionNoise
from ccmn.report.facts.cooccurrence import MOST_LABELS, conditional_shares, cooccurrence_facts


def slow_shares(p):
    """Pair by pair, row by row."""
    q = p.shape[1]
    shares = np.full((q, q), np.nan)
    for j, k in itertools.product(range(q), repeat=2):
        both = [row for row in p if not np.isnan(row[j]) and not np.isnan(row[k])]
        having = sum(row[j] for row in both)
        if having > 0:
            shares[j, k] = sum(row[j] * row[k] for row in both) / having
        if j == k:
            shares[j, k] = 1
    return shares


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_those_of_loops(seed):
    rng = np.random.default_rng(seed)
    Y = rng.choice([0.0, 1.0, np.nan], size=(30, 4), p=[0.5, 0.3, 0.2])
    noise = ClassConditionalNoise([0.1, 0.2, 0.0, 0.3], [0.2, 0.1, 0.1, 0.0])
    facts = cooccurrence_facts(Y, list("abcd"), noise)
    assert_allclose(facts.given, slow_shares(Y))
    assert_allclose(facts.corrected, slow_shares(noise.debias(Y)).clip(0, 1))


def test_both_sums_are_unbiased():
    """Over all noisy label vectors of two rows, the sums of debiased labels have the means of the clean ones."""
    Y = np.array([[1, 0], [1, 1]])
    noise = ClassConditionalNoise([0.2, 0.3], [0.1, 0.25])
    together, having = 0.0, 0.0
    for flat in itertools.product((0, 1), repeat=4):
        noisy = np.array(flat, dtype=np.float64).reshape(2, 2)
        on = np.where(Y == 1, 1 - noise.rho_pos, noise.rho_neg)
        probability = np.where(noisy == 1, on, 1 - on).prod()
        p = noise.debias(noisy)
        together += probability * (p[:, 0] * p[:, 1]).sum()
        having += probability * p[:, 0].sum()
    assert together == pytest.approx(1, abs=1e-10)
    assert having == pytest.approx(2, abs=1e-10)


def test_the_commonest_labels_in_their_order():
    Y = np.triu(np.ones((100, 100)))
    facts = cooccurrence_facts(Y, [str(j) for j in range(100)])
    assert facts.names == tuple(str(j) for j in range(100 - MOST_LABELS, 100))
    assert facts.left_out == 100 - MOST_LABELS
    assert facts.corrected is None


def test_noise_that_moves_labels_together_is_not_corrected():
    noise = TransitionNoise([[0.8, 0.2], [0.1, 0.9]])
    assert cooccurrence_facts(np.eye(2), ["a", "b"], noise).corrected is None


def test_a_label_that_is_never_given_has_no_shares():
    shares = conditional_shares(np.array([[0.0, 1.0]]))
    assert np.isnan(shares[0, 1])
    assert shares[1, 0] == 0
