"""Labels of ``fit``: matrices, label sets, votes or one class per row, encoded as one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.multiclass import check_classification_targets

from ccmn._containers import is_dataframe, is_other_table, is_sparse, label_names_of, to_dense_array
from ccmn._validation import check_label_values, check_trusted_rows
from ccmn.vote_table import VoteTable
from ccmn.votes import InferredLabels, infer_labels

MIN_SPARSE_ENTRIES = 1 << 24
"""Sparse labels and label sets with at most this number of entries, zeros included, are made dense, which is faster."""

Trusted = tuple[NDArray[np.int64], Any]
"""Numbers of the trusted rows and their true labels, dense or CSR."""


@dataclass(frozen=True)
class Targets:
    """Labels in the form that all later steps use.

    ``labels`` (n, q) are float32, NaN where not observed: a dense array, or CSR for many labels; the probabilities of
    the true labels if they were ``inferred`` from votes. ``classes`` are the columns (0..q-1, or the labels of the
    sets), or the class values. ``sparse`` tells whether predictions are sparse: the labels were given as a sparse
    matrix, or as very many label sets; ``sets`` whether they were given as label sets.
    """

    labels: Any
    kind: Literal["multilabel", "multiclass"]
    classes: NDArray[Any]
    label_names: tuple[str, ...] | None
    sparse: bool = False
    sets: bool = False
    inferred: InferredLabels | None = None


def is_votes(Y: Any) -> bool:
    """Return whether labels are votes: a ``VoteTable``, or an array (n, annotators, q)."""
    return getattr(Y, "ndim", 0) == 3


def _encode_votes(votes: Any) -> Targets:
    """Return the probabilities of the true labels given votes; NaN where nobody voted."""
    table = VoteTable.read(votes)
    # Features are not used here: they would add to the probabilities only what the classifier learns itself.
    inferred = infer_labels(table)
    labels = np.where(table.count() > 0, inferred.proba, np.nan).astype(np.float32)
    names = None if table.label_names is None else tuple(map(str, table.label_names))
    return Targets(labels, "multilabel", np.arange(labels.shape[1]), names, inferred=inferred)


def encode_targets(Y: Any) -> Targets:
    """Return the encoded form of labels: indicator matrix, label sets, one class per row, or votes."""
    if is_votes(Y):
        return _encode_votes(Y)
    if isinstance(Y, (list, tuple)):
        _check_all_label_sets(Y)
    if isinstance(Y, (list, tuple)) and _is_label_sets(Y):
        return _encode_label_sets(
            Y, sorted({label for row in Y for label in row}, key=lambda label: (str(type(label)), label))
        )
    if is_sparse(Y):
        if Y.ndim != 2 or Y.shape[1] == 0:
            raise ValueError(f"Expected a label matrix y of shape (n, q); got a sparse matrix of shape {Y.shape}")
        matrix = Y.tocsr().astype(np.float32)
        if not matrix.has_canonical_format:
            matrix.sum_duplicates()
        check_label_values(matrix.data, "y")
        labels = matrix if _is_large(matrix) else np.asarray(matrix.toarray())
        return Targets(labels, "multilabel", np.arange(matrix.shape[1]), None, sparse=True)
    is_array = type(Y) is np.ndarray and Y.dtype.kind in "biuf"
    names = None if is_array else label_names_of(Y) if is_dataframe(Y) or is_other_table(Y) else None
    if names is not None and "" in names:
        raise ValueError("y has a column with an empty name, which rows without labels can cause; drop it")
    array = Y if is_array else to_dense_array(Y)
    if array.ndim == 1 and array.dtype == object:
        _check_all_label_sets(array.tolist())
    if array.ndim == 1 and array.dtype == object and len(array) and all(isinstance(e, _COLLECTIONS) for e in array):
        return encode_targets([set(row) for row in array])  # a Series of lists of tags
    if array.ndim == 1:
        _check_joined_tags(array)
        return _encode_classes(array)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"Expected a label matrix y of shape (n, q) or one class per row; got shape {array.shape}")
    if array.shape[1] == 1 and not _is_zero_one(array):
        return _encode_classes(array[:, 0])  # scikit-learn passes classes as one column
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("Expected 0, 1 or NaN (not observed) in y; got entries that are not numbers") from None
    if not _is_zero_one(array):
        check_classification_targets(array)
    check_label_values(array, "y")
    classes = np.arange(array.shape[1]) if names is None else np.array(names)
    return Targets(array.astype(np.float32), "multilabel", classes, names)


def encode_like(Y: Any, targets: Targets) -> Any:
    """Return the labels of other rows in the columns of the training labels, dense or CSR."""
    if targets.kind == "multilabel":
        if targets.sets and isinstance(Y, (list, tuple)) and all(isinstance(row, _COLLECTIONS) for row in Y):
            # Sets of equal size are not a matrix if the training labels are sets, and all of them may be empty.
            assert targets.label_names is not None
            return _encode_label_sets([[str(label) for label in row] for row in Y], targets.label_names).labels
        encoded = encode_targets(Y)
        if encoded.kind != "multilabel":
            array = to_dense_array(Y)
            if targets.labels.shape[1] != 1 or not _is_zero_one(array):
                raise ValueError("Expected a label matrix as the training labels; got one class per row")
            encoded = encode_targets(array.reshape(-1, 1))
        if encoded.label_names and targets.label_names and encoded.label_names != targets.label_names:
            return _realign(encoded, targets.label_names, sets=not (is_dataframe(Y) or is_other_table(Y)))
        if encoded.labels.shape[1] != targets.labels.shape[1]:
            raise ValueError(
                f"Expected {targets.labels.shape[1]} label columns as in the training labels; "
                f"got {encoded.labels.shape[1]}"
            )
        return encoded.labels
    y = np.asarray(Y).ravel()
    unknown = set(y.tolist()) - set(targets.classes.tolist())
    if unknown:
        raise ValueError(f"class {next(iter(unknown))!r} is not among the training classes")
    return np.asarray(y[:, None] == targets.classes[None, :], dtype=np.float32)


_COLLECTIONS = (list, tuple, set, frozenset)
"""Types of a label set."""


def _check_all_label_sets(Y: Sequence[Any]) -> None:
    """Reject a mixture of label sets and other values, such as NaN where a Series of lists has gaps."""
    other = [row for row in Y if not isinstance(row, _COLLECTIONS)]
    if 0 < len(other) < len(Y) and not any(isinstance(row, np.ndarray) for row in other):
        raise ValueError(
            f"Expected a list of labels in every row of y; got {len(other)} of {len(Y)} rows without a list, such as "
            f"{other[0]!r}. Use an empty list for a row without labels, or y.str.get_dummies(...) of a Series of texts."
        )


def _is_label_sets(Y: Sequence[Any]) -> bool:
    """Return whether the entries of Y are sets, tuples or lists of labels."""
    if any(isinstance(row, (set, frozenset)) for row in Y):
        return True
    if not len(Y) or not all(isinstance(row, (list, tuple)) for row in Y):
        return False
    # Nested lists of equal length that hold only numbers are a matrix.
    return len({len(row) for row in Y}) > 1 or any(isinstance(entry, str) for row in Y for entry in row)


def _encode_label_sets(Y: Sequence[Any], labels: Sequence[Any]) -> Targets:
    """Return label sets as an indicator matrix with these labels."""
    if not labels:
        raise ValueError("Expected at least one label in y; got only empty label sets")
    if "" in labels:
        raise ValueError(
            'y contains an empty label: "".split(";") returns [""]. Use an empty list for a row without labels, or '
            'y.str.get_dummies(";") of a Series of texts.'
        )
    column = {label: j for j, label in enumerate(labels)}
    unknown = next((label for row in Y for label in row if label not in column), None)
    if unknown is not None:
        raise ValueError(f"label {unknown!r} is not among the training labels")
    columns = [[column[label] for label in row] for row in Y]  # labels can be integers beyond 64 bits
    binarizer = MultiLabelBinarizer(classes=range(len(column)), sparse_output=True)
    matrix = binarizer.fit_transform(columns).astype(np.float32)
    large = _is_large(matrix)
    names = tuple(str(label) for label in labels)
    encoded = matrix if large else np.asarray(matrix.toarray())
    return Targets(encoded, "multilabel", np.array(labels), names, sparse=large, sets=True)


def _check_joined_tags(y: NDArray[Any]) -> None:
    """Reject texts that list several tags, such as "a;b", as classes."""
    texts = [entry for entry in y.tolist() if isinstance(entry, str)]
    joined = next(((entry, separator) for separator in ";|" for entry in texts if separator in entry), None)
    if joined is not None:
        raise ValueError(
            f"y contains texts that list several labels, such as {joined[0][:40]!r}. Use one column per label: "
            f'y.str.get_dummies("{joined[1]}") of a Series.'
        )


def _encode_classes(y: NDArray[Any]) -> Targets:
    """Return one class per row as one label per class."""
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    names = tuple(str(c) for c in classes)
    return Targets(np.eye(len(classes), dtype=np.float32)[codes], "multiclass", classes, names)


def _is_large(matrix: Any) -> bool:
    return bool(matrix.shape[0] * matrix.shape[1] > MIN_SPARSE_ENTRIES)


def _is_zero_one(array: NDArray[Any]) -> bool:
    is_number = array.dtype == bool or np.issubdtype(array.dtype, np.number)
    return bool(is_number and ((array == 0) | (array == 1) | (array != array)).all())


def _realign(encoded: Targets, wanted: tuple[str, ...], sets: bool) -> Any:
    """Return labels with their columns in the order of the training labels; a label in none of the sets is 0."""
    names = list(encoded.label_names or ())
    unknown, absent = sorted(set(names) - set(wanted)), sorted(set(wanted) - set(names))
    if unknown:
        raise ValueError(f"label {unknown[0]!r} is not among the training labels")
    if absent and not sets:
        raise ValueError(f"Expected a column for the training label {absent[0]!r} (NaN where not observed); got none")
    places = {name: j for j, name in enumerate(names)}
    stack: Any = scipy.sparse.hstack if is_sparse(encoded.labels) else np.hstack
    extended = stack((encoded.labels, np.zeros((encoded.labels.shape[0], 1), np.float32)))
    extended = extended.tocsr() if is_sparse(extended) else extended
    return extended[:, [places.get(name, len(names)) for name in wanted]]


def read_trusted(trusted: Any, targets: Targets) -> Trusted | None:
    """Return numbers and true labels of the trusted rows, or None if no label has been verified.

    ``trusted`` is either (rows, Y_true), or an array (n, q) with NaN where a label has not been verified.
    """
    rows, Y_true = check_trusted_rows(trusted, targets.labels.shape[0])
    if not rows.size:
        return None
    labels = encode_like(Y_true, targets)
    if labels.shape[0] != len(rows):
        raise ValueError(f"Expected labels for the {len(rows)} rows of trusted; got {labels.shape[0]} rows")
    return rows.astype(np.int64), labels
