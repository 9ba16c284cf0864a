from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse

from ccmn.data import read_file, write_file


def test_round_trip_of_sparse_and_candidates(small, same, tmp_path):
    data = dataclasses.replace(
        small,
        X=scipy.sparse.csr_array(small.X),
        Y=scipy.sparse.csr_array(small.Y),
        candidates=np.ones((3, 2)),
        feature_names=None,
    )
    write_file(data, tmp_path / "data.npz")
    back = read_file(tmp_path / "data.npz")
    same(back, data)
    assert scipy.sparse.issparse(back.X)
    assert scipy.sparse.issparse(back.Y)
    assert back.feature_names is None


X_PARTS = {
    "X_data": np.ones(1, np.float32),
    "X_indices": np.zeros(1, np.int32),
    "X_indptr": np.array([0, 1, 1, 1], np.int32),
    "X_shape": np.array([3, 2]),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": None, "Y": None}, "the arrays 'X' and 'Y' are missing; found nothing"),
        ({"Y": np.array(1)}, "Y must be a matrix"),
        ({"Y": np.ones((4, 2))}, "Y must have a row for each of the 3 rows of X; got 4"),
        ({"Y": np.full((3, 2), 2)}, "Y must be 0 or 1"),
        ({"Y": np.full((3, 2), "a")}, "Y must be numbers"),
        ({"X": np.ones(3)}, "X must be a matrix"),
        ({"label_names": np.array(["a"])}, "one name per label"),
        ({"label_names": np.array(7)}, "one name per label"),
        ({"label_names": np.array(["a", "a"])}, "more than once"),
        ({"candidates": np.ones((3, 3))}, "candidates must have the shape of Y"),
        ({"X": None, "X_data": np.ones(1)}, "the sparse matrix X lacks X_indices, X_indptr, X_shape"),
        ({"X": None, **X_PARTS, "X_indices": np.array([9], np.int32)}, "indices|index"),
        ({"X": None, **X_PARTS, "X_indices": np.array([-1], np.int32)}, "indices|index"),
        ({"X": None, **X_PARTS, "X_indptr": np.array([0, 1], np.int32)}, "the parts of the sparse matrix X"),
        ({"X": None, **X_PARTS, "X_indptr": np.array([0, 3, 1, 1], np.int32)}, "ind"),
        ({"X": None, **X_PARTS, "X_indptr": np.array([0, 1, 1, 0], np.int32)}, "indptr decreases"),
        ({"X": None, **X_PARTS, "X_shape": np.array(3)}, "sparse matrix X|Y must|X must"),
        ({"X": None, **X_PARTS, "X_shape": np.array([-3, 2])}, "the parts of the sparse matrix X"),
        ({"X": None, **X_PARTS, "X_shape": np.array(["a", "b"])}, "must have whole numbers"),
        ({"X": None, **X_PARTS, "X_data": np.array(["a"])}, "X must contain numbers|sparse matrix X"),
        ({"X": None, **X_PARTS, "X_indices": np.array([0.5])}, "must have whole numbers in X_indices"),
    ],
)
def test_malformed(tmp_path, small, change, message):
    arrays = {"X": small.X, "Y": small.Y} | change
    path = tmp_path / "data.npz"
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    with pytest.raises(ValueError, match=message) as caught:
        read_file(path)
    assert str(path) in str(caught.value)


class Trap:
    """Object whose unpickling would raise SystemExit."""

    def __reduce__(self):
        return (exit, (3,))


def test_pickled_member_is_never_loaded(tmp_path, small):
    path = tmp_path / "data.npz"
    np.savez(path, X=small.X, Y=np.array([[Trap()]], dtype=object))
    with pytest.raises(ValueError, match="not a complete NPZ file of plain arrays"):
        read_file(path)
