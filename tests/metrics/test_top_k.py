"""Top-k metrics: reference implementations, containers, unbiasedness by enumeration, standard errors, memory."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccmn import metrics
from ccmn.metrics import precision_at_k, psp_at_k
from ccmn.noise import ClassConditionalNoise, MissingNoise, TransitionNoise
from metrics import reference
from metrics.strategies import Estimated, central_difference, labels_and_scores, make_task, random_case
from reference import noisy_vectors
from strategies import SEEDS, noises

NAMES = ("precision_at_k", "recall_at_k", "ndcg_at_k", "psp_at_k")
WITH_NOISE = {"precision_at_k": precision_at_k, "psp_at_k": psp_at_k}
every_metric = pytest.mark.parametrize("name", NAMES)
every_noisy_metric = pytest.mark.parametrize("name", WITH_NOISE)
pytestmark = pytest.mark.filterwarnings("ignore:ps.* is divided by the best ranking")


def reference_value(name, Y, scores, k):
    arguments = (np.ones(len(Y[0])),) if name.startswith("ps") else ()
    return getattr(reference, name)(Y, scores, k, *arguments)


class TestWithoutNoise:
    @given(case=labels_and_scores, data=st.data())
    def test_equal_to_the_reference(self, case, data):
        Y, scores = case
        k = data.draw(st.integers(1, Y.shape[1]))
        for name in NAMES:
            value = getattr(metrics, name)(Y, scores, k)
            assert type(value) is float
            assert value == pytest.approx(reference_value(name, Y.tolist(), scores.tolist(), k), abs=1e-12)

    @given(case=labels_and_scores, seed=SEEDS, data=st.data())
    def test_sparse_scores_are_the_stored_entries(self, case, seed, data):
        Y, scores = case
        k = data.draw(st.integers(1, Y.shape[1]))
        stored = np.random.default_rng(seed).random(Y.shape) < 0.6
        rows, columns = np.nonzero(stored)
        S = scipy.sparse.coo_array((scores[stored], (rows, columns)), shape=Y.shape)
        partly = [[f if kept else None for f, kept in zip(*pair)] for pair in zip(scores.tolist(), stored)]
        for name in NAMES:
            expected = reference_value(name, Y.tolist(), partly, k)
            for labels, given_scores in ((Y, S), (scipy.sparse.csr_array(Y), S.tocsr()), (Y, S.tocsc())):
                value = getattr(metrics, name)(labels, given_scores, k)
                assert value == pytest.approx(expected, abs=1e-12)


class TestInputs:
    @every_metric
    def test_any_container(self, name, tmp_path):
        metric = getattr(metrics, name)
        Y, scores = random_case(30, 6, levels=4)
        expected = metric(Y, scores, 3)
        stored = np.memmap(tmp_path / "scores", dtype=np.float64, mode="w+", shape=scores.shape)
        stored[:] = scores
        for labels in (Y.tolist(), Y.astype(bool), pd.DataFrame(Y).astype({0: object}), scipy.sparse.csc_matrix(Y)):
            assert metric(labels, scores, 3) == expected
        for values in (scores.tolist(), pd.DataFrame(scores), stored, scores.astype(np.float16).astype(np.float64)):
            assert metric(Y, values, 3) == pytest.approx(expected, abs=1e-12)
        tensors = torch.tensor(Y), torch.tensor(scores, requires_grad=True)
        assert metric(*tensors, 3) == expected
        assert type(metric(Y, torch.tensor(scores).bfloat16(), 3)) is float

    @every_metric
    def test_unsorted_and_duplicate_entries(self, name):
        Y, scores = random_case(20, 6)
        rng = np.random.default_rng(0)
        row, column = np.nonzero(np.ones_like(scores))
        order = np.argsort(row + rng.random(row.size))  # shuffled within rows
        parts = np.repeat(scores[row, column][order] / 2, 2), np.repeat(column[order], 2)
        S = scipy.sparse.csr_array((*parts, np.arange(21) * 12), shape=(20, 6))
        kept = S.data.copy(), S.indices.copy()
        assert getattr(metrics, name)(Y, S, 2) == pytest.approx(getattr(metrics, name)(Y, scores, 2), abs=1e-12)
        np.testing.assert_array_equal(S.data, kept[0])
        np.testing.assert_array_equal(S.indices, kept[1])

    @every_metric
    def test_blocks_of_rows_give_the_same_value(self, name, monkeypatch):
        Y, scores = random_case(40, 6, levels=3)
        S = scipy.sparse.csr_array(np.where(scores > 0.4, scores, 0))
        options = {"noise": ClassConditionalNoise([0.2] * 6, [0.05] * 6)} if name in WITH_NOISE else {}
        for case in ((Y, scores), (scipy.sparse.csr_array(Y), S)):
            whole = getattr(metrics, name)(*case, 3, **options)
            with monkeypatch.context() as patch:
                patch.setattr("ccmn.metrics.top_k.MAX_BLOCK_ENTRIES", 20)
                found = getattr(metrics, name)(*case, 3, **options)
            assert float(found) == pytest.approx(float(whole), abs=1e-12)
            assert getattr(found, "se", 0) == pytest.approx(getattr(whole, "se", 0), abs=1e-12)

    def test_memory_does_not_grow_with_rows_times_labels(self):
        n, q = 200_000, 1_000_000  # a matrix of booleans would need 200 GB
        rng = np.random.default_rng(0)
        indptr = np.zeros(n + 1, dtype=np.int64)
        indptr[1001:] = 5
        indices = np.sort(rng.choice(q, 5, replace=False))
        S = scipy.sparse.csr_array((rng.random(5), indices, indptr), shape=(n, q))
        Y = scipy.sparse.csr_array((np.ones(5), indices, indptr), shape=(n, q))
        for name in NAMES:
            getattr(metrics, name)(Y, S, 3, **({"noise": MissingNoise(0.3, n_labels=q)} if name in WITH_NOISE else {}))
        assert precision_at_k(Y, S, 3) == pytest.approx(1 / n)

    def test_errors(self, monkeypatch):
        Y, scores = random_case(10, 4)
        for labels, f, k, message in (
            (Y, scores, 5, "k must be at most the number of labels"),
            (Y, scores, 0, "k must be an integer"),
            (Y, scores, 1.5, "k must"),
            (Y, scores[:, :3], 2, r"same shape \(n, q\)"),
            (2 * Y - 1, scores, 2, "Y must be 0 or 1; got -1"),
            (scipy.sparse.csr_array(2 * Y), scores, 2, "Y must be 0 or 1; got 2"),
            ([["a", "b"]], [[1, 0]], 1, "Y must be a matrix of numbers"),
        ):
            with pytest.raises(ValueError, match=message):
                precision_at_k(labels, f, k)
        for noise, error, message in (
            (MissingNoise(0.1, n_labels=3), ValueError, "must have 3 labels"),
            (TransitionNoise(np.eye(4)), TypeError, "noise must be a ClassConditionalNoise"),
            (0.3, TypeError, "noise must be a noise model"),
        ):
            with pytest.raises(error, match=message):
                precision_at_k(Y, scores, 2, noise=noise)
        names = pd.DataFrame(Y, columns=list("abcd"))
        with pytest.raises(ValueError, match="reorder"):
            precision_at_k(names, scores, 2, noise=MissingNoise([0.1] * 4, label_names=list("abdc")))
        monkeypatch.setattr("ccmn.metrics.top_k.MAX_BLOCK_ENTRIES", 12)  # the row is counted across blocks
        for matrix in (np.array, scipy.sparse.csr_array):
            unknown = scores.copy()
            unknown[7, 2] = np.nan
            with pytest.raises(ValueError, match="scores contains NaN, first in row 7"):
                precision_at_k(Y, matrix(unknown), 2)
            unknown = Y.astype(float)
            unknown[7, 2] = np.nan
            with pytest.raises(ValueError, match="Y contains NaN, first in row 7, label 2"):
                precision_at_k(matrix(unknown), scores, 2)


class TestUnbiased:
    @settings(max_examples=20)
    @given(noise=noises(q=4), seed=SEEDS)
    def test_precision_by_enumeration(self, noise, seed):
        """The mean over all noisy versions of a row is the value on its true labels."""
        rng = np.random.default_rng(seed)
        y, f = rng.integers(0, 2, 4), rng.normal(size=(1, 4)).round(1)
        mean = 0.0
        for noisy, probability in noisy_vectors(y, noise.rho_pos, noise.rho_neg):
            found = precision_at_k([noisy], f, 2, noise=noise)
            assert found.status == "unbiased"
            mean += probability * found.value
        assert mean == pytest.approx(precision_at_k([y], f, 2), abs=1e-9)


class TestPropensities:
    @settings(max_examples=30)
    @given(case=labels_and_scores, seed=SEEDS, data=st.data())
    def test_missing_noise_gives_the_propensity_scored_value(self, case, seed, data):
        Y, scores = case
        Y[0, 0] = 1
        k = data.draw(st.integers(1, Y.shape[1]))
        propensity = np.random.default_rng(seed).uniform(0.1, 1, Y.shape[1])
        noise = MissingNoise(1 - propensity)
        expected = reference.psp_at_k(Y.tolist(), scores.tolist(), k, propensity)
        for labels in (Y, scipy.sparse.csr_array(Y)):
            found = psp_at_k(labels, scores, k, noise=noise)
            assert found.value == pytest.approx(expected, abs=1e-9)
            assert found.status == "approximate"

    def test_warning_about_added_labels(self):
        Y, scores = make_task(300, 6, threshold=0.8)
        with pytest.warns(UserWarning, match="psp_at_k .*use precision_at_k") as issued:
            psp_at_k(Y, scores, 3, noise=ClassConditionalNoise(0.1, 0.1, n_labels=6))
        assert issued[0].filename == __file__


class TestEstimates:
    NOISE = ClassConditionalNoise([0.2, 0.1, 0.3, 0.0, 0.2, 0.1], [0.1, 0.2, 0.1, 0.2, 0.0, 0.1])
    STRONG = ClassConditionalNoise([0.30, 0.31, 0.32, 0.28, 0.29, 0.33], [0.31, 0.28, 0.30, 0.32, 0.29, 0.27])

    @every_noisy_metric
    @pytest.mark.parametrize("noise", [MissingNoise(0.3, n_labels=6), NOISE, STRONG], ids=["missing", "both", "strong"])
    def test_standard_error_is_the_infinitesimal_jackknife(self, name, noise):
        """Adding one of many copies of a row changes the value by its influence."""
        metric, copies = getattr(metrics, name), 20
        Y, scores = make_task(40, 6, threshold=0.8)
        Y = noise.corrupt(Y, random_state=3)
        large_Y, large_scores = np.tile(Y, (copies, 1)), np.tile(scores, (copies, 1))
        whole = metric(large_Y, large_scores, 2, noise=noise)
        n = len(large_Y)
        influence = [
            (metric(np.vstack([large_Y, y]), np.vstack([large_scores, f]), 2, noise=noise).value - whole.value)
            * (n + 1)
            for y, f in zip(Y, scores)
        ]
        expected = np.sqrt(copies * np.sum(np.square(influence)) / (n * (n - 1)))
        assert whole.se == pytest.approx(expected, rel=0.03)

    @every_noisy_metric
    @pytest.mark.parametrize("noise", [NOISE, STRONG], ids=["moderate", "strong"])
    def test_standard_error_includes_the_rates(self, name, noise):
        """Finite differences of the value by each rate, combined by the delta method."""
        metric = getattr(metrics, name)
        Y, scores = make_task(800, 6, threshold=0.8)
        Y = noise.corrupt(Y, random_state=0)
        rng = np.random.default_rng(0)
        se_pos, se_neg = rng.uniform(0.01, 0.05, (2, 6))
        known = metric(Y, scores, 2, noise=noise)
        found = metric(Y, scores, 2, noise=Estimated(noise, se_pos, se_neg))
        slopes = central_difference(lambda noise: metric(Y, scores, 2, noise=noise).value, noise)
        variance = known.se**2 + ((slopes * [se_pos, se_neg]) ** 2).sum()
        assert found.value == known.value
        assert found.se == pytest.approx(variance**0.5, rel=1e-3)
        assert found.status != "unbiased"

    @every_noisy_metric
    @pytest.mark.parametrize(
        "noise", [NOISE, MissingNoise([0.3] * 6), MissingNoise([0.8] * 6)], ids=["both", "0.3", "0.8"]
    )
    def test_rows_with_nan_are_excluded(self, name, noise):
        metric = getattr(metrics, name)
        Y, scores = make_task(50, 6, threshold=0.8)
        unknown = Y.astype(float)
        unknown[::3, 2] = np.nan
        kept = np.arange(50) % 3 != 0
        expected = metric(Y[kept], scores[kept], 2, noise=noise)
        sparse = scipy.sparse.csr_array(unknown)
        for labels in (unknown, torch.tensor(unknown), sparse):
            found = metric(labels, scores, 2, noise=noise)
            assert (found.value, found.se) == pytest.approx((expected.value, expected.se))
        with pytest.warns(UserWarning, match=f"{name} cannot be estimated .*no row has all labels observed"):
            assert np.isnan(metric(np.full_like(unknown, np.nan), scores, 2, noise=noise).value)

    def test_matrices_without_labels(self):
        scores, noise = make_task(50, 6, threshold=0.8)[1], MissingNoise(0.8, n_labels=6)
        with pytest.warns(UserWarning, match="psp_at_k cannot be estimated"):
            assert np.isnan(psp_at_k(np.zeros((50, 6)), scores, 2, noise=noise).value)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert precision_at_k(np.zeros((50, 6)), scores, 2, noise=noise).value == 0
