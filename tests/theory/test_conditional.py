"""Conditional risks against their definition: the loss of Eq. (1), (2), (3), (5), summed over all label vectors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccmn.functional import hamming_loss, ranking_loss
from ccmn.losses import SURROGATES
from ccmn.theory import (
    TARGETS,
    LabelDistribution,
    bayes_risk,
    hamming_excess,
    hamming_risk,
    ranking_excess,
    ranking_risk,
)
from reference import PHI, eq3, eq5, noisy_vectors
from strategies import SEEDS, noises

LOSSES = {"hamming": hamming_loss, "ranking": ranking_loss}
EXCESS = {"hamming": hamming_excess, "ranking": ranking_excess}


@st.composite
def situations(draw):
    """A distribution over the vectors of up to 4 labels, and a score vector that may hold ties."""
    q, rng = draw(st.integers(1, 4)), np.random.default_rng(draw(SEEDS))
    p = LabelDistribution(rng.dirichlet(np.full(2**q, 0.5)))
    scores = rng.normal(size=q)
    return p, torch.tensor(scores.round() if draw(st.booleans()) else scores)


def eq1(f, y):
    return np.mean([(fj >= 0) != (yj == 1) for fj, yj in zip(f, y)])


def eq2(f, y):
    total = 0.0
    for j, k in itertools.combinations(range(len(f)), 2):
        if y[j] < y[k]:
            total += (f[j] > f[k]) + 0.5 * (f[j] == f[k])
        elif y[j] > y[k]:
            total += (f[k] > f[j]) + 0.5 * (f[k] == f[j])
    return total


def expected(p, loss):
    """sum_y p_y loss(y), y in {-1, +1}."""
    return sum(float(p_y) * loss([2 * int(y) - 1 for y in vector]) for p_y, vector in zip(p.p, p.vectors))


@given(situations())
def test_conditional_risks_are_those_of_eq_1_and_2(situation):
    p, f = situation
    assert float(hamming_risk(p, f)) == pytest.approx(expected(p, lambda y: eq1(f.tolist(), y)))
    assert float(ranking_risk(p, f)) == pytest.approx(expected(p, lambda y: eq2(f.tolist(), y)))


@given(situations(), st.sampled_from(sorted(PHI)))
def test_conditional_surrogate_risks_are_those_of_eq_3_and_5(situation, name):
    p, f = situation
    for target, equation in (("hamming", eq3), ("ranking", eq5)):
        W = TARGETS[target].surrogate_risk(p, f, SURROGATES[name].phi)
        assert float(W) == pytest.approx(expected(p, lambda y, eq=equation: eq(f.tolist(), y, PHI[name])))


@given(noises(q=3), SEEDS, st.sampled_from(sorted(PHI)), st.sampled_from(sorted(LOSSES)))
def test_noise_leaves_the_conditional_surrogate_risk_as_it_is(noise, seed, name, target):
    """W~(p, f) = W(p, f): the unbiased loss, averaged over true vectors and then over their noisy versions."""
    rng = np.random.default_rng(seed)
    p, f = LabelDistribution(rng.dirichlet(np.ones(8))), torch.tensor(rng.normal(size=3))
    total = 0.0
    for p_y, y in zip(p.p.tolist(), p.vectors.tolist()):
        for noisy, probability in noisy_vectors(y, noise.rho_pos, noise.rho_neg):
            targets = torch.tensor(noise.debias(np.array(noisy)))
            total += p_y * probability * float(LOSSES[target](f, targets, name))
    assert total == pytest.approx(float(TARGETS[target].surrogate_risk(p, f, SURROGATES[name].phi)), rel=1e-9, abs=1e-9)


@given(situations())
def test_the_excess_needs_the_marginals_alone(situation):
    p, f = situation
    for target, excess in EXCESS.items():
        above = float(TARGETS[target].risk(p, f)) - bayes_risk(p, target)
        assert float(excess(p.marginals, f)) == pytest.approx(above, abs=1e-12)


def test_many_score_vectors_at_once():
    p = LabelDistribution(np.random.default_rng(0).dirichlet(np.ones(8)))
    scores = torch.randn(5, 2, 3, dtype=torch.float64)
    for target, excess in EXCESS.items():
        row = TARGETS[target]
        for values in (row.risk(p, scores), row.surrogate_risk(p, scores, torch.exp), excess(p.marginals, scores)):
            assert values.shape == (5, 2)
        torch.testing.assert_close(row.risk(p, scores)[3, 1], row.risk(p, scores[3, 1]))


@pytest.mark.parametrize("p", [[0.5, 0.25, 0.25], [1.0], [[0.5, 0.5]], [0.7, 0.7], [1.5, -0.5], "half"])
def test_what_is_no_distribution_is_refused(p):
    with pytest.raises(ValueError, match="p must"):
        LabelDistribution(p)
