"""
With crowd labels
=================

Several annotators label every row, with different error rates. The model of Dawid and Skene (1979) estimates their
error rates and the true labels at the same time, separately for every label. ``estimate_noise(annotators=votes)``
returns the noise rates of labels that are aggregated from the votes, by majority or by mean, and training with these
rates is unbiased again.

It prints::

    error of the rates: 0.049
    Hamming loss, majority without noise correction: 0.193
    Hamming loss, majority, unbiased: 0.123
    Hamming loss, mean vote, unbiased: 0.111
    annotator 0: true-positive rate 0.68, false-positive rate 0.31
    annotator 1: true-positive rate 0.79, false-positive rate 0.31
    annotator 2: true-positive rate 0.77, false-positive rate 0.17
    annotator 3: true-positive rate 0.44, false-positive rate 0.18
    annotator 4: true-positive rate 0.54, false-positive rate 0.07
    annotator 5: true-positive rate 0.46, false-positive rate 0.22
    annotator 6: true-positive rate 0.75, false-positive rate 0.29
    annotator 7: true-positive rate 0.70, false-positive rate 0.19
"""

import numpy as np
import torch

from ccmn import CCMNClassifier, ClassConditionalNoise, HammingLoss, estimate_noise, infer_labels
from ccmn.data import load_digit_scenes
from ccmn.estimation import mean_votes
from ccmn.metrics import hamming_loss

# %%
# Eight annotators have different rates: some miss half of the digits, others add digits that are absent. Four of them
# label each row; the votes of the others are NaN.
data = load_digit_scenes(5000)
X, Y = data.X[:2500], data.Y[:2500]
rng = np.random.default_rng(1)
votes = np.full((2500, 8, 10), np.nan)
for annotator in range(8):
    noise = ClassConditionalNoise(rng.uniform(0.1, 0.6), rng.uniform(0.05, 0.35), n_labels=10)
    votes[:, annotator] = noise.corrupt(Y, random_state=100 + annotator)
without_vote = rng.random((2500, 8)).argsort(1) >= 4
votes[without_vote] = np.nan

# %%
# The rates of the majority vote are estimated from the votes alone, and compared with the rates observed on the true
# labels.
majority = (mean_votes(votes) > 0.5).astype(int)
rates = estimate_noise(Y_noisy=majority, annotators=votes)
observed = ClassConditionalNoise.from_pairs(Y, majority)
error = abs(rates.rho_pos - observed.rho_pos).mean() + abs(rates.rho_neg - observed.rho_neg).mean()
print(f"error of the rates: {error:.3f}")

# %%
# The majority misses a label if most annotators miss it. Training with the rates of the majority corrects for this.
for name, noise_model in (("majority without noise correction", None), ("majority, unbiased", rates.noise)):
    clf = CCMNClassifier(noise_model, loss="hamming", surrogate="square", random_state=0).fit(X, majority)
    print(f"Hamming loss, {name}: {hamming_loss(data.Y[2500:], clf.predict(data.X[2500:])):.3f}")

# %%
# The mean vote is a soft label that preserves the agreement of the annotators. The losses accept soft labels. The
# rates of the mean vote differ from the rates of the majority vote.
soft = mean_votes(votes)
loss = HammingLoss("square", noise=estimate_noise(annotators=votes).noise)
torch.manual_seed(0)
model = torch.nn.Linear(384, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-4)
for _ in range(200):
    optimizer.zero_grad()
    loss(model(torch.tensor(X)), torch.tensor(soft)).backward()
    optimizer.step()
with torch.no_grad():
    predicted = model(torch.tensor(data.X[2500:])) >= 0
print(f"Hamming loss, mean vote, unbiased: {hamming_loss(data.Y[2500:], predicted.int().numpy()):.3f}")

# %%
# The rates of the annotators, here for the digit 0, show which annotators are reliable.
inferred = infer_labels(votes)
for annotator, (missed, added) in enumerate(zip(inferred.rho_pos[:, 0], inferred.rho_neg[:, 0])):
    print(f"annotator {annotator}: true-positive rate {1 - missed:.2f}, false-positive rate {added:.2f}")
