"""
With cleanlab's output
======================

``estimate_noise`` and ``find_label_issues`` accept the same out-of-fold probabilities as cleanlab, whose confident
joints contain noise rates. This recipe compares ccmn and cleanlab on the same labels with injected noise: the rates,
the wrong labels found, and models trained with the rates. Rates need features: from the same probabilities alone, those
of ccmn are farther from the true ones than cleanlab's.

Install the packages with ``pip install -r requirements/recipes.txt`` in a clone of the repository. It prints::

    error of the rates, cleanlab's joints: 0.259
    error of the rates, the same probabilities: 0.312
    error of the rates, features: 0.122
    wrong labels found, cleanlab: 0.517
    wrong labels found, ccmn: 0.752
    Hamming loss, rates from none: 0.231
    Hamming loss, rates from cleanlab's joints: 0.202
    Hamming loss, rates from the same probabilities: 0.171
    Hamming loss, rates from features: 0.156
"""

import warnings

import numpy as np
from cleanlab.count import compute_confident_joint
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier

from ccmn import ClassConditionalNoise, CorrectedClassifier, estimate_noise, find_label_issues
from ccmn.data import load_digit_scenes
from ccmn.metrics import hamming_loss

# %%
# The input of cleanlab: noisy labels as lists of label sets, and their out-of-fold probabilities from any model.
data = load_digit_scenes(4000)
X, Y = data.X[:2000], data.Y[:2000]
noise = ClassConditionalNoise.sample(10, max_sum=0.6, random_state=1)
Y_noisy = noise.corrupt(Y, random_state=0)
model = OneVsRestClassifier(LogisticRegression(C=0.01))
pred_proba = cross_val_predict(model, X, Y_noisy, cv=3, method="predict_proba")
label_sets = [np.flatnonzero(row).tolist() for row in Y_noisy]

# %%
# Three estimates of the rates: cleanlab's confident joints (q, 2, 2), converted to rates; an estimate from the same
# probabilities; and an estimate from the features, which alone identify the rates.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # wide intervals
    joints = compute_confident_joint(label_sets, pred_proba, multi_label=True)
    rates = {
        "cleanlab's joints": ClassConditionalNoise(
            joints[:, 0, 1] / joints[:, :, 1].sum(1), joints[:, 1, 0] / joints[:, :, 0].sum(1)
        ),
        "the same probabilities": estimate_noise(pred_proba=pred_proba, Y_noisy=Y_noisy),
        "features": estimate_noise(X, Y_noisy),
    }
for name, estimate in rates.items():
    error = (abs(estimate.rho_pos - noise.rho_pos) + abs(estimate.rho_neg - noise.rho_neg)).mean()
    print(f"error of the rates, {name}: {error:.3f}")

# %%
# Wrong labels found, as the average precision of the ranking of all entries. The scores of cleanlab use the
# probabilities only; ``find_label_issues`` uses the same probabilities and one of the estimated rates.
wrong = (Y_noisy != Y).ravel()
quality = get_label_quality_scores_per_class(label_sets, pred_proba, method="self_confidence")
print(f"wrong labels found, cleanlab: {average_precision_score(wrong, -quality.ravel()):.3f}")
issues = find_label_issues(Y_noisy, pred_proba, rates["features"], min_p_wrong=0)
p_wrong = np.zeros(Y.shape)
p_wrong[issues.row, issues.label] = issues.p_wrong
print(f"wrong labels found, ccmn: {average_precision_score(wrong, p_wrong.ravel()):.3f}")

# %%
# Models trained with each estimate, and without noise correction ("none").
for name, estimate in {"none": None, **rates}.items():
    clf = CorrectedClassifier(noise=getattr(estimate, "noise", estimate), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warns if the rates are much too high
        clf.fit(X, Y_noisy)
    print(f"Hamming loss, rates from {name}: {hamming_loss(data.Y[2000:], clf.predict(data.X[2000:])):.3f}")
