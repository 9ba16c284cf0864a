"""
In your own PyTorch training loop
=================================

Only the criterion depends on the noise. This loop trains with the pairwise ranking loss, computes the validation loss
on labels that are as noisy as the training labels, and keeps the best epoch.

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
# Each label has its own rates, which are known here. (If they are unknown:
# ``noise = ccmn.estimate_noise(X, Y_noisy).noise``.) The first 2000 rows are the training set and the next 500 the
# validation set, both with noisy labels. The other rows are pictures by other writers; their true labels are used for
# the final test only.
data = load_digit_scenes(5000)
X, Y = torch.tensor(data.X), torch.tensor(data.Y)
noise = ClassConditionalNoise.sample(10, max_sum=0.6, random_state=1)
Y_noisy = noise.corrupt(Y[:2500], random_state=0)
training, validation, test = slice(2000), slice(2000, 2500), slice(2500, None)


# %%
# The network has ``loss.n_outputs(q)`` = q + 1 outputs: the ranking loss learns the threshold between relevant and
# irrelevant labels as the score of a dummy label, and ``loss.decision`` subtracts it. The validation loss is the same
# criterion, which is also unbiased on noisy validation labels. (An unbiased loss can become negative if a network
# memorizes noisy labels; ``correction="abs"`` prevents that.)
def train(loss: RankingLoss) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(384, 64), torch.nn.ReLU(), torch.nn.Linear(64, loss.n_outputs(10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, weight_decay=1e-4)
    best_value, best_model = float("inf"), copy.deepcopy(model)
    for _ in range(25):
        for rows in torch.randperm(2000).split(100):
            optimizer.zero_grad()
            loss(model(X[training][rows]), Y_noisy[training][rows]).backward()
            optimizer.step()
        with torch.no_grad():
            value = loss(model(X[validation]), Y_noisy[validation]).item()
        if value < best_value:
            best_value, best_model = value, copy.deepcopy(model)
    return best_model


# %%
# ``noise=None`` trains without noise correction.
scores = {}
for name, noise_model in (("plain", None), ("unbiased", noise)):
    loss = RankingLoss("sigmoid", noise=noise_model)
    model = train(loss)
    with torch.no_grad():
        scores[name] = loss.decision(model(X[test]))
for name in scores:
    print(f"average precision, {name}: {average_precision(Y[test], scores[name]):.3f}")
for name in scores:
    print(f"ranking loss, {name}: {ranking_loss(Y[test], scores[name]):.3f}")
