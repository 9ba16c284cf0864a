"""Definition 1 and Theorems 1, 3 and 5, checked for three labels by minimizing the conditional surrogate risk."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from ccmn.losses import SURROGATES, hamming_loss, ranking_loss
from helpers import load_script
from paper.theory.consistency import (
    TARGETS,
    LabelDistribution,
    bayes_margin,
    bayes_risk,
    consistency_gap,
    hamming_risk,
    in_bayes_set,
    minimize_surrogate_risk,
    ranking_risk,
)
from reference import PHI, eq3, eq5, noisy_vectors
from strategies import SEEDS, noises

MARGIN = 0.02
"""Distributions with a smaller margin of the Bayes decision are skipped."""

# Label sets {2, 3} with probability .3, {1} with .4 and {1, 2} with .3: the marginals are .7, .6, .3, so label 1 ranks
# before label 2. But label 1 never occurs together with label 3, the least likely one, and label 2 does.
COUNTEREXAMPLE = LabelDistribution([0, 0, 0, 0.3, 0.4, 0, 0.3, 0])


def distributions(target: str, count: int) -> list[LabelDistribution]:
    """Return random distributions over the 8 vectors of three labels, from flat to peaked, without near-ties."""
    rng = np.random.default_rng(0)
    found: list[LabelDistribution] = []
    while len(found) < count:
        p = LabelDistribution(rng.dirichlet(np.full(8, rng.choice([0.2, 0.5, 1.0, 3.0]))))
        if bayes_margin(p, target) >= MARGIN:
            found.append(p)
    return found


CONVEX = [name for name, surrogate in SURROGATES.items() if surrogate.convex]


@pytest.mark.parametrize("target", list(TARGETS))
def test_bayes_set_minimizes_the_conditional_risk(target):
    rng = np.random.default_rng(1)
    for p in distributions(target, 20):
        best = bayes_risk(p, target)
        for scores in torch.tensor(rng.normal(size=(20, 3))):
            assert in_bayes_set(p, scores, target, 0.0) == (float(TARGETS[target].risk(p, scores)) <= best + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONVEX)
def test_theorem_3_convex_surrogates_are_consistent_for_hamming(name):
    phi = SURROGATES[name].phi
    for p in distributions("hamming", 15):
        assert in_bayes_set(p, minimize_surrogate_risk(p, phi, "hamming", starts=1).scores, "hamming")
        assert consistency_gap(p, phi, "hamming", starts=1) > 0


@pytest.mark.slow
@pytest.mark.parametrize("target", list(TARGETS))
def test_theorem_5_sigmoid_is_consistent_for_both_losses(target):
    phi = SURROGATES["sigmoid"].phi
    for p in distributions(target, 30):
        assert in_bayes_set(p, minimize_surrogate_risk(p, phi, target).scores, target)
        # For a symmetric phi the gap is at least half the margin, the risk of one undecided comparison.
        assert consistency_gap(p, phi, target) > 0.45 * bayes_margin(p, target)


@pytest.mark.parametrize(("name", "gap", "ahead"), [("square", -0.001589, 0.0413), ("logistic", -0.000858, 0.0893)])
def test_square_and_logistic_are_not_consistent_for_ranking(name, gap, ahead):
    """Every minimizer ranks label 2 before label 1, which adds the difference of their marginals, .1, to the risk."""
    p, phi = COUNTEREXAMPLE, SURROGATES[name].phi
    assert p.marginals.tolist() == pytest.approx([0.7, 0.6, 0.3])
    found = minimize_surrogate_risk(p, phi, "ranking")
    assert float(found.scores[1] - found.scores[0]) == pytest.approx(ahead, abs=1e-4)
    assert not in_bayes_set(p, found.scores, "ranking")
    assert consistency_gap(p, phi, "ranking") == pytest.approx(gap, abs=2e-6)
    assert float(TARGETS["ranking"].risk(p, found.scores)) - bayes_risk(p, "ranking") == pytest.approx(0.1)


def hinge_linear_program(p: LabelDistribution, towards: np.ndarray | None = None, at_most: float = np.inf) -> float:
    """Return the minimum of the hinge ranking risk, or the maximum of ``towards @ f`` at a risk of ``at_most``."""
    pairs = [(j, k) for j in range(p.q) for k in range(p.q) if j != k]
    eye = np.eye(p.q)
    slack = np.array([np.r_[eye[k] - eye[j], -np.eye(len(pairs))[i]] for i, (j, k) in enumerate(pairs)])
    risk = np.r_[np.zeros(p.q), [float(p.pairs[j, k]) for j, k in pairs]]
    rows, limits = (slack, -np.ones(len(pairs)))
    if towards is not None:
        rows, limits = np.vstack([slack, risk]), np.r_[limits, at_most]
    cost = risk if towards is None else -np.r_[towards, np.zeros(len(pairs))]
    found = linprog(cost, A_ub=rows, b_ub=limits, bounds=[(-9, 9)] * p.q + [(0, None)] * len(pairs))
    return float(found.fun) if towards is None else -float(found.fun)


def test_hinge_is_not_consistent_for_ranking():
    """Every minimizer ties labels 1 and 2, which adds half the difference of their marginals to the risk.

    The gap is 0, but Definition 1 requires a positive one: the minimizers are on the boundary of the Bayes set.
    """
    p, phi = COUNTEREXAMPLE, SURROGATES["hinge"].phi
    least = hinge_linear_program(p)
    assert least == pytest.approx(1.3)
    # In the whole set of minimizers, the scores of labels 1 and 2 are equal.
    assert hinge_linear_program(p, np.array([1.0, -1, 0]), least + 1e-9) == pytest.approx(0, abs=1e-7)
    assert hinge_linear_program(p, np.array([-1.0, 1, 0]), least + 1e-9) == pytest.approx(0, abs=1e-7)
    found = minimize_surrogate_risk(p, phi, "ranking")
    assert found.value == pytest.approx(least, abs=1e-9)
    assert not in_bayes_set(p, found.scores, "ranking")
    assert consistency_gap(p, phi, "ranking") == pytest.approx(0, abs=1e-9)
    assert float(TARGETS["ranking"].risk(p, torch.tensor([0.0, 0, -1]))) - bayes_risk(p, "ranking") == pytest.approx(
        0.05
    )


def test_minimizer_equals_the_linear_program_at_kinks():
    for p in distributions("ranking", 8):
        found = minimize_surrogate_risk(p, SURROGATES["hinge"].phi, "ranking")
        assert found.value == pytest.approx(hinge_linear_program(p), abs=1e-8)


def test_theorem_1_scores_within_the_gap_are_bayes_decisions():
    """If the surrogate risk of a sequence converges to its minimum, the risk converges to the Bayes risk."""
    phi, rng = SURROGATES["sigmoid"].phi, np.random.default_rng(2)
    within = 0
    for p in distributions("ranking", 10):
        low, gap = minimize_surrogate_risk(p, phi, "ranking"), consistency_gap(p, phi, "ranking")
        scores = torch.tensor(rng.normal(scale=6, size=(200, 3)))
        near = TARGETS["ranking"].surrogate_risk(p, scores, phi) < low.value + gap
        assert all(in_bayes_set(p, f, "ranking", 0.0) for f in scores[near])
        within += int(near.sum())
    assert within > 100


def test_theorem_1_without_a_gap_the_risk_stays_above_the_bayes_risk():
    p, phi = COUNTEREXAMPLE, SURROGATES["square"].phi
    low = minimize_surrogate_risk(p, phi, "ranking")
    path = [low.scores + torch.tensor([2.0, -1, 0]) / 4**step for step in range(1, 10)]
    above = [float(TARGETS["ranking"].surrogate_risk(p, f, phi)) - low.value for f in path]
    risks = [float(TARGETS["ranking"].risk(p, f)) - bayes_risk(p, "ranking") for f in path]
    assert above == sorted(above, reverse=True)
    assert above[-1] < 1e-9
    assert risks[-1] == pytest.approx(0.1)


# -- Conditional risks


EXAMPLES = load_script("examples/known_posterior.py")
LOSSES = {"hamming": hamming_loss, "ranking": ranking_loss}


@st.composite
def distributions_and_scores(draw):
    """Draw a distribution over the vectors of up to 4 labels, and a score vector that may contain ties."""
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


@given(distributions_and_scores())
def test_conditional_risks_are_those_of_eq_1_and_2(case):
    p, f = case
    assert float(hamming_risk(p, f)) == pytest.approx(expected(p, lambda y: eq1(f.tolist(), y)))
    assert float(ranking_risk(p, f)) == pytest.approx(expected(p, lambda y: eq2(f.tolist(), y)))


@given(distributions_and_scores(), st.sampled_from(sorted(PHI)))
def test_conditional_surrogate_risks_are_those_of_eq_3_and_5(case, name):
    p, f = case
    for target, equation in (("hamming", eq3), ("ranking", eq5)):
        W = TARGETS[target].surrogate_risk(p, f, SURROGATES[name].phi)
        assert float(W) == pytest.approx(expected(p, lambda y, eq=equation: eq(f.tolist(), y, PHI[name])))


@given(noises(q=3), SEEDS, st.sampled_from(sorted(PHI)), st.sampled_from(sorted(LOSSES)))
def test_noise_does_not_change_the_conditional_surrogate_risk(noise, seed, name, target):
    """The unbiased loss, averaged over true vectors and their noisy versions, equals W(p, f)."""
    rng = np.random.default_rng(seed)
    p, f = LabelDistribution(rng.dirichlet(np.ones(8))), torch.tensor(rng.normal(size=3))
    total = 0.0
    for p_y, y in zip(p.p.tolist(), p.vectors.tolist()):
        for noisy, probability in noisy_vectors(y, noise.rho_pos, noise.rho_neg):
            targets = torch.tensor(noise.debias(np.array(noisy)))
            total += p_y * probability * float(LOSSES[target](f, targets, name))
    assert total == pytest.approx(float(TARGETS[target].surrogate_risk(p, f, SURROGATES[name].phi)), rel=1e-9, abs=1e-9)


@given(distributions_and_scores())
def test_excess_risk_depends_on_the_marginals_only(case):
    """The examples compute the excess risk from the marginals."""
    p, f = case
    for target in TARGETS:
        excess = getattr(EXAMPLES, f"{target}_excess")
        above = float(TARGETS[target].risk(p, f)) - bayes_risk(p, target)
        assert float(excess(p.marginals, f)) == pytest.approx(above, abs=1e-12)
