"""Credible labels: out of fold, by the neighbours' vote, with a way out where no candidate is believed."""

from __future__ import annotations

import numpy as np
import pytest

from baselines import reference
from ccmn.baselines.particle.credible import credible_labels, distance_weights, elicit_credible, make_folds
from ccmn.baselines.particle.neighbours import Neighbours


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("seed", [None, 3])
def test_as_plain_loops(seed, include_self):
    X, _, S = reference.make_task(n=36, d=6)
    folds = make_folds(36, 4, None if seed is None else np.random.default_rng(seed))
    found = elicit_credible(X, S.astype(float), folds, k=4, alpha=0.9, thr=0.8, include_self=include_self)
    assert (found == reference.credible(X, S, folds, 4, 0.9, 0.8, include_self)).all()


def test_no_threshold_makes_every_candidate_credible():
    X, _, S = reference.make_task()
    S[0] = [1, 0, 0, 0]
    found = elicit_credible(X, S.astype(float), make_folds(60, 10, None), k=5, alpha=0.95, thr=0.0)
    nonempty = S.any(1)
    assert (found == S)[nonempty].all()


def test_the_best_label_is_always_credible():
    X, _, S = reference.make_task(noise=0.6)
    found = elicit_credible(X, S.astype(float), make_folds(60, 10, None), k=5, alpha=0.95, thr=1.0)
    assert found.any(1).all()


def test_outside_the_candidates_only_where_none_of_them_is_believed():
    F = np.array([[1.0, 0.0, 0.2], [1.0, 0.1, 0.0]])
    near = Neighbours(np.array([[0, 1], [0, 1], [0, 1]]), np.ones((3, 2)))
    candidates = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    assert credible_labels(near, F, candidates, 0.9).tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_neighbours_without_candidates_have_no_vote():
    near = Neighbours(np.array([[0, 1]]), np.ones((1, 2)))
    F = np.array([[0.0, 0.0], [0.0, 1.0]])
    assert credible_labels(near, F, np.array([[1.0, 1.0]]), 0.9).tolist() == [[0, 1]]
    # Nobody has a vote: the candidates are all there is.
    assert credible_labels(near, np.zeros((2, 2)), np.array([[1.0, 0.0]]), 0.9).tolist() == [[1, 0]]
    assert credible_labels(near, np.zeros((2, 2)), np.array([[0.0, 0.0]]), 0.9).tolist() == [[0, 0]]


def test_weights_of_equal_and_single_neighbours():
    assert distance_weights(np.array([[0.0, 0.0]])).tolist() == [[1, 1]]
    assert distance_weights(np.array([[1.0, 3.0]])).tolist() == [[0.75, 0.25]]
    assert distance_weights(np.array([[2.0]])).tolist() == [[1]]


def test_folds():
    assert make_folds(7, 3, None).tolist() == [0, 0, 0, 1, 1, 2, 2]
    shuffled = make_folds(7, 3, np.random.default_rng(0))
    assert sorted(shuffled.tolist()) == [0, 0, 0, 1, 1, 2, 2]
    assert shuffled.tolist() != sorted(shuffled.tolist())
