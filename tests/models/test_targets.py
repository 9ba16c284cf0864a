"""Encoding of labels: matrices, label sets and classes; labels that are 1 or NaN and never 0."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression

from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier, MissingNoise, PartialNoise, estimate_noise
from ccmn.data import make_noisy_multilabel
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


# -- Labels that are 1 or NaN, without noise or under noise that removes true labels

NAMES = ["sea", "sky", "sun"]
MISSING = MissingNoise([0.3, 0.3, 0.3])
TASK = make_noisy_multilabel(300, 4, 3, strength=6, noise=MISSING, random_state=0)
WITHOUT_ZEROS = np.where(TASK.Y_noisy == 1, 1.0, np.nan)
ONE_WITHOUT = np.column_stack([TASK.Y_noisy[:, 0], WITHOUT_ZEROS[:, 1], TASK.Y_noisy[:, 2]])


def fit(noise, Y, rows=slice(None), **options):
    return CCMNClassifier(noise, epochs=1, lr=0.05, random_state=0).fit(TASK.X[rows], Y[rows], **options)


def correct(noise, Y):
    return CorrectedClassifier(LogisticRegression(), noise).fit(TASK.X, Y)


@pytest.mark.parametrize("noise", ["missing", "both", MISSING, ClassConditionalNoise([0.3] * 3, [0.0] * 3), None])
def test_a_matrix_without_zeros_is_rejected(noise):
    for call in (fit, correct):
        with pytest.raises(ValueError, match=r"for labels 'sea', 'sky' and 'sun' \(of 3\)"):
            call(noise, pd.DataFrame(WITHOUT_ZEROS, columns=NAMES))
        with pytest.raises(ValueError, match=r"^Expected .* for labels 0, 1 and 2 \(of 3\)"):
            call(noise, WITHOUT_ZEROS)


def test_one_label_without_zeros_is_rejected_if_labels_were_only_removed():
    Y = pd.DataFrame(ONE_WITHOUT, columns=NAMES)
    for call in (fit, correct, lambda noise, Y: estimate_noise(TASK.X, Y, noise_type="missing")):
        with pytest.raises(ValueError, match=r"got only 1 and NaN for label 'sky' \(of 3\)"):
            call("missing", Y)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_valid_labels_are_accepted():
    for noise in ("both", None, PartialNoise([0.1] * 3), ClassConditionalNoise([0.3] * 3, [0.1] * 3)):
        fit(noise, ONE_WITHOUT)
    fit("missing", ONE_WITHOUT, trusted=(np.arange(40), TASK.Y[:40]))
    always = TASK.Y_noisy.astype(float)
    always[:, 1] = 1
    fit("missing", always)  # a label that is always present
    always[:100, 0] = np.nan
    always[100:150] = np.nan
    fit("missing", always)  # it has no NaN in rows in which other labels are observed
    rare = TASK.Y_noisy.astype(float)
    rare[:, 1] = np.where(np.arange(300) < 2, 1, np.nan)
    fit("missing", rare)  # the few observed labels are positive, which may be chance
