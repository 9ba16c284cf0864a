"""Classifiers trained on votes: better than the majority vote, and sliced by rows in pipelines and cross-validation."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ccmn import CCMNClassifier, ClassConditionalNoise, infer_labels, load_model
from ccmn.votes import VoteTable

RIDGE = {"loss": "hamming", "surrogate": "square", "epochs": 30, "random_state": 0}


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 6))
    Y = (X @ rng.normal(size=(6, 3)) > 0.7).astype(int)
    noises = [ClassConditionalNoise(rho, 0.05, n_labels=3) for rho in (0.05, 0.4, 0.5)]
    votes = np.stack([noise.corrupt(Y, random_state=k) for k, noise in enumerate(noises)], 1).astype(float)
    return X, Y, votes


def test_better_than_the_majority_vote(task):
    X, Y, votes = task
    majority = (votes.mean(1) > 0.5).astype(int)
    plain = CCMNClassifier(None, **RIDGE).fit(X[:400], majority[:400])
    clf = CCMNClassifier(**RIDGE).fit(X[:400], votes[:400])
    assert (clf.predict(X[400:]) != Y[400:]).mean() < 0.7 * (plain.predict(X[400:]) != Y[400:]).mean()
    assert clf.inferred_.rho_pos.mean(1) == pytest.approx([0.05, 0.4, 0.5], abs=0.12)
    proba = clf.inferred_.proba
    np.testing.assert_array_equal(proba, infer_labels(votes[:400]).proba)
    np.testing.assert_allclose(clf.noise_.rho_pos, 1 - (proba * proba).sum(0) / proba.sum(0))


def test_rows_without_votes_saved_model_and_verified_rows(task, tmp_path):
    X, Y, votes = task
    part = votes.copy()
    part[:50] = np.nan
    clf = CCMNClassifier(**RIDGE).fit(X, part, validation=(X[:100], votes[:100]))
    assert (clf.predict(X) == Y).mean() > 0.8
    clf.save(tmp_path / "model.ccmn")
    again = load_model(tmp_path / "model.ccmn")
    np.testing.assert_array_equal(again.predict(X), clf.predict(X))
    assert again.inferred_ is None
    trusted = CCMNClassifier(**RIDGE).fit(X, votes, trusted=(np.arange(200), Y[:200]))
    assert (trusted.predict(X) == Y).mean() >= (clf.predict(X) == Y).mean() - 0.01


@pytest.mark.parametrize("container", [np.asarray, VoteTable.read], ids=["array", "table"])
def test_pipeline_and_cross_validation_slice_rows(task, container):
    X, _, votes = task
    pipeline = make_pipeline(StandardScaler(), CCMNClassifier(**RIDGE))
    scores = cross_val_score(pipeline, X, container(votes), cv=3)
    assert (scores > 0.3).all()
    search = GridSearchCV(CCMNClassifier(**RIDGE), {"weight_decay": [1e-4, 1e-2]}, cv=2).fit(X, container(votes))
    assert search.best_estimator_.inferred_.votes.shape == votes.shape


def test_other_arguments_that_describe_noise_are_rejected(task):
    X, _, votes = task
    for noise in ("partial", ClassConditionalNoise(0.1, 0.1, n_labels=3)):
        with pytest.raises(ValueError, match="votes require noise='both'"):
            CCMNClassifier(noise).fit(X, votes)
    with pytest.raises(ValueError, match="600; got 100"):
        CCMNClassifier().fit(X, votes[:100])
