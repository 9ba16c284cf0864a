import dataclasses

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

from ccmn.data import MultiLabelData, load_digit_scenes, make_noisy_multilabel
from ccmn.noise import ClassConditionalNoise


def test_counts_and_dtypes(small):
    assert (small.n, small.d, small.q) == (3, 2, 2)
    assert small.cardinality == 1.0
    assert small.X.dtype == np.float32
    assert small.Y.dtype == np.uint8
    assert repr(small) == "MultiLabelData(small: n=3, d=2 dense, q=2)"


def test_unobserved_labels_stay_nan():
    data = MultiLabelData(np.zeros((2, 1)), [[1.0, np.nan], [0.0, 1.0]])
    assert data.Y.dtype == np.float32
    assert np.isnan(data.Y[0, 1])
    assert data.cardinality == 1.0


def test_sparse_stays_sparse_and_is_not_changed():
    X = scipy.sparse.csr_matrix(([1.0, 2.0, 3.0], [1, 0, 1], [0, 3]), shape=(1, 2))  # unsorted, a duplicate
    data = MultiLabelData(X, scipy.sparse.csr_array([[1, 0, 1]]))
    assert isinstance(data.X, scipy.sparse.csr_array)
    assert_array_equal(data.X.toarray(), [[2, 4]])
    assert X.nnz == 3
    assert data.Y.dtype == np.uint8
    assert data.cardinality == 2.0


@pytest.mark.parametrize("rows", [[2, 0], np.array([True, False, True]), slice(1, None)])
@pytest.mark.parametrize("sparse", [False, True])
def test_take(small, rows, sparse):
    data = dataclasses.replace(small, candidates=np.ones_like(small.Y))
    if sparse:
        data = dataclasses.replace(data, X=scipy.sparse.csr_array(small.X))
    part = data.take(rows)
    assert_array_equal(part.X.toarray() if sparse else part.X, small.X[rows])
    assert_array_equal(part.Y, small.Y[rows])
    assert part.candidates.shape == part.Y.shape
    assert part.label_names == ("sea", "sky")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Y": [[1, 0]]}, "Y must have a row for each of the 3 rows of X; got 1"),
        ({"Y": [[1, 0], [0, 2], [1, 1]]}, "Y must be 0 or 1"),
        ({"Y": [[1, -1], [-1, -1], [1, 1]]}, r"For -1/\+1 labels pass"),
        ({"Y": [1, 0, 1]}, "Y must be a matrix"),
        ({"X": [1, 2, 3]}, "X must be a matrix"),
        ({"X": [[0, np.inf], [0, 0], [0, 0]]}, r"infinite value \(row 0, column 1, from 0\)"),
        ({"X": scipy.sparse.csr_array([[0, 0], [0, 0], [np.inf, 0]])}, r"infinite value \(row 2, column 0"),
        ({"X": np.zeros((0, 2)), "Y": np.zeros((0, 2))}, "at least one row"),
        ({"candidates": [[1, 1]]}, r"candidates must have the shape of Y, \(3, 2\); got \(1, 2\)"),
        ({"label_names": ["sea", "sea"]}, "'sea' .* more than once"),
        ({"Y": scipy.sparse.csr_array([[np.nan, 0], [0, 0], [0, 0]])}, "sparse and contains NaN"),
    ],
)
def test_rejected(small, change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(small, **change)


# -- Synthetic data


def test_posterior_is_the_formula():
    task = make_noisy_multilabel(50, 4, 3, strength=2.0, random_state=0)
    logit = task.X.astype(float) @ task.weights.T + task.bias
    assert_allclose(task.posterior, 1 / (1 + np.exp(-logit)))
    assert_allclose(np.linalg.norm(task.weights, axis=1), 2.0)
    assert (task.X.dtype, task.Y.dtype) == (np.float32, np.uint8)
    assert_array_equal(task.Y, task.Y_noisy)


def test_labels_follow_the_posterior():
    task = make_noisy_multilabel(40_000, 3, 4, random_state=1)
    # Given X the labels are independent Bernoulli(p): a column's sum has variance sum p (1 - p); 5 sigma.
    sigma = np.sqrt((task.posterior * (1 - task.posterior)).sum(0))
    assert (np.abs(task.Y.sum(0) - task.posterior.sum(0)) < 5 * sigma).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prevalence": 0.0}, "prevalence must be strictly between 0 and 1"),
        ({"prevalence": [0.5, 0.5, 0.5]}, "prevalence has 3 rates, but there are 2 labels"),
        ({"correlation": 1.5}, "correlation must be between 0 and 1"),
        ({"n": 0}, "n must be an integer"),
        ({"noise": ClassConditionalNoise(0.1, 0.1, n_labels=5)}, "must have 5 labels"),
    ],
)
def test_rejected_tasks(change, message):
    arguments = {"n": 10, "d": 3, "q": 2} | change
    with pytest.raises(ValueError, match=message):
        make_noisy_multilabel(**arguments)


def test_labels_are_the_digits_shown():
    data = load_digit_scenes(400, max_digits=3, random_state=0)
    assert data.X.shape == (400, 384)
    assert 0 <= data.X.min() <= data.X.max() <= 1
    filled = data.X.reshape(400, 2, 8, 3, 8).sum((2, 4)) > 0
    # A digit may occur twice, so there are at most as many labels as filled cells.
    assert (data.Y.sum(1) >= 1).all()
    assert (data.Y.sum(1) <= filled.sum((1, 2))).all()
    assert filled.sum((1, 2)).max() == 3


def test_halves_use_different_images():
    data = load_digit_scenes(600, random_state=0)
    tiles = data.X.reshape(600, 2, 8, 3, 8).transpose(0, 1, 3, 2, 4).reshape(600, 6, 64)
    seen = [{t.tobytes() for t in half.reshape(-1, 64) if t.any()} for half in (tiles[:300], tiles[300:])]
    assert not seen[0] & seen[1]
