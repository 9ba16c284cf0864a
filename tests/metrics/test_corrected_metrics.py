"""Metrics on soft labels: unbiasedness by enumeration, multilinear forms, posterior probabilities of labels."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from sklearn.isotonic import IsotonicRegression

from ccmn.metrics import corrected_metrics as corrected
from ccmn.noise import ClassConditionalNoise
from metrics import reference
from reference import noisy_vectors, posterior
from strategies import SEEDS, noises

MULTILINEAR = [
    (corrected.average_precision, reference.average_precision),
    (corrected.coverage, reference.coverage),
    (partial(corrected.coverage, normalized=True), partial(reference.coverage, normalized=True)),
]
UNBIASED = [
    lambda p, f, w=None: corrected.hamming_sums(p, f >= 0, w).ratio(),
    lambda p, f, w=None: corrected.one_error_sums(p, f, w).ratio(),
    *(form for form, _ in MULTILINEAR),
]
moderate_noises = noises(q=4).filter(lambda noise: (1 - noise.rho_pos - noise.rho_neg).min() > 0.2)


@settings(max_examples=20)
@given(noise=moderate_noises, seed=SEEDS)
def test_mean_over_all_noisy_vectors_is_the_clean_value(noise, seed):
    rng = np.random.default_rng(seed)
    y, f = rng.integers(0, 2, 4), torch.tensor(rng.normal(size=(1, 4)).round(1))
    for value in (*UNBIASED, lambda p, f: torch.stack(corrected.pooled_ranking_sums(p, f))):
        mean = sum(
            w * value(noise.debias(torch.tensor([v], dtype=torch.float64)), f)
            for v, w in noisy_vectors(y, noise.rho_pos, noise.rho_neg)
        )
        torch.testing.assert_close(mean, value(torch.tensor(y[None]).double(), f), atol=1e-10, rtol=0)


def test_sums_of_average_precision_are_unbiased():
    """The mean of both sums over all noisy versions of a column of five rows, two of which have tied scores."""
    noise = ClassConditionalNoise([0.3], [0.2])
    scores = torch.tensor([[0.1], [0.7], [0.7], [0.4], [-0.2]])
    for true in ([1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]):
        mean = torch.zeros(2, dtype=torch.float64)
        for noisy, probability in noisy_vectors(true, np.full(5, 0.3), np.full(5, 0.2)):
            p = noise.debias(torch.tensor(noisy, dtype=torch.float64)[:, None])
            mean += probability * torch.cat(corrected.average_precision_sums(p, scores))
        expected = corrected.average_precision_sums(torch.tensor(true).double()[:, None], scores)
        torch.testing.assert_close(mean, torch.cat(expected), atol=1e-12, rtol=0)


@settings(max_examples=60)
@given(seed=SEEDS)
def test_multilinear_forms_are_sums_over_all_label_vectors(seed):
    rng = np.random.default_rng(seed)
    q = rng.integers(1, 7)
    p, f = rng.normal(0.5, 1, q), rng.normal(size=q).round(1) if rng.random() < 0.5 else rng.integers(3, size=q) * 1.0
    p[rng.random(q) < 0.3] = rng.integers(2)
    for fast, slow in MULTILINEAR:
        found = fast(torch.tensor(p)[None], torch.tensor(f)[None]).item()
        assert found == pytest.approx(reference.multilinear(slow, p, f), abs=1e-9)


Z = 0.5 - 0.5 / 3**0.5  # quadrature node for two labels


@pytest.mark.parametrize(
    ("p", "f"), [([1 / (1 - Z), 0.3], [0.2, 0.7]), ([2.0, 0.0, 2.0, 2.0], [0.2, 0.7, 0.1, 0.7])], ids=["two", "four"]
)
def test_factor_of_zero_at_quadrature_node(p, f):
    """For p = 1 / (1 - z) at a node z, the full product is 0 and products without the factor are not."""
    found = corrected.average_precision(torch.tensor([p], dtype=torch.float64), torch.tensor([f])).item()
    assert found == pytest.approx(reference.multilinear(reference.average_precision, p, f), abs=1e-12)


@pytest.mark.parametrize("metric", [*UNBIASED, lambda p, f, w=None: corrected.pooled_ranking_sums(p, f, w).ratio()])
def test_stacks_of_models_and_weights(metric):
    torch.manual_seed(0)
    p, f = torch.rand(8, 4, dtype=torch.float64) * 2 - 0.5, torch.randn(2, 3, 8, 4).round(decimals=1)
    weights = torch.tensor([1.0, 2, 0, 1, 1, 3, 1, 1])
    repeated = torch.repeat_interleave(torch.arange(8), weights.long())
    stacked = metric(p, f)
    assert stacked.shape == (2, 3)
    assert stacked[1, 2].item() == pytest.approx(metric(p, f[1, 2]).item())
    assert metric(p, f[0, 0], weights).item() == pytest.approx(metric(p[repeated], f[0, 0][repeated]).item())


# -- Posterior probabilities


def make_task(n, q, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, q)).round(1)
    return torch.tensor(scores), torch.tensor(rng.random((n, q)) < 1 / (1 + np.exp(-2 * scores))).double()


def test_posterior_is_bayes_rule():
    scores, Y = make_task(60, 2)
    Y[3, 1] = torch.nan
    rho_pos, rho_neg, ones = torch.tensor([0.2, 0.0]), torch.tensor([0.1, 0.0]), torch.ones(60).double()
    found = corrected.posterior_labels(scores, Y, rho_pos, rho_neg, ones)
    prior = corrected.clean_probability((Y - rho_neg) / (1 - rho_pos - rho_neg), scores, ones).clamp(1e-9, 1 - 1e-9)
    expected = [posterior(int(y), eta, 0.2, 0.1) for y, eta in zip(Y[:, 0], prior[:, 0].tolist())]
    assert found[:, 0].tolist() == pytest.approx(expected)
    torch.testing.assert_close(found[:, 1], Y[:, 1], equal_nan=True)  # clean labels


def test_clean_labels_give_isotonic_regression():
    scores, Y = make_task(200, 2)
    found = corrected.clean_probability(Y, scores, torch.ones(200).double()).numpy()
    for j in range(2):
        expected = IsotonicRegression().fit_transform(scores[:, j].numpy(), Y[:, j].numpy())
        np.testing.assert_allclose(found[:, j], expected, atol=1e-9)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_clean_probability_is_isotonic_with_correct_sum(seed):
    rng = np.random.default_rng(seed)
    scores, Y = make_task(80, 4, seed)
    rho = rng.uniform(0, 0.4, (2, 4))
    flip = torch.tensor(rng.random(Y.shape) < np.where(Y == 1, rho[0], rho[1]))
    p = (torch.where(flip, 1 - Y, Y) - torch.tensor(rho[1])) / torch.tensor(1 - rho.sum(0))
    weights = torch.tensor(rng.integers(1, 4, 80)).double()
    found = corrected.clean_probability(p, scores, weights)
    assert ((found >= 0) & (found <= 1)).all()
    assert (weights @ found).sum().item() == pytest.approx((weights @ p).sum().clamp(min=0).item(), abs=1e-6)
    for j in range(4):
        order = scores[:, j].argsort()
        assert (found[order, j].diff() >= -1e-12).all()
        assert len(set(zip(scores[:, j].tolist(), found[:, j].tolist()))) == scores[:, j].unique().numel()
    # A row of weight k equals k rows.
    repeated = torch.repeat_interleave(torch.arange(80), weights.long())
    again = corrected.clean_probability(p[repeated], scores[repeated], torch.ones(len(repeated)).double())
    torch.testing.assert_close(again, found[repeated], atol=1e-7, rtol=0)
