"""PARTICLE against plain loops: neighbors, propagation, credible labels, pairwise classifiers, votes; parameters."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from ccmn.paper.baselines import PARTICLE
from ccmn.paper.baselines.particle_stages import (
    assign_folds,
    credible_labels,
    elicit_credible,
    fit_pairs,
    label_confidence,
    label_pairs,
    make_ties_negative,
    nearest,
    pair_samples,
    propagate,
    reconstruction_weights,
    transition_matrix,
    weighted_votes,
)
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


# -- Stages

SEEDS = st.integers(0, 2**32 - 1)


# Neighbors


@given(SEEDS, st.integers(1, 6), st.booleans())
@settings(max_examples=25)
def test_nearest_matches_exhaustive_search(seed, k, sparse):
    # A grid of few points has many ties and equal rows.
    X = np.random.default_rng(seed).integers(0, 3, (25, 2)).astype(float)
    among = np.flatnonzero(np.random.default_rng(seed).random(25) < 0.7)
    if len(among) <= k:
        return
    index, distances = nearest(scipy.sparse.csr_array(X) if sparse else X, np.arange(25), among, k)
    for i in range(25):
        expected = reference.neighbors(X, i, among, k)
        assert index[i].tolist() == [a for _, a in expected]
        assert distances[i] == pytest.approx([distance for distance, _ in expected], abs=1e-9)


# Label propagation


def test_propagation_matches_plain_loops():
    X, _, S = reference.make_task(n=30, d=6)
    S[4] = 0  # an empty candidate set
    rows, k = np.arange(30), 4
    index, _ = nearest(X, rows, rows, k)
    T = transition_matrix(reconstruction_weights(X, rows, index), index, 30)
    found = label_confidence(propagate(T, S.astype(float), 0.95), S.astype(float))
    assert found == pytest.approx(reference.confidences(X, S, rows, k, 0.95), abs=1e-8)
    assert not found[4].any()


# Credible labels


@pytest.mark.parametrize("seed", [None, 3])
def test_credible_labels_match_plain_loops(seed):
    X, _, S = reference.make_task(n=36, d=6)
    folds = assign_folds(36, 4, None if seed is None else np.random.default_rng(seed))
    found = elicit_credible(X, S.astype(float), folds, k=4, alpha=0.9, thr=0.8)
    assert (found == reference.credible(X, S, folds, 4, 0.9, 0.8)).all()


def test_labels_outside_the_candidates_are_credible_only_if_no_candidate_is():
    F = np.array([[1.0, 0.0, 0.2], [1.0, 0.1, 0.0]])
    near = (np.array([[0, 1], [0, 1], [0, 1]]), np.ones((3, 2)))
    candidates = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    assert credible_labels(near, F, candidates, 0.9).tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_neighbors_without_candidates_have_no_influence():
    near = (np.array([[0, 1]]), np.ones((1, 2)))
    F = np.array([[0.0, 0.0], [0.0, 1.0]])
    assert credible_labels(near, F, np.array([[1.0, 1.0]]), 0.9).tolist() == [[0, 1]]
    # If no neighbor has candidates, the candidates of the row are credible.
    assert credible_labels(near, np.zeros((2, 2)), np.array([[1.0, 0.0]]), 0.9).tolist() == [[1, 0]]
    assert credible_labels(near, np.zeros((2, 2)), np.array([[0.0, 0.0]]), 0.9).tolist() == [[0, 0]]


# Pairwise classifiers


def test_auto_selects_the_solver_by_the_number_of_samples(monkeypatch):
    X, Y, S = reference.make_task(d=6)
    both = {svm: fit_pairs(X, Y, S.astype(float), 1.0, svm=svm) for svm in ("libsvm", "liblinear")}
    n_samples = np.array([len(pair_samples(Y, S, *pair)[0]) for pair in label_pairs(4)])
    limit = int(np.median(n_samples))
    monkeypatch.setattr("ccmn.paper.baselines.particle_stages.MAX_LIBSVM_SAMPLES", limit)
    found = fit_pairs(X, Y, S.astype(float), 1.0)
    assert (found.weights == np.where(n_samples <= limit, both["libsvm"].weights, both["liblinear"].weights)).all()
