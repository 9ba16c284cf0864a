"""Plug-in: model selection and predictions use scores of the true labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ccmn.models.plugin_loss import PluginLoss

from ccmn import CCMNClassifier, ClassConditionalNoise, PartialNoise
from ccmn.data import make_noisy_multilabel
from ccmn.metrics import hamming_loss
from ccmn.noise import TransitionNoise


def test_scores_invert_the_noise():
    loss = PluginLoss(ClassConditionalNoise([0.1, 0.0], [0.4, 0.6]))
    # P(noisy = 1) where the true label has probability 1/2: (1 - rho_pos + rho_neg) / 2.
    half = torch.tensor([[0.65, 0.8]], dtype=torch.float64)
    assert loss.decision(half.logit()).numpy() == pytest.approx(np.zeros((1, 2)), abs=1e-12)
    assert loss.decision((half + 0.05).logit())[0].tolist() == pytest.approx([0.2, 0.25])


def test_loss_is_that_of_the_noisy_labels():
    loss = PluginLoss(PartialNoise([0.6]))
    assert float(loss(torch.zeros(1, 1), torch.ones(1, 1))) == pytest.approx(np.log(2))


def test_transition_noise_is_rejected():
    with pytest.raises(TypeError, match="loss='plugin' requires two rates per label; got TransitionNoise"):
        PluginLoss(TransitionNoise(np.eye(3)))


def test_epoch_is_selected_by_scores_of_true_labels():
    noise = PartialNoise(0.6, n_labels=4)
    task = make_noisy_multilabel(900, 10, 4, strength=6, noise=noise, random_state=0)
    rows, out = slice(0, 600), slice(600, 900)
    clf = CCMNClassifier(noise, loss="plugin", solver="adam", epochs=30, lr=(0.05, 0.005), random_state=0)
    clf.fit(task.X[rows], task.Y_noisy[rows], validation=(task.X[out], task.Y_noisy[out]))
    p, h = noise.debias(task.Y_noisy[out].astype(float)), clf.predict(task.X[out])
    reached = (p * (1 - h) + (1 - p) * h).mean()
    assert clf.history_["hamming_loss"].min() == pytest.approx(reached, abs=1e-6)
    assert hamming_loss(task.Y[out], h) < 0.2
