"""Encoding of labels: matrices, label sets and classes."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from ccmn.models.targets import encode_like, encode_targets

SETS = [{"sea", "sky"}, [], ("sun", "sun"), ["sky"]]


@pytest.mark.parametrize("large", [False, True])
def test_label_sets(monkeypatch, large):
    """Large label sets are never made dense."""
    monkeypatch.setattr("ccmn.models.targets.MIN_SPARSE_ENTRIES", 1 if large else 100)
    found = encode_targets(SETS)
    assert found.label_names == ("sea", "sky", "sun")
    assert found.sparse == scipy.sparse.issparse(found.labels) == large
    dense = found.labels.toarray() if large else found.labels
    assert dense.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0]]
    others = encode_like([["sun"], ["sea", "sun"]], found)
    assert (others.toarray() if large else others).tolist() == [[0, 0, 1], [1, 0, 1]]
    with pytest.raises(ValueError, match="label 'moon' is not among the training labels"):
        encode_like([["moon"], ["sea"]], found)


def test_other_sets_are_never_a_matrix():
    """Sets of equal size look like rows of a matrix; all sets of a few rows can be empty."""
    found = encode_targets([[0, 1], [1], [0]])
    np.testing.assert_array_equal(encode_like([[0, 1], [1, 0]], found), [[1, 1], [1, 1]])
    np.testing.assert_array_equal(encode_like([[0], [1]], found), np.eye(2))
    np.testing.assert_array_equal(encode_like([[], []], found), np.zeros((2, 2)))
    np.testing.assert_array_equal(encode_like(np.array([[0, 1]]), found), [[0, 1]])
    assert encode_targets([{2**70, 1}, {1}]).labels.tolist() == [[1, 1], [1, 0]]


def test_one_class_per_row_is_not_a_label_matrix():
    matrix, column = encode_targets(np.eye(3)), encode_targets(np.array([[0], [1]]))
    with pytest.raises(ValueError, match="label matrix"):
        encode_like(np.array([0, 1, 2]), matrix)
    np.testing.assert_array_equal(encode_like(np.ones(2), column), np.ones((2, 1)))


def test_texts_that_list_labels_are_rejected():
    with pytest.raises(ValueError, match=r'such as .a;b.*y\.str\.get_dummies\(";"\)'):
        encode_targets(pd.Series(["a;b", "c", None]))
    advised = pd.Series(["a;b", "c", None]).str.get_dummies(";")
    assert encode_targets(advised).labels.tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("container", [pd.Series, list])
def test_gaps_among_label_sets_are_rejected(container):
    with pytest.raises(ValueError, match=r"1 of 3 rows without a list, such as nan.* empty list"):
        encode_targets(container([["a", "b"], float("nan"), ["c"]]))


def test_empty_label_names_are_rejected():
    with pytest.raises(ValueError, match="empty label"):
        encode_targets(pd.Series(["a;b", ""]).str.split(";"))
    with pytest.raises(ValueError, match="empty name"):
        encode_targets(pd.DataFrame({"": [0, 1], "a": [1, 0]}))
