"""
With crowd labels
=================

Several people judge every row, some better than others. Their error rates and the truth explain each other (Dawid and
Skene's model, label by label): ``estimate_noise(annotators=votes)`` gives the rates of the labels that are worked out
from the votes, the mean vote or a majority, and training with these rates is unbiased again.

It prints::

    error of the rates: 0.049
    Hamming loss, majority at its word: 0.193
    Hamming loss, majority, unbiased: 0.123
    Hamming loss, mean vote, unbiased: 0.111
    annotator 0: sees 0.68 of the zeros, and 0.31 where there are none
    annotator 1: sees 0.79 of the zeros, and 0.31 where there are none
    annotator 2: sees 0.77 of the zeros, and 0.17 where there are none
    annotator 3: sees 0.44 of the zeros, and 0.18 where there are none
    annotator 4: sees 0.54 of the zeros, and 0.07 where there are none
    annotator 5: sees 0.46 of the zeros, and 0.22 where there are none
    annotator 6: sees 0.75 of the zeros, and 0.29 where there are none
    annotator 7: sees 0.70 of the zeros, and 0.19 where there are none
"""

import numpy as np
import torch

from ccmn import CCMNClassifier, ClassConditionalNoise, HammingLoss, estimate_noise
from ccmn.data import load_digit_scenes
from ccmn.estimation import mean_votes
from ccmn.estimation.dawid_skene import fit_dawid_skene
from ccmn.metrics import hamming_loss

# %%
# Eight annotators with rates of their own: some overlook half of the digits, some see what is not there. Four of them
# judge each row; where one did not, there is NaN.
data = load_digit_scenes(5000)
X, Y = data.X[:2500], data.Y[:2500]
rng = np.random.default_rng(1)
votes = np.full((2500, 8, 10), np.nan)
for person in range(8):
    own = ClassConditionalNoise(rng.uniform(0.1, 0.6), rng.uniform(0.05, 0.35), n_labels=10)
    votes[:, person] = own.corrupt(Y, random_state=100 + person)
silent = rng.random((2500, 8)).argsort(1) >= 4
votes[silent] = np.nan

# %%
# The majority, and its rates: estimated from the votes alone, against those counted on the truth.
majority = (mean_votes(votes) > 0.5).astype(int)
rates = estimate_noise(Y_noisy=majority, annotators=votes)
truth = ClassConditionalNoise.from_pairs(Y, majority)
error = abs(rates.rho_pos - truth.rho_pos).mean() + abs(rates.rho_neg - truth.rho_neg).mean()
print(f"error of the rates: {error:.3f}")

# %%
# What most of them overlook, the majority misses; with its rates that is put right.
for name, noise in (("majority at its word", None), ("majority, unbiased", rates.noise)):
    clf = CCMNClassifier(noise, loss="hamming", surrogate="square", random_state=0).fit(X, majority)
    print(f"Hamming loss, {name}: {hamming_loss(data.Y[2500:], clf.predict(data.X[2500:])):.3f}")

# %%
# The mean vote is a soft label that keeps how clear the majority was. Losses take it as it is; its rates are others.
soft = mean_votes(votes)
loss = HammingLoss("square", noise=estimate_noise(annotators=votes).noise)
torch.manual_seed(0)
model = torch.nn.Linear(384, 10)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-4)
for _ in range(200):
    optimiser.zero_grad()
    loss(model(torch.tensor(X)), torch.tensor(soft)).backward()
    optimiser.step()
with torch.no_grad():
    predicted = model(torch.tensor(data.X[2500:])) >= 0
print(f"Hamming loss, mean vote, unbiased: {hamming_loss(data.Y[2500:], predicted.int().numpy()):.3f}")

# %%
# Who is reliable? Hits and false alarms of every annotator, about one label.
crowd = fit_dawid_skene(votes[:, :, 0])
for person, (hit, alarm) in enumerate(zip(crowd.true_positive_rate, crowd.false_positive_rate)):
    print(f"annotator {person}: sees {hit:.2f} of the zeros, and {alarm:.2f} where there are none")
