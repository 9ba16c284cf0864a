"""
From plain BCE in three lines
=============================

A training script with ``BCEWithLogitsLoss`` assumes that all labels are right. Three changed lines make it unbiased
under label noise: the import, the noise model and the criterion. Model, optimizer, data and prediction do not change.
(A ranking loss needs one more output and its own threshold: ``loss.n_outputs(q)`` and ``loss.decision(outputs)``.)

It prints::

    HammingLoss without noise, divided by BCE: 10.000
    wrong labels, BCE: 0.481
    wrong labels, unbiased: 0.158
"""

import torch

from ccmn import ClassConditionalNoise, HammingLoss  # line 1 of 3
from ccmn.data import load_digit_scenes

# %%
# The data are pictures with several handwritten digits. The second half has other writers than the first. One tenth of
# the true labels are missing, and half of the absent labels are added.
data = load_digit_scenes(6000)
X, Y = torch.tensor(data.X), torch.tensor(data.Y, dtype=torch.float32)
X_train, X_test, Y_test = X[:3000], X[3000:], Y[3000:]
noise = ClassConditionalNoise(rho_pos=0.1, rho_neg=0.5, n_labels=10)  # line 2 of 3
Y_noisy = noise.corrupt(Y[:3000], random_state=0)


# %%
# Estimate the rates if they are unknown: ``noise = ccmn.estimate_noise(X, Y_noisy).noise``.
#
# The original training script, with the criterion as its only argument:
def train(criterion: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Linear(384, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in range(20):
        for rows in torch.randperm(3000).split(100):
            optimizer.zero_grad()
            criterion(model(X_train[rows]), Y_noisy[rows]).backward()
            optimizer.step()
    return model


# %%
# Without noise, the new criterion is BCE summed over the labels instead of averaged, here ten times as large. This
# hardly affects Adam. With plain gradient descent, divide the learning rate by the number of labels.
bce = torch.nn.BCEWithLogitsLoss()
scores = torch.randn(5, 10)
ratio = HammingLoss("logistic")(scores, Y[:5]) / bce(scores, Y[:5])
print(f"HammingLoss without noise, divided by BCE: {ratio:.3f}")


# %%
# With the noise model, the criterion is an unbiased estimate of the loss on the true labels. A label is still predicted
# if its logit is at least 0.
def wrong_labels(model: torch.nn.Module) -> float:
    with torch.no_grad():
        return ((model(X_test) >= 0) != (Y_test == 1)).float().mean().item()


unbiased = HammingLoss("logistic", noise=noise)  # line 3 of 3
print(f"wrong labels, BCE: {wrong_labels(train(bce)):.3f}")
print(f"wrong labels, unbiased: {wrong_labels(train(unbiased)):.3f}")
