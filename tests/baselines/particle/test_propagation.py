"""Propagation: sums, limits, and the same as plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines import reference
from ccmn.baselines.particle.neighbours import nearest
from ccmn.baselines.particle.propagation import (
    confidence,
    propagate,
    reconstruction_weights,
    stretch_rows,
    transition,
)

SEEDS = st.integers(0, 2**32 - 1)


def any_graph(n, rng):
    T = rng.random((n, n)) * (rng.random((n, n)) < 0.3)
    return T / np.maximum(T.sum(1, keepdims=True), 1e-12)


def any_candidates(n, q, rng):
    Y = (rng.random((n, q)) < 0.5).astype(float)
    Y[np.arange(n), rng.integers(0, q, n)] = 1
    return Y


@given(SEEDS, st.floats(0, 1))
@settings(max_examples=30)
def test_rows_sum_to_one_and_vanish_outside_the_candidates(seed, alpha):
    rng = np.random.default_rng(seed)
    T, Y = any_graph(12, rng), any_candidates(12, 4, rng)
    F = propagate(T, Y, alpha)
    total = F.sum(1)
    assert ((np.abs(total - 1) < 1e-12) | ((total == 0) & (alpha == 1))).all()
    assert not F[Y == 0].any()
    stretched = confidence(F, Y)
    one_valued = (Y[:, :1] == Y).all(1)
    assert stretched[~one_valued].min(1) == pytest.approx(0)
    assert stretched.max(1)[total > 0] == pytest.approx(1)


@given(SEEDS)
@settings(max_examples=20)
def test_nothing_is_propagated_without_alpha_or_with_the_identity(seed):
    rng = np.random.default_rng(seed)
    Y = any_candidates(12, 4, rng)
    uniform = Y / Y.sum(1, keepdims=True)
    assert propagate(any_graph(12, rng), Y, 0.0) == pytest.approx(uniform)
    for alpha in (0.3, 0.95, 1.0):
        assert propagate(np.eye(12), Y, alpha) == pytest.approx(uniform)


@given(SEEDS, st.floats(0, 0.99))
@settings(max_examples=20)
def test_single_candidates_stay(seed, alpha):
    rng = np.random.default_rng(seed)
    Y = np.eye(4)[np.concatenate([np.arange(4), rng.integers(0, 4, 8)])]
    F = propagate(any_graph(12, rng), Y, alpha)
    assert pytest.approx(Y) == F
    assert confidence(F, Y) == pytest.approx(Y)


def test_permutations_of_labels_and_rows():
    rng = np.random.default_rng(0)
    T, Y = any_graph(12, rng), any_candidates(12, 4, rng)
    rows, labels = rng.permutation(12), rng.permutation(4)
    one, other = propagate(T, Y, 0.9), propagate(T[np.ix_(rows, rows)], Y[np.ix_(rows, labels)], 0.9)
    assert other == pytest.approx(one[np.ix_(rows, labels)])


@pytest.mark.parametrize("include_self", [False, True])
def test_the_whole_stage_as_plain_loops(include_self):
    X, _, S = reference.make_task(n=30, d=6)
    S[4] = 0  # an empty candidate set
    rows, k = np.arange(30), 4
    index = nearest(X, rows, rows, k).index
    if include_self:
        index = np.hstack([rows[:, None], index[:, :-1]])
    T = transition(reconstruction_weights(X, rows, index), index, 30)
    found = confidence(propagate(T, S.astype(float), 0.95), S.astype(float))
    assert found == pytest.approx(reference.confidences(X, S, rows, k, 0.95, include_self), abs=1e-8)
    assert not found[4].any()


def test_a_row_that_is_its_own_neighbour_explains_itself():
    """What the released program does: the graph is the identity."""
    X, _, _ = reference.make_task(n=30, d=12)
    rows = np.arange(30)
    index = np.hstack([rows[:, None], nearest(X, rows, rows, 9).index])
    T = transition(reconstruction_weights(X, rows, index), index, 30).toarray()
    assert pytest.approx(np.eye(30), abs=1e-12) == T


def test_sparse_features_give_the_same_weights():
    X, _, _ = reference.make_task(n=30, d=6)
    X = np.where(np.abs(X) < 0.5, 0, X)
    rows = np.arange(30)
    index = nearest(X, rows, rows, 4).index
    sparse = scipy.sparse.csr_array(X)
    assert reconstruction_weights(sparse, rows, index) == pytest.approx(reconstruction_weights(X, rows, index))


def test_rows_that_nothing_can_be_made_of():
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
    weights = reconstruction_weights(X, np.array([0, 1, 3]), np.array([[1, 2], [0, 2], [0, 1]]))
    assert weights[0].tolist() == [0, 0]
    assert weights[1] == pytest.approx([0, 1])
    assert weights[2].tolist() == [0, 0]


def test_stretching_a_flat_row():
    values, instead = np.array([[2.0, 2.0], [0.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 0.0]])
    assert stretch_rows(values, instead).tolist() == [[1, 1], [0, 0]]
