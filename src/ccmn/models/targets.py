"""What users call Y, as one matrix of labels: indicator matrices, label sets, two classes, many classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from ccmn._containers import is_dataframe, is_sparse, label_names_of, to_dense_array
from ccmn._validation import check_label_values
from ccmn.noise import NoiseModel
from ccmn.training import SparseLabels

Kind = Literal["multilabel", "binary", "multiclass"]
Trusted = tuple[NDArray[np.int64], Any]
"""Numbers of rows whose true labels are known, and those labels, dense or CSR."""

FEWEST_SPARSE = 1 << 24
"""Sparse labels and label sets of fewer entries, zeros counted, are made dense, which is quicker; larger ones are CSR
throughout."""


@dataclass(frozen=True)
class Targets:
    """Labels (n, q) float32, NaN where not observed, and how to speak of them."""

    labels: Any
    """A dense array, or CSR where there are many labels."""
    kind: Kind
    classes: NDArray[Any]
    """multilabel: what the columns are (0..q-1, or the labels of the sets); else the class values."""
    label_names: tuple[str, ...] | None
    sparse: bool = False
    """Were the labels given as a sparse matrix (or as very many sets)? Then predictions are one, too."""

    @property
    def n(self) -> int:
        return int(self.labels.shape[0])

    @property
    def q(self) -> int:
        return int(self.labels.shape[1])


def encode_targets(Y: Any) -> Targets:
    """Read Y. Label sets are a list of lists, tuples or sets; everything else is an array of some kind."""
    if _is_label_sets(Y):
        return _from_label_sets(Y)
    if is_sparse(Y):
        return _from_sparse(Y)
    names = label_names_of(Y) if is_dataframe(Y) else None
    array = to_dense_array(Y) if is_dataframe(Y) or hasattr(Y, "detach") else np.asarray(Y)
    if array.ndim == 1:
        return _from_classes(array)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"y must be a label matrix of shape (n, q) or one class per row; got shape {array.shape}")
    if array.shape[1] == 1 and not _is_zero_one(array):
        return _from_classes(array[:, 0])  # one column of classes, as scikit-learn passes it
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("y must be a matrix of 0 and 1 (NaN: not observed); some entries are no numbers") from None
    if not _is_zero_one(array):
        check_classification_targets(array)
    check_label_values(array, "y")
    return Targets(array.astype(np.float32), "multilabel", np.arange(array.shape[1]), names)


def _from_sparse(Y: Any) -> Targets:
    if Y.ndim != 2 or Y.shape[1] == 0:
        raise ValueError(f"y must be a label matrix of shape (n, q); got a sparse one of shape {Y.shape}")
    matrix = Y.tocsr().astype(np.float32)
    if not matrix.has_canonical_format:
        matrix.sum_duplicates()
    check_label_values(matrix.data, "y")
    return Targets(_dense_unless_large(matrix), "multilabel", np.arange(matrix.shape[1]), None, sparse=True)


def _dense_unless_large(matrix: Any) -> Any:
    return matrix if _is_large(matrix) else np.asarray(matrix.toarray())


def _is_large(matrix: Any) -> bool:
    return bool(matrix.shape[0] * matrix.shape[1] > FEWEST_SPARSE)


def debiased(targets: Targets, noise: NoiseModel, trusted: Trusted | None) -> NDArray[np.float32] | SparseLabels:
    """Debiased labels, true ones in trusted rows. Those of CSR are worked out when a batch of them is wanted."""
    if not is_sparse(targets.labels):
        return with_trusted(noise.debias(targets.labels), trusted)
    matrix, known = targets.labels, None
    if trusted is not None:
        if np.isnan(trusted[1].data if is_sparse(trusted[1]) else trusted[1]).any():
            raise ValueError(
                "trusted labels that are not known (NaN) need dense labels: give y.toarray(), or trust whole rows"
            )
        known = np.zeros(targets.n, dtype=bool)
        known[trusted[0]] = True
        place = np.arange(targets.n)
        place[trusted[0]] = targets.n + np.arange(len(trusted[0]))
        matrix = scipy.sparse.vstack((matrix, scipy.sparse.csr_array(trusted[1])), format="csr")[place]
    return SparseLabels(matrix, noise.debiasing(), known)


def with_trusted(p: NDArray[np.float32], trusted: Trusted | None) -> NDArray[np.float32]:
    """Dense p with the true labels where they are known (not NaN)."""
    if trusted is not None:
        rows, true = trusted[0], to_dense_array(trusted[1])
        p[rows] = np.where(np.isnan(true), p[rows], true)
    return p


def _is_label_sets(Y: Any) -> bool:
    if not isinstance(Y, (list, tuple)) or not len(Y):
        return False
    if any(isinstance(row, (set, frozenset)) for row in Y):
        return True
    rows = [row for row in Y if isinstance(row, (list, tuple))]
    if len(rows) < len(Y):
        return False
    # Nested lists of equal length that hold only 0, 1 (or NaN) are a matrix; anything else is sets of labels.
    return len({len(row) for row in rows}) > 1 or any(isinstance(entry, str) for row in rows for entry in row)


def _from_label_sets(Y: Sequence[Any]) -> Targets:
    labels = sorted({label for row in Y for label in row}, key=lambda label: (str(type(label)), label))
    if not labels:
        raise ValueError("no row of y has any label")
    column = {label: j for j, label in enumerate(labels)}
    columns = [np.array([column[label] for label in set(row)], dtype=np.int64) for row in Y]
    ends = np.cumsum([0, *map(len, columns)])
    ones = np.ones(ends[-1], dtype=np.float32)
    matrix = scipy.sparse.csr_matrix((ones, np.concatenate(columns), ends), shape=(len(Y), len(labels)))
    matrix.sort_indices()
    names = tuple(str(label) for label in labels)
    return Targets(_dense_unless_large(matrix), "multilabel", np.array(labels), names, sparse=_is_large(matrix))


def _from_classes(y: NDArray[Any]) -> Targets:
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    names = tuple(str(c) for c in classes)
    if len(classes) <= 2:
        positive = codes if len(classes) == 2 else np.zeros(len(y))
        return Targets(positive.astype(np.float32)[:, None], "binary", classes, names[-1:])
    return Targets(np.eye(len(classes), dtype=np.float32)[codes], "multiclass", classes, names)


def _is_zero_one(array: NDArray[Any]) -> bool:
    if array.dtype == bool:
        return True
    if not np.issubdtype(array.dtype, np.number):
        return False
    return bool(((array == 0) | (array == 1) | (array != array)).all())


def read_trusted(trusted: tuple[Any, Any] | None, targets: Targets) -> Trusted | None:
    """Row numbers and true labels of trusted rows, checked."""
    if trusted is None:
        return None
    rows = np.asarray(trusted[0])
    n = targets.n
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer) or ((rows < 0) | (rows >= n)).any():
        raise ValueError(f"trusted must be (rows, Y_true) with row numbers between 0 and {n - 1}")
    labels = encode_like(trusted[1], targets)
    if labels.shape[0] != len(rows):
        raise ValueError(f"trusted gives {len(rows)} rows but labels for {labels.shape[0]}")
    return rows.astype(np.int64), labels


def encode_like(Y: Any, targets: Targets) -> Any:
    """Labels of other rows in the columns of the training labels, dense or CSR as they come."""
    if targets.kind == "multilabel":
        other = encode_targets(Y)
        if other.label_names and targets.label_names and other.label_names != targets.label_names:
            return _realigned(other, targets.label_names, sets=not is_dataframe(Y))
        if other.q != targets.q:
            raise ValueError(f"these labels have {other.q} columns, the training labels have {targets.q}")
        return other.labels
    y = np.asarray(Y).ravel()
    unknown = set(y.tolist()) - set(targets.classes.tolist())
    if unknown:
        raise ValueError(f"class {next(iter(unknown))!r} is not among the training classes")
    if targets.kind == "binary":
        positive = (y == targets.classes[-1]) & (len(targets.classes) == 2)
        return np.asarray(positive[:, None], dtype=np.float32)
    return np.asarray(y[:, None] == targets.classes[None, :], dtype=np.float32)


def _realigned(other: Targets, wanted: tuple[str, ...], sets: bool) -> Any:
    """Columns in the order of the training labels. A label that is in none of the sets is a column of 0."""
    names = other.label_names or ()
    strange, absent = sorted(set(names) - set(wanted)), sorted(set(wanted) - set(names))
    if strange:
        raise ValueError(f"label {strange[0]!r} is not among the training labels")
    if absent and not sets:
        raise ValueError(f"there is no column for the training label {absent[0]!r}: give one, NaN where it is unknown")
    places = {name: j for j, name in enumerate(wanted)}
    columns = np.array([places[name] for name in names])
    if is_sparse(other.labels):
        coo = other.labels.tocoo()
        at = coo.row, columns[coo.col]
        return scipy.sparse.csr_matrix((coo.data, at), shape=(other.n, len(wanted)))
    matrix = np.zeros((other.n, len(wanted)), dtype=np.float32)
    matrix[:, columns] = other.labels
    return matrix
