"""The stages of PARTICLE against plain loops: neighbors, label propagation, credible labels, pairwise classifiers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from ccmn.paper.baselines.particle_stages import (
    VIRTUAL,
    Neighbors,
    NeighborTable,
    assign_folds,
    credible_labels,
    elicit_credible,
    fit_pairs,
    label_confidence,
    label_pairs,
    nearest,
    pair_samples,
    propagate,
    reconstruction_weights,
    transition_matrix,
)
from paper.baselines import reference

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
    found = nearest(scipy.sparse.csr_array(X) if sparse else X, np.arange(25), among, k)
    for i in range(25):
        expected = reference.neighbors(X, i, among, k)
        assert found.index[i].tolist() == [a for _, a in expected]
        assert found.distance[i] == pytest.approx([distance for distance, _ in expected], abs=1e-9)


@pytest.mark.parametrize("n_folds", [2, 4, 10])
@pytest.mark.parametrize("k", [1, 7])
def test_neighbors_outside_a_fold(n_folds, k):
    # With sorted rows, contiguous folds contain most neighbors of a row.
    X = np.sort(np.random.default_rng(0).random((40, 1)), axis=0)
    folds = assign_folds(40, n_folds, None)
    table = NeighborTable(X, folds, k)
    for fold in range(n_folds):
        found = table.outside(fold)
        for i in range(40):
            expected = reference.neighbors(X, i, np.flatnonzero(folds != fold), k)
            assert found.index[i].tolist() == [a for _, a in expected]


# Label propagation


def test_propagation_matches_plain_loops():
    X, _, S = reference.make_task(n=30, d=6)
    S[4] = 0  # an empty candidate set
    rows, k = np.arange(30), 4
    index = nearest(X, rows, rows, k).index
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
    near = Neighbors(np.array([[0, 1], [0, 1], [0, 1]]), np.ones((3, 2)))
    candidates = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    assert credible_labels(near, F, candidates, 0.9).tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_neighbors_without_candidates_have_no_influence():
    near = Neighbors(np.array([[0, 1]]), np.ones((1, 2)))
    F = np.array([[0.0, 0.0], [0.0, 1.0]])
    assert credible_labels(near, F, np.array([[1.0, 1.0]]), 0.9).tolist() == [[0, 1]]
    # If no neighbor has candidates, the candidates of the row are credible.
    assert credible_labels(near, np.zeros((2, 2)), np.array([[1.0, 0.0]]), 0.9).tolist() == [[1, 0]]
    assert credible_labels(near, np.zeros((2, 2)), np.array([[0.0, 0.0]]), 0.9).tolist() == [[0, 0]]


# Pairwise classifiers


def test_samples_of_a_pair_are_disjoint():
    C = np.array([[1, 1], [1, 0], [0, 1], [0, 0]])
    Y = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    rows, y = pair_samples(C, Y, 0, 1)
    assert rows.tolist() == [0, 1, 2]
    assert y.tolist() == [1, 1, 0]  # row 0 qualifies for both labels and belongs to the first
    rows, y = pair_samples(C, Y, 0, VIRTUAL)
    assert rows.tolist() == [0, 1, 2]
    assert y.tolist() == [1, 1, 0]


def test_auto_selects_the_solver_by_the_number_of_samples(monkeypatch):
    X, Y, S = reference.make_task(d=6)
    both = {svm: fit_pairs(X, Y, S.astype(float), 1.0, svm=svm) for svm in ("libsvm", "liblinear")}
    n_samples = np.array([len(pair_samples(Y, S, *pair)[0]) for pair in label_pairs(4)])
    limit = int(np.median(n_samples))
    monkeypatch.setattr("ccmn.paper.baselines.particle_stages.MAX_LIBSVM_SAMPLES", limit)
    found = fit_pairs(X, Y, S.astype(float), 1.0)
    assert (found.weights == np.where(n_samples <= limit, both["libsvm"].weights, both["liblinear"].weights)).all()
