"""Neighbours: exact, ties by the smaller row number, outside a fold."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines import reference
from ccmn.baselines.particle.credible import make_folds
from ccmn.baselines.particle.neighbours import NeighbourTable, nearest


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans())
@settings(max_examples=25)
def test_by_looking_at_every_row(seed, k, sparse):
    """On a grid of few points there are ties and equal rows everywhere."""
    X = np.random.default_rng(seed).integers(0, 3, (25, 2)).astype(float)
    among = np.flatnonzero(np.random.default_rng(seed).random(25) < 0.7)
    if len(among) <= k:
        return
    found = nearest(scipy.sparse.csr_array(X) if sparse else X, np.arange(25), among, k)
    for i in range(25):
        wanted = reference.neighbours(X, i, among, k)
        assert found.index[i].tolist() == [a for _, a in wanted]
        assert found.distance[i] == pytest.approx([distance for distance, _ in wanted], abs=1e-9)


def test_equal_rows_far_from_the_origin_have_distance_zero():
    X = np.full((8, 3), 1e4 + 1 / 3)
    found = nearest(X, np.arange(8), np.arange(8), 3)
    assert not found.distance.any()
    assert found.index[0].tolist() == [1, 2, 3]
    assert found.index[2].tolist() == [0, 1, 3]


@pytest.mark.parametrize("n_folds", [2, 4, 10])
@pytest.mark.parametrize("k", [1, 7])
def test_outside_a_fold(n_folds, k):
    """Rows sorted by their only feature: contiguous folds hold almost all neighbours of a row."""
    X = np.sort(np.random.default_rng(0).random((40, 1)), axis=0)
    folds = make_folds(40, n_folds, None)
    table = NeighbourTable(X, folds, k)
    for fold in range(n_folds):
        found = table.outside(fold)
        for i in range(40):
            wanted = reference.neighbours(X, i, np.flatnonzero(folds != fold), k)
            assert found.index[i].tolist() == [a for _, a in wanted]
