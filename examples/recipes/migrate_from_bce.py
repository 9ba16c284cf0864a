"""
From plain BCE in three lines
=============================

A training script with ``BCEWithLogitsLoss`` takes its labels at their word. Three lines make it unbiased under label
noise: one import, the noise, the criterion. Model, optimiser, data and prediction stay as they are. (A ranking loss
wants one output more, and its own cut: ``loss.n_outputs(q)`` and ``loss.decision(outputs)``.)

It prints::

    HammingLoss without noise, over BCE: 10.000
    wrong labels, BCE: 0.481
    wrong labels, unbiased: 0.158
"""

import torch

from ccmn import ClassConditionalNoise, HammingLoss  # line 1 of 3
from ccmn.data import load_digit_scenes

# %%
# Data: pictures of several handwritten digits each, by other hands in the second half. A tenth of the true labels get
# lost, half of the false ones are added.
data = load_digit_scenes(6000)
X, Y = torch.tensor(data.X), torch.tensor(data.Y, dtype=torch.float32)
X_train, X_test, Y_test = X[:3000], X[3000:], Y[3000:]
noise = ClassConditionalNoise(rho_pos=0.1, rho_neg=0.5, n_labels=10)  # line 2 of 3
Y_noisy = noise.corrupt(Y[:3000], random_state=0)


# %%
# Rates that are not known are estimated: ``noise = ccmn.estimate_noise(X, Y_noisy).noise``.
#
# The script as it was, with the criterion as its only argument.
def train(criterion: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Linear(384, 10)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in range(20):
        for rows in torch.randperm(3000).split(100):
            optimiser.zero_grad()
            criterion(model(X_train[rows]), Y_noisy[rows]).backward()
            optimiser.step()
    return model


# %%
# Without noise the new criterion is the old one, but for a sum over the labels where BCE has a mean: ten times as
# much here. Adam hardly minds; with plain gradient descent divide the learning rate by the number of labels.
bce = torch.nn.BCEWithLogitsLoss()
scores = torch.randn(5, 10)
print(f"HammingLoss without noise, over BCE: {HammingLoss('logistic')(scores, Y[:5]) / bce(scores, Y[:5]):.3f}")


# %%
# With it, noisy labels train nearly as true ones would. A label is still predicted where its logit is above 0.
def wrong_labels(model: torch.nn.Module) -> float:
    with torch.no_grad():
        return ((model(X_test) >= 0) != (Y_test == 1)).float().mean().item()


unbiased = HammingLoss("logistic", noise=noise)  # line 3 of 3
print(f"wrong labels, BCE: {wrong_labels(train(bce)):.3f}")
print(f"wrong labels, unbiased: {wrong_labels(train(unbiased)):.3f}")
