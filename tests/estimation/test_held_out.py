"""Stacked corrected models: each as if alone, blind to its own label, and as likely as it should be."""

from __future__ import annotations

import numpy as np
import torch

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import likelihood
from ccmn.estimation.likelihood import Models, held_out_logits, likelihood_slope, log_likelihood
from ccmn.estimation.out_of_fold import spread_folds
from ccmn.noise import ClassConditionalNoise

NOISE = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.3, 0.0])
DATA = make_noisy_multilabel(400, 4, 3, strength=5.0, noise=NOISE, random_state=0)
Y = DATA.Y_noisy.astype(float)
X = DATA.X.astype(float)
FOLDS = spread_folds(Y, 3, np.random.default_rng(0))
PAIRS = [np.array([[0.0, 0.0], [0.2, 0.1]]), np.array([[0.0, 0.0]]), np.array([[0.0, 0.0], [0.4, 0.0], [0.2, 0.2]])]


def test_stacked_models_are_those_fitted_alone(monkeypatch):
    together = held_out_logits(X, Y, PAIRS, FOLDS)
    assert [found.shape for found in together] == [(400, 2), (400, 1), (400, 3)]
    monkeypatch.setattr(likelihood, "MOST_ENTRIES", 1)
    for one, other in zip(together, held_out_logits(X, Y, PAIRS, FOLDS)):
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_a_label_is_not_foreseen_from_itself():
    """A label that is pure chance cannot be foreseen, although its own column is among the features of the others."""
    chance = Y.copy()
    chance[:, 0] = np.random.default_rng(1).random(400) < 0.5
    logits = held_out_logits(X, chance, PAIRS, FOLDS)[0][:, 0]
    assert abs(np.corrcoef(logits, chance[:, 0])[0, 1]) < 0.2


def test_true_labels_are_foreseen():
    logits = held_out_logits(X, Y, PAIRS, FOLDS)
    for j in range(3):
        assert np.corrcoef(logits[j][:, -1], DATA.Y[:, j])[0, 1] > 0.6


def test_rows_not_observed_do_not_count():
    masked = Y.copy()
    masked[::7, 1] = np.nan
    found = held_out_logits(X, masked, PAIRS, FOLDS)
    assert all(np.isfinite(part).all() for part in found)


def test_the_slope_is_that_of_the_likelihood():
    label = torch.zeros(3, dtype=torch.long)
    models = Models(label, torch.tensor([0.0, 0.2, 0.3]).double(), torch.tensor([0.0, 0.1, 0.4]).double(), label)
    logits = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = (torch.arange(18).view(6, 3) % 2).double()
    log_likelihood(logits, labels, models).sum().backward()
    np.testing.assert_allclose(likelihood_slope(logits, labels, models).detach(), logits.grad, atol=1e-10)
