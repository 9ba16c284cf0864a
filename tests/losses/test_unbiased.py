"""Unbiasedness of the losses, checked by enumerating all noisy label vectors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccmn.losses import SURROGATES, HammingLoss, RankingLoss, hamming_loss, ranking_loss
from ccmn.noise import ClassConditionalNoise, PartialNoise, TransitionNoise
from reference import PHI, eq3, eq4, eq5, eq6, eq8, eq9, eq10, noisy_vectors, paper_rates
from strategies import SEEDS, noises

ALL_SURROGATES = pytest.mark.parametrize(
    "surrogate", [*SURROGATES, lambda t: torch.exp(-t / 2)], ids=[*SURROGATES, "callable"]
)
LOSSES = pytest.mark.parametrize(
    "make",
    [HammingLoss, lambda phi, noise: RankingLoss(phi, noise, dummy=False), RankingLoss],
    ids=["hamming", "ranking", "ranking with dummy"],
)


def value_and_gradient(loss, outputs, labels):
    outputs = outputs.clone().requires_grad_()
    value = loss(outputs, torch.tensor(labels, dtype=torch.float64))
    return value.item(), torch.autograd.grad(value, outputs)[0]


@LOSSES
@ALL_SURROGATES
@settings(max_examples=15)
@given(noise=noises(), seed=SEEDS)
def test_expectation_is_the_loss_on_true_labels(make, surrogate, noise, seed):
    torch.manual_seed(seed)
    q = noise.n_labels
    clean, unbiased = make(surrogate, None), make(surrogate, noise)
    outputs = torch.randn(clean.n_outputs(q), dtype=torch.float64)
    y = torch.randint(0, 2, (q,)).tolist()
    value, gradient = value_and_gradient(clean, outputs, y)
    mean, mean_gradient = 0.0, torch.zeros_like(outputs)
    # Debiased weights grow like 1/r per label, so the tolerance depends on the largest term.
    largest = 1.0
    for noisy, probability in noisy_vectors(y, noise.rho_pos, noise.rho_neg):
        v, g = value_and_gradient(unbiased, outputs, noisy)
        mean += probability * v
        mean_gradient += probability * g
        largest = max(largest, abs(v))
    assert mean == pytest.approx(value, abs=1e-10 * max(1.0, largest / 1e3))
    torch.testing.assert_close(mean_gradient, gradient, rtol=0, atol=1e-10 * max(1.0, largest / 1e3))


@LOSSES
@ALL_SURROGATES
def test_unbiased_under_a_transition_matrix(make, surrogate):
    """The noisy vectors are the q one-hot vectors, with the probabilities of a row of T."""
    T = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.25, 0.15, 0.6]]
    clean, unbiased = make(surrogate, None), make(surrogate, TransitionNoise(T))
    outputs = torch.tensor([0.3, -1.2, 0.8, 0.1], dtype=torch.float64)[: clean.n_outputs(3)]
    one_hot = torch.eye(3).tolist()
    for true in range(3):
        value, gradient = value_and_gradient(clean, outputs, one_hot[true])
        found = [value_and_gradient(unbiased, outputs, noisy) for noisy in one_hot]
        assert sum(T[true][k] * v for k, (v, _) in enumerate(found)) == pytest.approx(value, abs=1e-12)
        torch.testing.assert_close(sum(T[true][k] * g for k, (_, g) in enumerate(found)), gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SURROGATES)
@settings(max_examples=40)
@given(noise=noises(largest=7), seed=SEEDS)
def test_agrees_with_the_coefficients_of_the_paper(name, noise, seed):
    """Eq. (4), Eq. (6) with the coefficients a, b, c, d and kappa, and Eq. (8), to 1e-12."""
    torch.manual_seed(seed)
    f = torch.randn(noise.n_labels + 1, dtype=torch.float64)
    y = torch.randint(0, 2, (noise.n_labels,))
    signs, rho, phi = (2 * y - 1).tolist(), paper_rates(noise), PHI[name]
    f0, labels = f[0].item(), f[1:].tolist()
    p = noise.debias(y.double())
    expected4, expected6 = eq4(labels, signs, rho, phi), eq6(labels, signs, rho, phi)
    scale = max(1.0, float(p.abs().sum() * (1 - p).abs().sum())) * max(
        1.0, *(phi(a - b) for a in labels for b in labels)
    )
    assert hamming_loss(f[1:], p, name).item() == pytest.approx(expected4, rel=1e-12, abs=1e-12 * scale)
    assert ranking_loss(f[1:], p, name).item() == pytest.approx(expected6, rel=1e-12, abs=1e-12 * scale)
    with_dummy = expected6 + eq8(f0, labels, signs, rho, phi)
    assert RankingLoss(name, noise)(f, y).item() == pytest.approx(with_dummy, rel=1e-12, abs=2e-12 * scale)


@pytest.mark.parametrize("name", SURROGATES)
@settings(max_examples=20)
@given(q=st.integers(1, 6), seed=SEEDS)
def test_labels_without_noise_give_eq_3_and_eq_5(name, q, seed):
    torch.manual_seed(seed)
    f, y = torch.randn(q, dtype=torch.float64), torch.randint(0, 2, (q,))
    signs = (2 * y - 1).tolist()
    zero = ClassConditionalNoise(0.0, 0.0, n_labels=q)
    for loss, expected in (
        (HammingLoss(name), eq3(f.tolist(), signs, PHI[name])),
        (HammingLoss(name, zero), eq3(f.tolist(), signs, PHI[name])),
        (RankingLoss(name, dummy=False), eq5(f.tolist(), signs, PHI[name])),
        (RankingLoss(name, zero, dummy=False), eq5(f.tolist(), signs, PHI[name])),
    ):
        assert loss(f, y).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def coefficient_of(loss, labels, t, q):
    """Return the coefficient of phi(t): the loss for a phi that is 1 at t and 0 elsewhere."""
    return loss(torch.arange(1.0, q + 1, dtype=torch.float64) ** 3, labels, lambda x: (x == t).double()).item()


@settings(max_examples=25)
@given(seed=SEEDS, q=st.integers(2, 4))
def test_partial_noise_gives_the_coefficients_of_eq_9_and_eq_10(seed, q):
    """With the scores 1, 8, 27, ... all arguments of phi differ, so each coefficient can be read."""
    rng = torch.Generator().manual_seed(seed)
    rho = (torch.rand(q, generator=rng, dtype=torch.float64) * 0.9).tolist()
    y = torch.randint(0, 2, (q,), generator=rng)
    f = [float((j + 1) ** 3) for j in range(q)]
    p = PartialNoise(rho).debias(y.double())
    signs = (2 * y - 1).tolist()
    for t in [*f, *(-x for x in f)]:
        expected = eq9(f, signs, rho, lambda x, t=t: float(x == t))
        assert coefficient_of(hamming_loss, p, t, q) == pytest.approx(expected, abs=1e-12)
    for t in {a - b for a in f for b in f if a != b}:
        expected = eq10(f, signs, rho, lambda x, t=t: float(x == t))
        assert coefficient_of(ranking_loss, p, t, q) == pytest.approx(expected, rel=1e-12, abs=1e-12)
