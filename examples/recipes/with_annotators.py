"""
With crowd labels
=================

An annotation tool exports one line per assigned label: picture, annotator, tag. Annotators differ in their error
rates. ``infer_labels`` estimates these rates and the true labels at the same time (Dawid and Skene, 1979), and
``fit(X, votes)`` trains on the probabilities of the true labels.

It prints::

    wrong labels, majority vote: 0.113
    wrong labels, inferred: 0.084
    annotator 0: misses 0.33 of the digits, adds 0.35
    annotator 1: misses 0.15 of the digits, adds 0.36
    annotator 2: misses 0.20 of the digits, adds 0.20
    annotator 3: misses 0.49 of the digits, adds 0.19
    annotator 4: misses 0.29 of the digits, adds 0.06
    annotator 5: misses 0.44 of the digits, adds 0.22
    annotator 6: misses 0.23 of the digits, adds 0.31
    annotator 7: misses 0.19 of the digits, adds 0.20
    Hamming loss, majority vote: 0.170
    Hamming loss, votes: 0.110
    wrong labels among the 500 to ask next: 0.290
"""

import numpy as np
import pandas as pd

from ccmn import ClassConditionalNoise, CorrectedClassifier, infer_labels
from ccmn.data import load_digit_scenes
from ccmn.metrics import hamming_loss
from ccmn.votes import VoteTable, next_votes

# %%
# Eight annotators label pictures of digits. Some miss half of the digits, others add digits that are absent. Four of
# them label each picture.
data = load_digit_scenes(5000)
X, Y, X_test, Y_test = data.X[:2500], data.Y[:2500], data.X[2500:], data.Y[2500:]
rng = np.random.default_rng(1)
assigned = np.stack(
    [
        ClassConditionalNoise(rng.uniform(0.1, 0.6), rng.uniform(0.05, 0.35), n_labels=10).corrupt(Y, random_state=k)
        for k in range(8)
    ],
    axis=1,
)
asked = rng.random((2500, 8)).argsort(1) < 4

# %%
# The export of the tool: one line per assigned label. A picture without digits has a line with an empty tag.
lines = []
for picture, annotator in zip(*np.nonzero(asked)):
    digits = np.flatnonzero(assigned[picture, annotator])
    lines += [(picture, f"annotator {annotator}", digit) for digit in (digits if digits.size else [None])]
export = pd.DataFrame(lines, columns=["picture", "annotator", "digit"]).astype({"digit": "Int64"})

# %%
# Error rates of the annotators and labels.
votes = VoteTable.read(export, n_rows=2500)
inferred = infer_labels(votes, X)
majority = (votes.mean() > 0.5).astype(int)
print(f"wrong labels, majority vote: {(majority != Y).mean():.3f}")
print(f"wrong labels, inferred: {(inferred.labels != Y).mean():.3f}")
for name, missed, added in zip(votes.annotator_names, inferred.rho_pos.mean(1), inferred.rho_neg.mean(1)):
    print(f"{name}: misses {missed:.2f} of the digits, adds {added:.2f}")

# %%
# A classifier from the votes, compared with one from the majority vote.
for name, labels, noise in (("majority vote", majority, None), ("votes", votes, "both")):
    clf = CorrectedClassifier(noise=noise, random_state=0).fit(X, labels)
    print(f"Hamming loss, {name}: {hamming_loss(Y_test, clf.predict(X_test)):.3f}")

# %%
# The labels for which another vote helps most are wrong much more often than the others.
queue = next_votes(inferred, 500)
wrong = inferred.labels != Y
print(f"wrong labels among the 500 to ask next: {wrong[queue.row, queue.label].mean():.3f}")
