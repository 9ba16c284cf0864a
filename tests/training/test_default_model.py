import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from scipy.special import expit

from ccmn.training.default_model import DefaultSettings, NoisyLabelModel, distinct_rows

FAST = DefaultSettings(n_trees=5, c_grid=(1e-2, 1.0))


def simulate(n=200, d=6, q=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (rng.random((n, q)) < expit(2 * X[:, :q] - 1)).astype(float)
    return X, Y


def fit(X, Y, **options):
    return NoisyLabelModel(0, FAST).fit(X, Y, **options)


def log_loss(Y, f):
    return (np.logaddexp(0, f) - Y * f).mean()


def test_out_of_fold_predictions_do_not_see_their_row():
    X = np.random.default_rng(0).normal(size=(300, 50))
    Y = (np.random.default_rng(1).random((300, 2)) < 0.5).astype(float)
    f = fit(X, Y).out_of_fold_.log_odds
    assert log_loss(Y, f) > np.log(2) - 0.005  # in-sample predictions would be better than a coin


def test_sparse_and_dense_features_are_accepted():
    X, Y = simulate()
    X[np.abs(X) < 0.5] = 0
    sparse = fit(scipy.sparse.csr_matrix(X), Y)
    assert sparse.components_ is not None
    assert np.corrcoef(sparse.log_odds(scipy.sparse.csr_matrix(X)).ravel(), fit(X, Y).log_odds(X).ravel())[0, 1] > 0.9


def test_rows_of_weight_zero_have_no_influence():
    X, Y = simulate()
    weight = (np.arange(len(X)) < 150).astype(float)
    wrong = np.where(weight[:, None] == 0, 1 - Y, Y)
    assert fit(X, Y, sample_weight=weight).coef_ == pytest.approx(fit(X, wrong, sample_weight=weight).coef_, abs=1e-6)


def test_probabilities_count_as_two_weighted_labels():
    X, Y = simulate(300)
    soft = 0.8 * Y + 0.1
    f = fit(X, soft).log_odds(X)
    assert expit(f).mean(0) == pytest.approx(soft.mean(0), abs=0.03)
    assert f.max() < fit(X, Y).log_odds(X).max()


def test_copies_of_all_rows_change_nothing():
    X, Y = simulate()
    once = fit(X, Y)
    for times in (2, 4):
        copies = fit(np.tile(X, (times, 1)), np.tile(Y, (times, 1)))
        assert copies.coef_ == pytest.approx(once.coef_)
        assert len(copies.out_of_fold_.rows) == len(X)
        assert (copies.out_of_fold_.representative[: len(X)] == copies.out_of_fold_.representative[-len(X) :]).all()
        assert copies.out_of_fold_log_odds(np.tile(X, (times, 1))).shape == (times * len(X), 3)


def test_rows_that_repeat_often_are_kept():
    rng = np.random.default_rng(0)
    X, Y = rng.integers(2, size=(400, 3)).astype(float), rng.integers(2, size=(400, 2)).astype(float)
    rows, group = distinct_rows(X, Y)
    assert len(rows) == 400
    assert (group == np.arange(400)).all()


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_distinct_rows_equal_a_comparison_of_all_rows(kind):
    rng = np.random.default_rng(0)
    X, Y = rng.integers(3, size=(40, 3)).astype(float), rng.integers(2, size=(40, 1)).astype(float)
    rows, group = distinct_rows(kind(X), Y)
    whole = np.concatenate([X, Y], 1)
    assert (whole[rows][group] == whole).all()
    assert len(rows) == len(np.unique(whole, axis=0))
    assert (np.sort(rows) == rows).all()


def test_more_rows_than_the_limit_are_predicted_by_models_that_have_not_seen_them():
    X, Y = simulate(600)
    model = NoisyLabelModel(0, replace(FAST, max_rows=200)).fit(X, Y)
    assert model.out_of_fold_.log_odds.shape == (200, 3)
    f = model.out_of_fold_log_odds(X)
    assert np.isfinite(f).all()
    assert log_loss(Y, f) < 0.55


@pytest.mark.parametrize("n", [2, 3, 7, 20, 101])
@pytest.mark.parametrize("q", [1, 4])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_small_constant_and_extreme_data_give_finite_predictions_without_warnings(n, q, scale):
    rng = np.random.default_rng([n, q])
    X = scale * rng.normal(size=(n, 3))
    X[:, 2] = 5.0
    Y = (rng.random((n, q)) < 0.3).astype(float)
    Y[:, 0] = 0
    Y[: n // 2, -1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(fit(X, Y).log_odds(X)).all()
