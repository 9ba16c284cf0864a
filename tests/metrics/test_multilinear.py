"""Multilinear forms against their reference for real-valued labels, and posterior probabilities of labels."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from sklearn.isotonic import IsotonicRegression

from ccmn.metrics.corrected_metrics import (
    clean_probability,
    corrected_average_precision,
    corrected_coverage,
    posterior,
    posterior_transform,
)
from metrics import reference
from strategies import SEEDS

FORMS = [
    (corrected_average_precision, reference.average_precision),
    (corrected_coverage, reference.coverage),
    (partial(corrected_coverage, normalized=True), partial(reference.coverage, normalized=True)),
]


@settings(max_examples=60)
@given(seed=SEEDS)
def test_agrees_with_sum_over_all_label_vectors(seed):
    rng = np.random.default_rng(seed)
    q = rng.integers(1, 7)
    p, f = rng.normal(0.5, 1, q), rng.normal(size=q).round(1) if rng.random() < 0.5 else rng.integers(3, size=q) * 1.0
    p[rng.random(q) < 0.3] = rng.integers(2)
    for fast, slow in FORMS:
        found = fast(torch.tensor(p)[None], torch.tensor(f)[None]).item()
        assert found == pytest.approx(reference.multilinear(slow, p, f), abs=1e-9)


@pytest.mark.parametrize("fast", [form[0] for form in FORMS])
def test_stacks_nan_and_weights(fast):
    torch.manual_seed(0)
    p, f = torch.rand(8, 4, dtype=torch.float64) * 2 - 0.5, torch.randn(2, 3, 8, 4).round(decimals=1)
    weights = torch.tensor([1.0, 2, 0, 1, 1, 3, 1, 1])
    repeated = torch.repeat_interleave(torch.arange(8), weights.long())
    stacked = fast(p, f)
    assert stacked.shape == (2, 3)
    assert stacked[1, 2].item() == pytest.approx(fast(p, f[1, 2]).item())
    assert fast(p, f[0, 0], weights).item() == pytest.approx(fast(p[repeated], f[0, 0][repeated]).item())
    p[3, 1] = torch.nan
    kept = [i for i in range(8) if i != 3]
    assert fast(p, f[0, 0]).item() == pytest.approx(fast(p[kept], f[0, 0][kept]).item())


def test_factor_of_zero_at_quadrature_node():
    """For p = 1 / (1 - z) at a node z, the full product is 0 and products without the factor are not."""
    z = 0.5 - 0.5 / 3**0.5  # node for two labels
    p, f = [1 / (1 - z), 0.3], [0.2, 0.7]
    found = corrected_average_precision(torch.tensor([p], dtype=torch.float64), torch.tensor([f])).item()
    assert found == pytest.approx(reference.multilinear(reference.average_precision, p, f), abs=1e-12)


def test_missing_rate_of_one_half():
    """For p = 2, the factor is 0 at the central node."""
    p, f = [2.0, 0.0, 2.0, 2.0], [0.2, 0.7, 0.1, 0.7]
    found = corrected_average_precision(torch.tensor([p], dtype=torch.float64), torch.tensor([f])).item()
    assert found == pytest.approx(reference.multilinear(reference.average_precision, p, f), abs=1e-12)


def make_task(n, q, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, q)).round(1)
    return torch.tensor(scores), torch.tensor(rng.random((n, q)) < 1 / (1 + np.exp(-2 * scores))).double()


def test_bayes_rule():
    found = posterior(
        torch.tensor([[1.0, 0.0, torch.nan]]),
        torch.tensor([[0.3, 0.3, 0.3]]).double(),
        torch.full((3,), 0.2).double(),
        torch.full((3,), 0.1).double(),
    )
    assert found[0, 0].item() == pytest.approx(0.3 * 0.8 / (0.3 * 0.8 + 0.7 * 0.1))
    assert found[0, 1].item() == pytest.approx(0.3 * 0.2 / (0.3 * 0.2 + 0.7 * 0.9))
    assert found[0, 2].isnan()


def test_posterior_of_clean_label_is_the_label():
    scores, Y = make_task(60, 3)
    none = torch.zeros(3).double()
    torch.testing.assert_close(posterior_transform(scores)(Y, none, none, torch.ones(60).double()), Y)


def test_clean_labels_give_isotonic_regression():
    scores, Y = make_task(200, 2)
    found = clean_probability(Y, scores, torch.ones(200).double()).numpy()
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
    found = clean_probability(p, scores, weights)
    assert ((found >= 0) & (found <= 1)).all()
    assert (weights @ found).sum().item() == pytest.approx((weights @ p).sum().clamp(min=0).item(), abs=1e-6)
    for j in range(4):
        order = scores[:, j].argsort()
        assert (found[order, j].diff() >= -1e-12).all()
        assert len(set(zip(scores[:, j].tolist(), found[:, j].tolist()))) == scores[:, j].unique().numel()
    # A row of weight k equals k rows.
    repeated = torch.repeat_interleave(torch.arange(80), weights.long())
    again = clean_probability(p[repeated], scores[repeated], torch.ones(len(repeated)).double())
    torch.testing.assert_close(again, found[repeated], atol=1e-7, rtol=0)
