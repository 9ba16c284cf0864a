"""Posterior probabilities of labels: Bayes' rule, increasing in the score, in all as many as debiased labels say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from sklearn.isotonic import IsotonicRegression

from ccmn.metrics.corrected_metrics import by_scores, clean_probability, posterior
from strategies import SEEDS


def task(n, q, seed=0):
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


def test_without_noise_it_is_the_label():
    scores, Y = task(60, 3)
    none = torch.zeros(3).double()
    torch.testing.assert_close(by_scores(scores)(Y, none, none, torch.ones(60).double()), Y)


def test_clean_labels_give_the_isotonic_regression():
    scores, Y = task(200, 2)
    found = clean_probability(Y, scores, torch.ones(200).double()).numpy()
    for j in range(2):
        expected = IsotonicRegression().fit_transform(scores[:, j].numpy(), Y[:, j].numpy())
        np.testing.assert_allclose(found[:, j], expected, atol=1e-9)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_increasing_in_the_score_with_the_right_total(seed):
    rng = np.random.default_rng(seed)
    scores, Y = task(80, 4, seed)
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
    # A row of weight k is k rows.
    repeated = torch.repeat_interleave(torch.arange(80), weights.long())
    again = clean_probability(p[repeated], scores[repeated], torch.ones(len(repeated)).double())
    torch.testing.assert_close(again, found[repeated], atol=1e-7, rtol=0)
