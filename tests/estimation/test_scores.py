"""Held-out scores: folds, honesty, quality, sparse features, seeds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import out_of_fold
from ccmn.estimation.out_of_fold import number_of_folds, out_of_fold_scores, spread_folds, standardised, training_rows
from ccmn.noise import ClassConditionalNoise

NOISE = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.3, 0.2])


@pytest.fixture(scope="module")
def task():
    return make_noisy_multilabel(1500, 6, 3, noise=NOISE, random_state=0)


def test_folds_are_a_partition_in_which_every_label_has_its_share():
    rng = np.random.default_rng(0)
    Y = (rng.random((503, 6)) < [0.5, 0.3, 0.1, 0.05, 0.02, 0.01]).astype(float)
    folds = spread_folds(Y, 5, rng)
    assert sorted(np.concatenate(folds)) == list(range(503))
    assert {len(fold) for fold in folds} == {100, 101}
    shares = np.array([Y[fold].sum(0) for fold in folds])
    rarest = Y.sum(0).argmin()
    assert np.ptp(shares[:, rarest]) <= 1
    for k, rows in enumerate(training_rows(folds, range(5), rng)):
        assert len(rows) == 402
        assert not np.isin(rows, folds[k]).any()


def test_number_of_folds():
    assert number_of_folds(np.tile([[0.0], [1.0]], (200, 1))) == 5
    assert number_of_folds(np.tile([[0.0], [1.0]], (50, 1))) == 3
    assert number_of_folds(np.zeros((2, 4))) == 2


def test_close_to_the_noisy_posterior(task):
    scores = out_of_fold_scores(task.X, task.Y_noisy.astype(float), 0)
    noisy = NOISE.rho_neg + (1 - NOISE.rho_pos - NOISE.rho_neg) * task.posterior
    assert scores.shape == (1500, 3)
    assert np.abs(scores - noisy).mean() < 0.08
    for j in range(3):
        assert scipy.stats.spearmanr(scores[:, j], noisy[:, j]).statistic > 0.95


def test_a_row_has_no_say_in_its_own_score():
    # Labels of pure chance cannot be foreseen: a model that had seen them could do so, with as many features.
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 150)), (rng.random((200, 2)) < 0.5).astype(float)
    scores = out_of_fold_scores(X, Y, 0)
    assert ((scores > 0.5) == Y).mean() < 0.6


def test_seeds(task):
    Y = task.Y_noisy[:300].astype(float)
    first = out_of_fold_scores(task.X[:300], Y, 1)
    np.testing.assert_array_equal(out_of_fold_scores(task.X[:300], Y, 1), first)
    assert (out_of_fold_scores(task.X[:300], Y, 2) != first).any()


def test_the_scale_of_features_does_not_matter(task):
    Y = task.Y_noisy[:600].astype(float)
    X = task.X[:600].astype(float)
    expected = out_of_fold_scores(X, Y, 0)
    np.testing.assert_allclose(out_of_fold_scores(X * 1e5 + 1e7, Y, 0), expected, atol=1e-3)
    constant = np.column_stack([X, np.full(600, 0.1)])
    assert np.isfinite(out_of_fold_scores(constant, Y, 0)).all()


def test_unobserved_labels_are_left_out_of_the_loss(task):
    Y = task.Y_noisy.astype(float)
    Y[::3, 0] = np.nan
    Y[:, 2] = np.nan
    scores = out_of_fold_scores(task.X, Y, 0)
    assert np.isfinite(scores).all()
    noisy = NOISE.rho_neg + (1 - NOISE.rho_pos - NOISE.rho_neg) * task.posterior
    assert scipy.stats.spearmanr(scores[:, 0], noisy[:, 0]).statistic > 0.9


@pytest.mark.parametrize("d", [300, 5000])
def test_sparse_features_narrow_and_wide(d, monkeypatch):
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(400, d, density=20 / d, format="csr", random_state=0, dtype=np.float64)
    Y = (X @ rng.standard_normal((d, 2)) > 0).astype(float)
    monkeypatch.setattr(scipy.sparse.csr_array, "todense", None)
    scores = out_of_fold_scores(X, Y, 0)
    assert scores.shape == (400, 2)
    assert ((scores > 0.5) == Y).mean() > 0.55


def test_a_scaled_csr_shares_its_places():
    X = scipy.sparse.csr_array(np.array([[0, 3.0], [4.0, 0]]))
    scaled = standardised(X)
    assert np.shares_memory(scaled.indices, X.indices)
    assert np.square(scaled.data).mean() == pytest.approx(1)
    assert X.data.tolist() == [3, 4]
    assert standardised(scipy.sparse.csr_array((3, 2))).nnz == 0


def test_one_by_one_is_close_to_all_at_once(task, monkeypatch):
    Y = task.Y_noisy[:300].astype(float)
    together = out_of_fold_scores(task.X[:300], Y, 0)
    monkeypatch.setattr(out_of_fold, "WIDEST_DENSE_BATCH", 2)
    assert np.abs(out_of_fold_scores(task.X[:300], Y, 0) - together).max() < 0.1


def test_tiny_data():
    for n in (1, 2, 3, 7):
        scores = out_of_fold_scores(np.arange(2.0 * n).reshape(n, 2), np.eye(n)[:, :2] if n > 1 else np.ones((1, 1)), 0)
        assert len(scores) == n
        assert np.isfinite(scores).all()


def test_an_interrupt_is_not_swallowed(task, monkeypatch):
    class Interrupted:
        interrupted = True

    monkeypatch.setattr(out_of_fold, "train", lambda *args, **kwargs: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        out_of_fold_scores(task.X, task.Y_noisy.astype(float), 0)
