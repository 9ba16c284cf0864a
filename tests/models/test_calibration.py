"""Probabilities of the links: 1/2 at the threshold, increasing in the score, and calibrated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import rankdata

from ccmn import CCMNClassifier, ClassConditionalNoise
from ccmn.models import predictor

NOISE = ClassConditionalNoise([0.2, 0.1, 0.3, 0.2], [0.1, 0.2, 0.1, 0.2])
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1500, 8))
F = X @ RNG.normal(size=(8, 4)) * [0.5, 1.0, 2.0, 3.0]
Y = (RNG.random(F.shape) < expit(F)).astype(int)
NOISY = NOISE.corrupt(Y, random_state=0)


def fit(noise=NOISE, **parameters):
    settings = {"lr": 0.05, "epochs": 30, "random_state": 0, **parameters}
    return CCMNClassifier(noise, **settings).fit(X[:1000], NOISY[:1000])


@pytest.mark.parametrize(
    ("loss", "surrogate"),
    [("ranking", "sigmoid"), ("hamming", "square"), ("hamming", "logistic"), ("hamming", "hinge")],
)
def test_probabilities_follow_the_scores_and_are_calibrated(loss, surrogate):
    clf = fit(loss=loss, surrogate=surrogate)
    scores, p = clf.decision_function(X), clf.predict_proba(X)
    assert ((p > 0) & (p < 1)).all()
    assert ((p >= 0.5) == clf.predict(X)).all()
    assert (rankdata(scores, axis=1) == rankdata(p, axis=1)).all()
    bins, error = np.minimum((p[1000:] * 5).astype(int), 4), Y[1000:] - p[1000:]
    assert sum(abs(error[bins == k].sum()) for k in range(5)) / error.size < 0.1


def test_slope_minimizes_the_risk(monkeypatch):
    """The slope of the probabilities is the best one on the debiased validation labels."""
    kept = []
    fit_slope = predictor.FittedNetwork.fit_slope
    monkeypatch.setattr(
        predictor.FittedNetwork, "fit_slope", lambda self, rows: kept.append(rows) or fit_slope(self, rows)
    )
    clf = fit()
    (rows,) = kept
    scores, p = clf.decision_function(rows.X), rows.dense_labels()

    def risk(a):
        return (np.logaddexp(0, a * scores) - p * a * scores).mean()

    slope = np.log(clf.predict_proba(rows.X)[0, 0] / (1 - clf.predict_proba(rows.X)[0, 0])) / scores[0, 0]
    assert all(risk(slope) < risk(slope * factor) for factor in (0.99, 1.01))


def test_the_slope_of_separable_labels_is_limited():
    """Without validation rows of both kinds, the risk decreases in the slope without end."""
    rows = np.repeat([[2.0], [-2.0]], 30, axis=0)
    clf = CCMNClassifier(None, lr=0.05, epochs=30, random_state=0).fit(rows, rows > 0)
    p = clf.predict_proba(rows)
    assert ((p > 0) & (p < 1)).all()
    assert np.abs(p - 0.5).min() > 0.45
