"""Pair sums, noise models and training on a CUDA device. Skipped without one."""

import numpy as np
import pytest
import torch

from ccmn.losses import SURROGATES
from ccmn.losses.ranking import pair_sum
from ccmn.noise import ClassConditionalNoise

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

DEVICE = torch.device("cuda")


def device_and_reference(surrogate, f, p):
    """Return value and gradient on the device, and in float64 on the CPU."""
    results = []
    for scores, targets in ((f.to(DEVICE), p.to(DEVICE)), (f.double(), p.double())):
        leaf = scores.clone().requires_grad_()
        value = pair_sum(leaf, targets, 1 - targets, SURROGATES[surrogate])
        value.sum().backward()
        results.append((value.detach().cpu().double(), leaf.grad.cpu().double()))
    return results


def test_pair_sum_equals_the_cpu():
    torch.manual_seed(0)
    for surrogate in SURROGATES:
        for q in (1, 2, 14, 200, 3000):
            for scale in (0.1, 1.0, 5.0):
                f, p = torch.randn(4, q) * scale, torch.randn(4, q)
                (value, gradient), (exact, exact_gradient) = device_and_reference(surrogate, f, p)
                n = 1 - p
                weight = (p.abs().sum(1) * n.abs().sum(1)).double()
                width = float((f.max() - f.min()).abs()) + 1
                largest = {"square": (1 + width) ** 2, "sigmoid": 1.0}.get(surrogate, 1 + width)
                slope = 2 * (1 + width) if surrogate == "square" else 1.0
                assert ((value - exact).abs() <= 1e-6 * weight * largest + 1e-12).all(), (surrogate, q, scale)
                bound = (p.abs() * n.abs().sum(1, True) + n.abs() * p.abs().sum(1, True)).amax(1).double()
                error = (gradient - exact_gradient).abs().amax(1)
                assert (error <= 1e-5 * bound * slope + 1e-12).all(), (surrogate, q, scale)


def test_corrupt_and_debias_stay_on_the_device():
    noise = ClassConditionalNoise(0.2, 0.1, n_labels=4)
    Y = torch.randint(0, 2, (50, 4), device=DEVICE)
    assert noise.corrupt(Y, random_state=0).device.type == "cuda"
    assert (noise.corrupt(Y, random_state=0).cpu() == noise.corrupt(Y.cpu(), random_state=0)).all()
    assert noise.debias(Y).device.type == "cuda"


def test_captured_fleet_equals_the_eager_fleet():
    """Graph replay on the device and the eager loop on the CPU give the same test values up to rounding."""
    from ccmn.data import MultiLabelData, make_noisy_multilabel
    from ccmn.paper.fleet import FleetSettings, run_fleet
    from ccmn.paper.protocols import MODERATE, make_repeat

    task = make_noisy_multilabel(330, 8, 5, random_state=0)
    data = MultiLabelData(X=task.X.astype(np.float32), Y=task.Y)
    repeats = [make_repeat(data, MODERATE, k) for k in range(2)]
    for model in ("linear", "mlp"):
        settings = FleetSettings(model, epochs=8, batch_size=50)
        methods = ["unbiased-hamming-hinge", "plain-ranking-sigmoid"]
        values = [
            {
                (outcome.method, outcome.repeat, selection, metric): value
                for outcome in run_fleet(data, repeats, methods, settings, device=device)
                for selection, by_metric in outcome.values.items()
                for metric, value in by_metric.items()
            }
            for device in ("cpu", "cuda")
        ]
        for key, value in values[0].items():
            assert abs(values[1][key] - value) < 0.03, (model, key, value, values[1][key])


def test_classifier_on_the_device():
    from ccmn.data import make_noisy_multilabel
    from ccmn.models import CCMNClassifier

    noise = ClassConditionalNoise(0.1, 0.3, n_labels=5)
    task = make_noisy_multilabel(1500, 8, 5, noise=noise, random_state=0)
    scores = [
        CCMNClassifier(noise, loss="ranking", epochs=20, device=device, random_state=0)
        .fit(task.X, task.Y_noisy)
        .decision_function(task.X)
        for device in ("cpu", "cuda")
    ]
    assert np.corrcoef(scores[0].ravel(), scores[1].ravel())[0, 1] > 0.99
