"""fPML: the objective decreases monotonically, and its limits are ridge regression and truncated SVDs."""

import numpy as np
import pytest
import scipy.sparse

from ccmn.paper.baselines import FPML
from paper.baselines import reference


def truncated(M, k):
    left, s, right = np.linalg.svd(M, full_matrices=False)
    return left[:, :k] * s[:k] @ right[:k]


def data(shape="tall"):
    n, d = {"tall": (50, 5), "wide": (12, 30)}[shape]
    X, _, S = reference.make_task(n=n, d=d, q=6)
    return X, S.astype(float)


@pytest.mark.parametrize("svd", ["exact", "randomized"])
@pytest.mark.parametrize("shape", ["tall", "wide"])
@pytest.mark.parametrize("weights", [(1, 1, 10), (0.1, 5, 0.3), (0, 1, 1)])
def test_objective_decreases_monotonically(shape, weights, svd):
    X, Y = data(shape)
    clf = FPML(3, *weights, svd=svd, random_state=0).fit(X, Y)
    steps = np.diff(clf.objective_)
    assert len(clf.objective_) == 2 * clf.n_iter_
    assert steps.max() <= 1e-10 * clf.objective_[0]


@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_optimum_matches_factor_by_factor_updates(shape):
    X, Y = data(shape)
    clf = FPML(2, 0.5, 2.0, 1.0, max_iter=2000).fit(X, Y)
    Z, W, value = reference.fpml_alternating(X, Y, 2, 0.5, 2.0, 1.0)
    assert clf.objective_[-1] == pytest.approx(value, rel=1e-7)
    assert pytest.approx(Z, abs=1e-5) == clf.Z_
    assert pytest.approx(W, abs=1e-5) == clf.W_


@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_full_rank_is_ridge_regression(shape):
    X, Y = data(shape)
    for l2, l3 in ((1.0, 10.0), (3.0, 0.5)):
        clf = FPML(50, 1.0, l2, l3).fit(X, Y)
        penalty = l3 * (1 + l2) / l2
        W = np.linalg.solve(X.T @ X + penalty * np.eye(X.shape[1]), X.T @ Y)
        assert pytest.approx(W, abs=1e-6) == clf.W_
        assert pytest.approx((Y + l2 * X @ clf.W_) / (1 + l2), abs=1e-6) == clf.Z_


@pytest.mark.parametrize(("rank", "expected"), [(None, 3), (2, 2), (0.25, 2), (0.5, 3), (1.0, 6), (0.01, 1)])
def test_rank_as_number_or_share(rank, expected):
    assert FPML(rank).fit(*data()).rank_ == expected


@pytest.mark.parametrize("shape", ["tall", "wide"])
@pytest.mark.parametrize("svd", ["exact", "randomized"])
def test_factors_without_classifier_are_the_truncated_svd(shape, svd):
    X, Y = data(shape)
    expected = truncated(np.hstack([Y, np.sqrt(0.3) * X]), 3)
    clf = FPML(3, 0.3, 0.0, 0.0, svd=svd, random_state=0).fit(X, Y)
    assert pytest.approx(expected[:, :6], abs=1e-6) == clf.Z_
    error = ((Y - clf.Z_) ** 2).sum() + ((np.sqrt(0.3) * X - expected[:, 6:]) ** 2).sum()
    assert clf.objective_[-1] == pytest.approx(error, rel=1e-9)


def test_randomized_and_sparse_match_exact():
    X, Y = data()
    X = np.where(np.abs(X) < 0.4, 0, X)
    exact = FPML(2).fit(X, Y)
    for features in (X, scipy.sparse.csr_array(X)):
        for svd in ("exact", "randomized"):
            clf = FPML(2, svd=svd, random_state=1).fit(features, Y)
            assert pytest.approx(exact.W_, abs=1e-6) == clf.W_
            assert pytest.approx(exact.Z_, abs=1e-5) == clf.Z_
