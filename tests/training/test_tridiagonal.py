"""Reduction to tridiagonal form, compared with dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccmn.training.ridge import Tridiagonal


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 12), rank=st.integers(0, 12), m=st.integers(1, 4), seed=st.integers(0, 99))
def test_shifted_systems(n, rank, m, seed):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n, min(rank, n)))
    A, right = factor @ factor.T, rng.normal(size=(n, m))
    form = Tridiagonal(A.copy())
    np.testing.assert_allclose(form.rotate_back(form.rotate(right)), right, atol=1e-12)
    for shift in (1e-3, 1.0):
        found = form.rotate_back(form.solve(shift, form.rotate(right)))
        np.testing.assert_allclose((A + shift * np.eye(n)) @ found, right, atol=1e-8)


def test_zero_shift_of_a_singular_matrix():
    form = Tridiagonal(np.ones((5, 5)))
    assert np.isfinite(form.solve(0.0, np.eye(5))).all()


def test_indefinite_matrix_is_rejected():
    with pytest.raises(ValueError, match="not positive semidefinite"):
        Tridiagonal(-np.eye(3)).solve(0.5, np.eye(3))
