"""
With cleanlab's output
======================

Held-out probabilities made for cleanlab are what ``estimate_noise`` and ``find_label_issues`` take, and cleanlab's
confident joints are read by ``NoiseRates.from_confident_joint``. What both make of the same noisy labels is compared
with the truth: the rates, the wrong labels found, and models trained with these rates.

Needs ``pip install 'ccmn[recipes]'``. It prints::

    error of the rates, cleanlab's joints: 0.259
    error of the rates, the same probabilities: 0.111
    error of the rates, features: 0.098
    wrong labels found, cleanlab: 0.517
    wrong labels found, ccmn: 0.751
    Hamming loss, rates from none: 0.236
    Hamming loss, rates from cleanlab's joints: 0.217
    Hamming loss, rates from the same probabilities: 0.195
    Hamming loss, rates from features: 0.151
"""

import warnings

import numpy as np
from cleanlab.count import compute_confident_joint
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier

from ccmn import CCMNClassifier, ClassConditionalNoise, estimate_noise, find_label_issues
from ccmn.data import load_digit_scenes
from ccmn.estimation import NoiseRates
from ccmn.metrics import hamming_loss

# %%
# Noisy labels, and held-out probabilities of them by any model: cleanlab's usual input. It wants label sets as lists.
data = load_digit_scenes(4000)
X, Y = data.X[:2000], data.Y[:2000]
noise = ClassConditionalNoise.sample(10, max_sum=0.6, random_state=1)
Y_noisy = noise.corrupt(Y, random_state=0)
model = OneVsRestClassifier(LogisticRegression(C=0.01))
pred_proba = cross_val_predict(model, X, Y_noisy, cv=3, method="predict_proba")
label_sets = [np.flatnonzero(row).tolist() for row in Y_noisy]

# %%
# Three estimates of the rates: cleanlab's joints, (q, 2, 2), read as rates; the same probabilities, as bounds; and
# from the features, where the shape of the posterior says more than probabilities can.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # what is a bound says so
    joints = compute_confident_joint(label_sets, pred_proba, multi_label=True)
    rates = {
        "cleanlab's joints": NoiseRates.from_confident_joint(joints),
        "the same probabilities": estimate_noise(pred_proba=pred_proba, Y_noisy=Y_noisy),
        "features": estimate_noise(X, Y_noisy),
    }
for name, found in rates.items():
    error = (abs(found.rho_pos - noise.rho_pos) + abs(found.rho_neg - noise.rho_neg)).mean()
    print(f"error of the rates, {name}: {error:.3f}")

# %%
# Which labels are wrong? Average precision of the ranking of all entries: cleanlab's scores look at probabilities
# alone, ``find_label_issues`` at the rates, too. It takes any of the estimates; the probabilities are the same for
# both.
wrong = (Y_noisy != Y).ravel()
quality = get_label_quality_scores_per_class(label_sets, pred_proba, method="self_confidence")
print(f"wrong labels found, cleanlab: {average_precision_score(wrong, -quality.ravel()):.3f}")
issues = find_label_issues(Y_noisy, pred_proba, rates["features"], min_p_wrong=0)
suspicion = np.zeros(Y.shape)
suspicion[issues.row, issues.label] = issues.p_wrong
print(f"wrong labels found, ccmn: {average_precision_score(wrong, suspicion.ravel()):.3f}")

# %%
# Any estimate trains a model.
for name, found in {"none": None, **rates}.items():
    clf = CCMNClassifier(found and found.noise, loss="hamming", surrogate="square", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rates that are far too high are noticed in training, too
        clf.fit(X, Y_noisy)
    print(f"Hamming loss, rates from {name}: {hamming_loss(data.Y[2000:], clf.predict(data.X[2000:])):.3f}")
