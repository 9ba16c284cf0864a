import dataclasses

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

from ccmn.data import MultiLabelData


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
        ({"Y": [["a", "b"]] * 3}, "Y must be numbers 0 or 1"),
        ({"X": [1, 2, 3]}, "X must be a matrix"),
        ({"X": [["red", "1"]] * 3}, "X must contain numbers"),
        ({"X": np.ones((3, 2), complex)}, "X must contain numbers"),
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
