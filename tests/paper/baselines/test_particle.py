"""PARTICLE: votes, the two variants, parameters and convergence."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from ccmn.paper.baselines import PARTICLE
from ccmn.paper.baselines.particle import VotePosterior, make_ties_negative, weighted_votes
from ccmn.paper.baselines.particle_stages import label_pairs
from paper.baselines import reference


@pytest.fixture(scope="module")
def task():
    X, Y, S = reference.make_task(n=80, d=6, q=4)
    return X[:60], Y[:60], S[:60], X[60:], Y[60:]


@pytest.fixture(scope="module")
def fitted(task):
    X, _, S, *_ = task
    return PARTICLE(svm="libsvm").fit(X, S)


def votes_by_pair(clf, X):
    """Return votes and accuracies in the form of the reference implementation."""
    votes = clf.pairs_.votes(X).astype(int)
    keys = [(j, "v" if other < 0 else other) for j, other in label_pairs(clf.pairs_.q)]
    return {key: (votes[:, p], clf.pairs_.accuracy[p]) for p, key in enumerate(keys)}


def test_pairwise_classifiers_match_plain_loops(task, fitted):
    X, _, S, X_new, _ = task
    expected = reference.pair_votes(X, fitted.credible_, S, X_new)
    found = votes_by_pair(fitted, X_new)
    assert found.keys() == expected.keys()
    for key, (votes, accuracy) in expected.items():
        assert (found[key][0] == votes).all()
        assert found[key][1] == pytest.approx(accuracy)


def test_vls_matches_plain_loops(task, fitted):
    X_new = task[3]
    margins = fitted.decision_function(X_new)
    for i in range(len(X_new)):
        zeta, virtual = reference.vls_votes(votes_by_pair(fitted, X_new), 4, i)
        assert margins[i] == pytest.approx(np.array(zeta) - virtual, abs=1e-8)
    assert (fitted.predict(X_new) == (margins >= 0)).all()


def test_map_matches_plain_loops(task):
    X, _, S, X_new, _ = task
    clf = PARTICLE("map", svm="libsvm").fit(X, S)
    votes, training = votes_by_pair(clf, X_new), votes_by_pair(clf, X)
    counted = [reference.map_counts(training, 4, i) for i in range(len(X))]
    for i, row in enumerate(clf.decision_function(X_new)):
        posterior = reference.map_posterior(S, clf.credible_, counted, reference.map_counts(votes, 4, i))
        assert row == pytest.approx(np.array(posterior) - 0.5, abs=1e-8)


def test_both_svm_solvers_give_nearly_equal_votes(task, fitted):
    X, _, S, X_new, _ = task
    fast = PARTICLE(svm="liblinear").fit(X, S)
    agreement = fast.pairs_.votes(X_new) == fitted.pairs_.votes(X_new)
    assert agreement.mean() > 0.98


def test_map_predicts_every_label_with_posterior_above_one_half():
    """The ratio rule of the authors' code predicts only the label with the largest odds here."""
    posterior = VotePosterior(np.full(3, 0.5), np.full((3, 3), 0.3), np.array([[0.01] * 3, [0.1] * 3, [0.2] * 3]))
    margins = posterior.margins(np.array([[0, 1, 2]]))
    assert (margins >= 0).tolist() == [[True, True, True]]
    assert reference.released_map_labels(margins[0] + 0.5).tolist() == [True, False, False]


def test_ties_are_not_predicted():
    # One vote between two labels, and no classifier against the virtual label.
    votes = np.array([[True, True, True], [False, True, True]])
    zeta, virtual = weighted_votes(votes, np.array([1.0, 0.0, 0.0]), 2)
    assert (make_ties_negative(zeta - virtual) >= 0).tolist() == [[True, False], [False, True]]


def test_missing_classifiers_vote_for_the_first_label_with_weight_zero(task):
    X, _, S, *_ = task
    S = S.copy()
    S[:, 2] = 0
    with pytest.warns(UserWarning, match=r"training samples for label 2 \(of 4\)"):
        clf = PARTICLE(thr=0.5).fit(X, S, credible=S)
    for p, (j, other) in enumerate(label_pairs(4)):
        if 2 in (j, other):
            assert clf.pairs_.accuracy[p] == 0
            assert clf.pairs_.votes(X)[:, p].all()
    assert not clf.predict(X)[:, 2].any()


def test_given_credible_labels_skip_stage_1(task, fitted):
    X, _, S, X_new, _ = task
    clf = PARTICLE(svm="libsvm").fit(X, S, credible=fitted.credible_)
    assert clf.folds_ is None
    assert (clf.decision_function(X_new) == fitted.decision_function(X_new)).all()
    with pytest.raises(ValueError, match="credible must have the shape of"):
        PARTICLE().fit(X, S, credible=S[:5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "both"}, "variant must be 'vls' or 'map'"),
        ({"n_folds": 1}, "n_folds must be at least 2"),
        ({"thr": 1.2}, "thr must be"),
        ({"alpha": -0.1}, "alpha must be"),
        ({"C": 0}, "C must be"),
        ({"svm": "rbf"}, "unknown svm 'rbf'"),
    ],
)
def test_invalid_parameters_are_rejected(task, options, message):
    with pytest.raises(ValueError, match=message):
        PARTICLE(**options).fit(task[0], task[2])


@pytest.mark.slow
def test_fit_ends_on_unscaled_features():
    """Without a limit libsvm does not stop on these data."""
    X = np.random.default_rng(0).normal(size=(120, 6))
    Y = (X @ np.random.default_rng(1).normal(size=(6, 4)) > 0).astype(int)
    with pytest.warns(ConvergenceWarning, match="Scale the features"):
        PARTICLE().fit(X * 1000, Y)
