"""
In a PyTorch loop of your own
=============================

Only the criterion knows of the noise. The loop below trains with the pairwise ranking loss, watches validation labels
that are as noisy as the others, and keeps the epoch that seems best.

It prints::

    average precision, plain: 0.704
    average precision, unbiased: 0.815
    ranking loss, plain: 0.191
    ranking loss, unbiased: 0.117
"""

import copy

import torch

from ccmn import ClassConditionalNoise, RankingLoss
from ccmn.data import load_digit_scenes
from ccmn.metrics import average_precision, ranking_loss

# %%
# Rates differ from label to label; here they are known. (Else ``noise = ccmn.estimate_noise(X, Y_noisy).noise``.) The
# first 2000 rows are for training, 500 more for validation, all with noisy labels; the true labels of the rest,
# pictures by other hands, are only looked at in the end.
data = load_digit_scenes(5000)
X, Y = torch.tensor(data.X), torch.tensor(data.Y)
noise = ClassConditionalNoise.sample(10, max_sum=0.6, random_state=1)
Y_noisy = noise.corrupt(Y[:2500], random_state=0)
training, validation, test = slice(2000), slice(2000, 2500), slice(2500, None)


# %%
# The loop. ``loss.n_outputs(q)`` is one more than q: the ranking loss learns the cut between relevant and irrelevant
# labels as a label of its own, and ``loss.decision`` takes it off. The validation loss is the criterion itself,
# unbiased on noisy labels, too. (An unbiased loss can fall below zero where a network learns single noisy labels;
# ``correction="abs"`` keeps it from that.)
def train(loss: RankingLoss) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(384, 64), torch.nn.ReLU(), torch.nn.Linear(64, loss.n_outputs(10)))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003, weight_decay=1e-4)
    best, kept = float("inf"), copy.deepcopy(model)
    for _ in range(25):
        for rows in torch.randperm(2000).split(100):
            optimiser.zero_grad()
            loss(model(X[training][rows]), Y_noisy[training][rows]).backward()
            optimiser.step()
        with torch.no_grad():
            value = loss(model(X[validation]), Y_noisy[validation]).item()
        if value < best:
            best, kept = value, copy.deepcopy(model)
    return kept


# %%
# ``noise=None`` takes labels at their word.
scores = {}
for name, believed in (("plain", None), ("unbiased", noise)):
    loss = RankingLoss("sigmoid", noise=believed)
    model = train(loss)
    with torch.no_grad():
        scores[name] = loss.decision(model(X[test]))
for name in scores:
    print(f"average precision, {name}: {average_precision(Y[test], scores[name]):.3f}")
for name in scores:
    print(f"ranking loss, {name}: {ranking_loss(Y[test], scores[name]):.3f}")
