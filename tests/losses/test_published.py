"""Published losses, compared with their formulas as plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from helpers import load_script

others = load_script("benchmarks/losses_of_others.py")
asymmetric_loss, focal_loss, hill_loss = others.asymmetric_loss, others.focal_loss, others.hill_loss
generalized_cross_entropy, large_loss_rejection = others.generalized_cross_entropy, others.large_loss_rejection

LOSSES = [asymmetric_loss, focal_loss, generalized_cross_entropy, hill_loss, large_loss_rejection]
EVERY = pytest.mark.parametrize("loss", LOSSES)
FRACTION = {large_loss_rejection: (0.3,)}


def sigmoid(t):
    return 1 / (1 + math.exp(-t))


def asl(f, y, gamma_pos=0.0, gamma_neg=4.0, margin=0.05):
    if y == 1:
        return -((1 - sigmoid(f)) ** gamma_pos) * math.log(sigmoid(f))
    shifted = max(sigmoid(f) - margin, 0)
    return -(shifted**gamma_neg) * math.log(1 - shifted)


def focal(f, y, gamma=2.0, alpha=0.25):
    p_t = sigmoid(f) if y == 1 else 1 - sigmoid(f)
    alpha_t = 1 if alpha is None else alpha if y == 1 else 1 - alpha
    return -alpha_t * (1 - p_t) ** gamma * math.log(p_t)


def gce(f, y, power=0.7):
    return (1 - (sigmoid(f) if y == 1 else 1 - sigmoid(f)) ** power) / power


def hill(f, y, scale=1.5, margin=1.0, gamma=2.0):
    if y == 1:
        return -((1 - sigmoid(f - margin)) ** gamma) * math.log(sigmoid(f - margin))
    return (scale - sigmoid(f)) * sigmoid(f) ** 2


def bce(f, y):
    return -math.log(sigmoid(f) if y == 1 else 1 - sigmoid(f))


CASES = [
    *((asymmetric_loss, asl, o) for o in ({}, {"gamma_pos": 1.0, "gamma_neg": 2.0, "margin": 0.0}, {"margin": 0.4})),
    *((focal_loss, focal, o) for o in ({}, {"gamma": 0.5, "alpha": None}, {"gamma": 0.0, "alpha": 0.9})),
    *((generalized_cross_entropy, gce, o) for o in ({}, {"power": 1.0}, {"power": 0.1})),
    *((hill_loss, hill, o) for o in ({}, {"scale": 2.0, "margin": 0.0, "gamma": 1.0})),
]


def batch():
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(6, 5, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, 2, (6, 5), generator=generator)


@pytest.mark.parametrize(("loss", "formula", "options"), CASES)
def test_equals_the_published_formula(loss, formula, options):
    scores, Y = batch()
    rows = [[formula(f, y, **options) for f, y in zip(*row)] for row in zip(scores.tolist(), Y.tolist())]
    expected = torch.tensor([sum(row) for row in rows], dtype=torch.float64)
    torch.testing.assert_close(loss(scores, Y, **options), expected, rtol=1e-10, atol=1e-12)
    mean = loss(scores, Y, label_reduction="mean", **options)
    torch.testing.assert_close(mean, expected / 5, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.3, 1.0])
def test_large_loss_rejection_equals_its_definition(fraction):
    scores, Y = batch()
    losses = [[bce(f, y) for f, y in zip(*row)] for row in zip(scores.tolist(), Y.tolist())]
    negative = sorted((losses[i][j] for i in range(6) for j in range(5) if Y[i, j] == 0), reverse=True)
    rejected = set(negative[: math.ceil(fraction * len(negative))])
    expected = [sum(v for v, y in zip(row, labels) if y == 1 or v not in rejected) for row, labels in zip(losses, Y)]
    torch.testing.assert_close(
        large_loss_rejection(scores, Y, fraction), torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12
    )


@EVERY
def test_gradients_nan_targets_and_half_precision(loss):
    arguments = FRACTION.get(loss, ())
    scores, Y = batch()
    Y = Y.double()
    Y[1, 2] = Y[4, 0] = float("nan")
    leaf = scores.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda f: loss(f, Y, *arguments), (leaf,))
    loss(leaf, Y, *arguments).sum().backward()
    assert leaf.grad[Y.isnan()].eq(0).all()
    changed = scores.clone()
    changed[Y.isnan()] = 50
    torch.testing.assert_close(loss(changed, Y, *arguments), loss(scores, Y, *arguments))
    low = scores.bfloat16()
    value = loss(low, Y.bfloat16(), *arguments)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(low.float(), Y.float(), *arguments))


@EVERY
def test_large_scores_have_finite_losses_and_gradients(loss):
    scores = torch.tensor([[-90.0, -90.0, 90.0, 90.0]], requires_grad=True)
    value = loss(scores, torch.tensor([[0.0, 1.0, 0.0, 1.0]]), *FRACTION.get(loss, ()))
    value.sum().backward()
    assert value.isfinite().all()
    assert scores.grad.isfinite().all()


def test_invalid_parameters():
    scores, Y = batch()
    with pytest.raises(ValueError, match="label_reduction"):
        hill_loss(scores, Y, label_reduction="max")
    with pytest.raises(ValueError, match=r"power.*got 0"):
        generalized_cross_entropy(scores, Y, power=0)
    with pytest.raises(ValueError, match=r"rejected_fraction.*got 2"):
        large_loss_rejection(scores, Y, 2)
    with pytest.raises(ValueError, match=r"margin.*got -1"):
        asymmetric_loss(scores, Y, margin=-1)
    for loss in LOSSES:
        with pytest.raises(ValueError, match=r"\(3,\) and \(4,\)"):
            loss(torch.zeros(3), torch.zeros(4), *FRACTION.get(loss, ()))
