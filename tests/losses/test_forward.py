"""Checks of ForwardLoss."""

import math

import pytest
import torch

from ccmn.losses import ForwardLoss, HammingLoss
from ccmn.noise import ClassConditionalNoise, TransitionNoise


def test_value_is_the_likelihood_of_the_noisy_labels():
    noise = ClassConditionalNoise([0.2, 0.0], [0.1, 0.3])
    f, y = [0.7, -1.2], [1, 0]
    expected = 0.0
    for j in range(2):
        g = noise.rho_neg[j] + (1 - noise.rho_pos[j] - noise.rho_neg[j]) / (1 + math.exp(-f[j]))
        expected -= math.log(g if y[j] else 1 - g)
    loss = ForwardLoss(noise)
    assert loss(torch.tensor([f], dtype=torch.float64), torch.tensor([y])).item() == pytest.approx(expected, rel=1e-12)


def test_logistic_loss_without_noise():
    f, y = torch.randn(4, 3, dtype=torch.float64), torch.randint(0, 2, (4, 3))
    torch.testing.assert_close(ForwardLoss()(f, y), HammingLoss("logistic")(f, y))
    torch.testing.assert_close(ForwardLoss(ClassConditionalNoise(0.0, 0.0, n_labels=3))(f, y), ForwardLoss()(f, y))


def test_gradients_are_finite_and_zero_for_nan_labels():
    noise = ClassConditionalNoise([0.2, 0.0], [0.0, 0.3])
    f = torch.tensor([[80.0, -80.0], [-80.0, 80.0]], requires_grad=True)
    y = torch.tensor([[1.0, float("nan")], [0.0, 1.0]])
    ForwardLoss(noise)(f, y).backward()
    assert torch.isfinite(f.grad).all()
    assert f.grad[0, 1] == 0


def test_gradcheck():
    noise = ClassConditionalNoise([0.2, 0.1], [0.1, 0.3])
    f = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: ForwardLoss(noise)(t, torch.tensor([[1, 0], [0, 1], [1, 1]])), (f,))


def test_other_noise_models_are_rejected():
    with pytest.raises(TypeError, match="got TransitionNoise"):
        ForwardLoss(TransitionNoise([[0.9, 0.1], [0.2, 0.8]]))
