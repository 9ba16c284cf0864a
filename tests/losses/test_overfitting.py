"""Risk of a network that can fit every noisy label: only the corrected losses keep it from decreasing."""

from __future__ import annotations

import pytest
import torch

from ccmn.losses import HammingLoss
from ccmn.noise import ClassConditionalNoise


@pytest.mark.parametrize(("correction", "low", "high"), [(None, -1e9, -50), ("abs", -0.1, 1e9), ("relu", -0.5, 1e9)])
def test_risk_of_an_overfitting_network(correction, low, high):
    torch.manual_seed(0)
    X, Y = torch.randn(200, 20), torch.randint(0, 2, (200, 8))
    noise = ClassConditionalNoise(0.2, 0.2, n_labels=8)
    noisy = noise.corrupt(Y, random_state=0)
    network = torch.nn.Sequential(
        torch.nn.Linear(20, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)
    )
    trained, risk = (HammingLoss("logistic", noise, correction=c) for c in (correction, None))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(300):
        optimizer.zero_grad()
        trained(network(X), noisy).backward()
        optimizer.step()
    with torch.no_grad():
        # The loss is a mean over rows and a sum over 8 labels; the bounds are for a mean over both.
        assert low < float(risk(network(X), noisy)) / 8 < high
