"""Training data of a fit: features, encoded labels, trusted rows, resolved noise model and validation split."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse
import scipy.special
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _num_samples, validate_data

from ccmn import _files
from ccmn._containers import (
    is_dataframe,
    is_other_table,
    is_sparse,
    label_names_of,
    to_dense_array,
    to_plain_container,
)
from ccmn._validation import check_label_values, check_trusted_rows
from ccmn.estimation import NoiseRates, cross_fit_proba
from ccmn.estimation.noise_rates import MIN_SIGNAL
from ccmn.losses import LOSSES
from ccmn.noise import ClassConditionalNoise, GroupedNoise, NoiseModel
from ccmn.noise.class_conditional import debias_labels, limit_rate_sums
from ccmn.training import SparseLabels
from ccmn.training.batches import DatasetRows
from ccmn.vote_table import VoteTable
from ccmn.votes import InferredLabels, infer_labels

MAX_SAMPLE_WEIGHT = 1e100
"""Larger sample weights are rejected: products of two of them overflow."""
MIN_SAMPLES_TO_SPLIT = 50
"""Smaller training sets are not split: the training rows are used for validation as well."""
POSTERIOR_TRAINING = {"lr": 2e-3, "patience": 4}
"""Parameters of cross-fitting for posterior probabilities, selected on 12,000 digit scenes with one draw of noise."""
MAX_ROWS_IN_SMALL_BATCHES = 5000
"""Up to this number of rows, batches of cross-fitting have 32 rows; larger ones would give too few steps."""
MIN_SAMPLES_FOR_ESTIMATION = 100
"""Noise rates are not estimated below this number of samples: their intervals would span most of [0, 1]."""
MAX_ESTIMATION_ENTRIES = 1 << 27
"""Noise rates are not estimated from larger label matrices, because this needs several dense copies."""
MIN_SPARSE_ENTRIES = 1 << 24
"""Sparse labels and label sets with at most this number of entries, zeros included, are made dense, which is faster."""

Kind = Literal["multilabel", "binary", "multiclass"]
Labels = NDArray[np.float32] | SparseLabels
"""Labels (n, q), NaN where not observed: debiased labels, or noisy labels for a loss that models the noise."""
Trusted = tuple[NDArray[np.int64], Any]
"""Numbers of the trusted rows and their true labels, dense or CSR."""
Noise = str | NoiseModel | NoiseRates | GroupedNoise | None
"""Value of the parameter ``noise``: a noise type, a noise model, estimated rates, or None."""


# -- Features


def read_features(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return features (n, d) as a float array or CSR matrix, validated by scikit-learn.

    With ``reset``, the attributes ``n_features_in_`` and ``feature_names_in_`` of the estimator are set; otherwise X is
    compared with them. Inputs of a custom network with more dimensions become rows (n, d); see :func:`_flat_rows`.
    """
    X = _flat_rows(estimator, X, reset=reset)
    if isinstance(X, DatasetRows):
        if reset:
            estimator.n_features_in_ = X.shape[1]
            estimator.__dict__.pop("feature_names_in_", None)
        return X
    X = to_plain_container(X)
    if is_dataframe(X):
        wrong = [str(c) for c, dtype in X.dtypes.items() if dtype.kind not in "biuf"]
        if wrong:
            raise ValueError(
                f"Expected numeric columns in X; got non-numeric columns {', '.join(wrong[:5])}. Convert categories, "
                "dates, texts and gaps first: make_pipeline(ccmn.data.TablePreprocessor(text=[...]), CCMNClassifier())."
            )
    return validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=(np.float64, np.float32))


def _flat_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return inputs (n, ...) with more than two dimensions as rows (n, d), if the model is a custom network.

    With ``reset``, the shape of an input becomes the attribute ``input_shape_``; otherwise it is compared with it. The
    items of a ``Dataset`` are read when they are needed, or now for other models than custom networks.
    """
    if reset:
        estimator.__dict__.pop("input_shape_", None)
    is_custom = callable(getattr(estimator, "model", None))
    if isinstance(X, torch.utils.data.Dataset):
        X = DatasetRows(X)
        shape = X.input_shape
        X = X if is_custom and len(shape) > 1 else X.read().reshape(len(X), *shape)
    shape = X.input_shape if isinstance(X, DatasetRows) else tuple(getattr(X, "shape", ()))[1:]
    if len(shape) < 2 or not is_custom:
        return X
    if reset:
        estimator.input_shape_ = shape
    elif shape != getattr(estimator, "input_shape_", None):
        expected = getattr(estimator, "input_shape_", (estimator.n_features_in_,))
        raise ValueError(f"Expected inputs of shape {expected}, as in fit; got {shape}")
    return X if isinstance(X, DatasetRows) else X.reshape(len(X), -1)


@dataclass(frozen=True)
class Scaling:
    """Scaling of features: dense ones are standardized, sparse ones are not centered.

    Rows have a mean squared norm of about 1 afterwards. The weights of a fitted model are converted back to the
    original features, so that the scaling itself is not stored.
    """

    mean: NDArray[np.float64] | None
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, X: Any, weights: NDArray[np.float64] | None = None) -> Scaling:
        """Measure the scale of dense or CSR features (n, d) on at most ``MAX_ROWS_FOR_SCALE`` rows."""
        step = -(-X.shape[0] // MAX_ROWS_FOR_SCALE)
        rows, share = X[::step], np.ones(X.shape[0]) if weights is None else weights
        share = share[::step] / max(share[::step].sum(), np.finfo(np.float64).tiny)
        if is_sparse(X):
            return cls(None, _sparse_scale(rows, share))
        rows = np.asarray(rows, dtype=np.float64)[share > 0]
        share = share[share > 0]
        largest = np.abs(rows).max(0, initial=0.0)
        unit = np.where(largest > 0, largest, 1.0)  # squares of large values would overflow
        rows = rows / unit
        mean = share @ rows
        std = _weighted_std(np.clip(rows, *_tails(rows, share)), share)
        std = np.where(std > MIN_RELATIVE_STD, std, _weighted_std(rows, share))  # a column that is mostly constant
        constant = std <= MIN_RELATIVE_STD
        total = np.sqrt(max(1, int((~constant).sum())))
        return cls(mean * unit, np.where(constant, 1.0, std) * unit * total)

    def transform(self, X: Any) -> Any:
        """Return scaled features in the type of X; CSR features stay sparse."""
        if self.mean is None or is_sparse(X):
            return (X @ scipy.sparse.diags_array((1 / self.scale).astype(X.dtype))).tocsr()
        scaled = X / self.scale.astype(X.dtype)
        scaled -= (self.mean / self.scale).astype(X.dtype)
        return scaled

    def restore(self, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a network with the weights and biases of its first layer for the original features."""
        weight = arrays["weight"] / self.scale[:, None]
        if self.mean is None:
            return {**arrays, "weight": weight.astype(arrays["weight"].dtype)}
        # In float32, features with a large mean and a small standard deviation would lose digits.
        return {**arrays, "weight": weight, "bias": arrays["bias"] - self.mean @ weight}


MAX_ROWS_FOR_SCALE = 10_000
"""The scale is measured on at most this many rows, evenly spread."""
TAIL_QUANTILES = (0.005, 0.995)
"""The standard deviation of a column is computed without its tails: few extreme values would hide all others."""
MIN_RELATIVE_STD = 1e-9
"""A column is constant if its standard deviation is a smaller share of its largest value."""
MAX_SPARSE_RATIO = 10.0
"""Sparse columns whose values are larger than the median column by more than this factor are scaled down."""


def _tails(rows: NDArray[np.float64], share: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two weighted quantiles of every column."""
    order = rows.argsort(0)
    below = share[order].cumsum(0)
    low, high = (np.minimum((below < level).sum(0), len(rows) - 1) for level in TAIL_QUANTILES)
    columns = np.arange(rows.shape[1])
    return rows[order[low, columns], columns], rows[order[high, columns], columns]


def _weighted_std(rows: NDArray[np.float64], share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation of every column."""
    return np.asarray(np.sqrt(share @ np.square(rows - share @ rows)))


def _sparse_scale(rows: Any, share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scale of CSR columns: the mean norm of a row for all columns, more for columns of large values.

    Columns of similar size keep their relation: the weight of a rare word is part of TF-IDF features.
    """
    d = rows.shape[1]
    values, weights = np.abs(rows.data.astype(np.float64)), np.repeat(share, np.diff(rows.indptr))
    unit = values.max() if values.size and values.max() > 0 else 1.0
    counts = np.bincount(rows.indices, weights=weights, minlength=d)
    squares = np.bincount(rows.indices, weights=weights * (values / unit) ** 2, minlength=d)
    size = np.sqrt(squares / np.maximum(counts, np.finfo(np.float64).tiny))
    median = np.median(size[size > 0]) if (size > 0).any() else 1.0
    factor = np.maximum(size / (MAX_SPARSE_RATIO * median), 1.0)
    norm = np.sqrt((squares / factor**2).sum())
    return np.asarray(factor * unit * (norm if norm > 0 else 1.0))


# -- Labels


@dataclass(frozen=True)
class Targets:
    """Labels in the form that all later steps use."""

    labels: Any
    """Label matrix (n, q), float32, NaN where not observed: a dense array, or CSR for many labels."""
    kind: Kind
    classes: NDArray[Any]
    """Multi-label: the columns (0..q-1, or the labels of the sets). Otherwise the class values."""
    label_names: tuple[str, ...] | None
    sparse: bool = False
    """Whether predictions are sparse: the labels were given as a sparse matrix, or as very many label sets."""
    sets: bool = False
    """Whether the labels were given as label sets."""
    inferred: InferredLabels | None = None
    """Inferred labels if y are votes; ``labels`` are then the probabilities of the true labels."""


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
    names = label_names_of(Y) if is_dataframe(Y) or is_other_table(Y) else None
    if names is not None and "" in names:
        raise ValueError("y has a column with an empty name, which rows without labels can cause; drop it")
    array = to_dense_array(Y)
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
    if targets.kind == "binary":
        positive = (y == targets.classes[-1]) & (len(targets.classes) == 2)
        return np.asarray(positive[:, None], dtype=np.float32)
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
    if not len(Y):
        return False
    if any(isinstance(row, (set, frozenset)) for row in Y):
        return True
    rows = [row for row in Y if isinstance(row, (list, tuple))]
    if len(rows) < len(Y):
        return False
    # Nested lists of equal length that hold only numbers are a matrix.
    return len({len(row) for row in rows}) > 1 or any(isinstance(entry, str) for row in rows for entry in row)


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
    columns = [np.array([column[label] for label in set(row)], dtype=np.int64) for row in Y]
    ends = np.cumsum([0, *map(len, columns)])
    ones = np.ones(ends[-1], dtype=np.float32)
    matrix = scipy.sparse.csr_matrix((ones, np.concatenate(columns), ends), shape=(len(Y), len(labels)))
    matrix.sort_indices()
    large = _is_large(matrix)
    names = tuple(str(label) for label in labels)
    encoded = matrix if large else np.asarray(matrix.toarray())
    return Targets(encoded, "multilabel", np.array(labels), names, sparse=large, sets=True)


def _check_joined_tags(y: NDArray[Any]) -> None:
    """Reject texts that list several tags, such as "a;b", as classes."""
    for separator in (";", "|"):
        joined = next((entry for entry in y.tolist() if isinstance(entry, str) and separator in entry), None)
        if joined is not None:
            raise ValueError(
                f"y contains texts that list several labels, such as {joined[:40]!r}. Use one column per label: "
                f'y.str.get_dummies("{separator}") of a Series.'
            )


def _encode_classes(y: NDArray[Any]) -> Targets:
    """Return one class per row as one label (two classes) or one label per class."""
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    names = tuple(str(c) for c in classes)
    if len(classes) <= 2:
        positive = codes if len(classes) == 2 else np.zeros(len(y))
        return Targets(positive.astype(np.float32)[:, None], "binary", classes, names[-1:])
    return Targets(np.eye(len(classes), dtype=np.float32)[codes], "multiclass", classes, names)


def _is_large(matrix: Any) -> bool:
    """Return whether a sparse label matrix stays sparse."""
    return bool(matrix.shape[0] * matrix.shape[1] > MIN_SPARSE_ENTRIES)


def _is_zero_one(array: NDArray[Any]) -> bool:
    """Return whether all entries are 0, 1 or NaN."""
    if array.dtype == bool:
        return True
    if not np.issubdtype(array.dtype, np.number):
        return False
    return bool(((array == 0) | (array == 1) | (array != array)).all())


def _realign(encoded: Targets, wanted: tuple[str, ...], sets: bool) -> Any:
    """Return labels with their columns in the order of the training labels; a label in none of the sets is 0."""
    names = encoded.label_names or ()
    unknown, absent = sorted(set(names) - set(wanted)), sorted(set(wanted) - set(names))
    if unknown:
        raise ValueError(f"label {unknown[0]!r} is not among the training labels")
    if absent and not sets:
        raise ValueError(f"Expected a column for the training label {absent[0]!r} (NaN where not observed); got none")
    places = {name: j for j, name in enumerate(wanted)}
    columns = np.array([places[name] for name in names])
    n = encoded.labels.shape[0]
    if is_sparse(encoded.labels):
        coo = encoded.labels.tocoo()
        return scipy.sparse.csr_matrix((coo.data, (coo.row, columns[coo.col])), shape=(n, len(wanted)))
    matrix = np.zeros((n, len(wanted)), dtype=np.float32)
    matrix[:, columns] = encoded.labels
    return matrix


# -- Preparation


@dataclass(frozen=True)
class TrainingData:
    """Validated arguments of ``fit``."""

    X: Any
    targets: Targets
    trusted: Trusted | None = None
    groups: Sequence[Any] | None = None
    weights: NDArray[np.float64] | None = None


def prepare(
    X: Any, y: Any, *, sample_weight: Any = None, trusted: Any = None, groups: Sequence[Any] | None = None
) -> TrainingData:
    """Return the training data of ``fit`` with encoded labels; X has been validated by :func:`read_features`."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    targets = encode_targets(y)
    n = _num_samples(X)
    if targets.labels.shape[0] != n:
        raise ValueError(f"Expected as many rows in y as in X, {n}; got {targets.labels.shape[0]}")
    weights = None
    if sample_weight is not None:
        given = to_dense_array(sample_weight) if isinstance(sample_weight, torch.Tensor) else sample_weight
        weights = np.asarray(_check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True))
        if weights.max() > MAX_SAMPLE_WEIGHT:
            raise ValueError(f"sample_weight must be at most {MAX_SAMPLE_WEIGHT:g}; got {weights.max():g}. Rescale it.")
    verified = None if trusted is None else read_trusted(trusted, targets)
    if verified is None and not is_sparse(targets.labels) and np.isnan(targets.labels).all():
        raise ValueError("y must contain observed labels; got only NaN")
    return TrainingData(X, targets, verified, groups, weights)


def require_label_matrix(data: TrainingData, name: str) -> TrainingData:
    """Return training data with dense labels; raise an error if y has one class per row or is too large."""
    targets = data.targets
    n, q = targets.labels.shape
    if targets.kind != "multilabel":
        raise ValueError(
            f"{name} requires a label matrix y of shape (n, q), one column of 0 and 1 per label (Only binary "
            "classification is supported, of one label or several); got one class per row. A single label is "
            "y.reshape(-1, 1). For one class per row use CCMNClassifier(TransitionNoise(T))."
        )
    if not is_sparse(targets.labels):
        return data
    if n * q > MAX_ESTIMATION_ENTRIES:
        raise ValueError(f"{name} requires dense labels; got {n} x {q}. Use CCMNClassifier with known rates.")
    return replace(data, targets=replace(targets, labels=to_dense_array(targets.labels)))


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


# -- Noise


@dataclass(frozen=True)
class ResolvedNoise:
    """Noise model that the labels are corrected for."""

    model: NoiseModel
    """Noise model of all rows; with groups, the mean rates of the rows."""
    rates: Any = None
    """The estimate (NoiseRates or GroupRates) if rates were estimated."""
    groups: GroupedNoise | None = None
    """Noise model of every group if rows belong to groups."""


def resolve_noise(
    noise: Noise,
    data: TrainingData,
    seed: int,
    on_progress: Callable[[int, int], None] | None = None,
    pred_proba: Any = None,
) -> ResolvedNoise:
    """Return the given noise model, or the one estimated from the training data.

    ``on_progress`` is called during an estimation with the number of finished steps and of all steps. With
    ``pred_proba``, rates are estimated from these out-of-fold probabilities instead of the features.
    """
    targets = data.targets
    if targets.inferred is not None:
        if data.groups is not None or not (noise is None or noise == "both"):
            raise ValueError("votes require noise='both' and no groups: the rates of annotators are estimated")
        return ResolvedNoise(_noise_of_probabilities(targets, zero=noise is None))
    if isinstance(noise, NoiseRates):
        return replace(resolve_noise(noise.shrunk_noise, data, seed), rates=noise)
    if isinstance(noise, GroupedNoise) and data.groups is None:
        raise ValueError("noise is a GroupedNoise, which requires the group of every row: fit(X, y, groups=...)")
    declared = noise.mean(data.groups) if isinstance(noise, GroupedNoise) else noise  # type: ignore[arg-type]
    check_zeros_for(declared, targets.labels, targets.label_names, data.trusted)
    if data.groups is not None:
        rates = None
        if isinstance(noise, str):
            rates = _estimate(noise, data, seed, on_progress)
            noise = rates.shrunk_noise
        if not isinstance(noise, GroupedNoise):
            given = "None" if noise is None else type(noise).__name__
            raise TypeError(f"groups require noise='both' or a GroupedNoise; got {given}")
        return ResolvedNoise(noise.mean(data.groups), rates, noise)
    if isinstance(noise, NoiseModel):
        _check_labels_of_noise(noise, targets)
        return ResolvedNoise(noise)
    if isinstance(noise, str) and _can_estimate(noise, data):
        rates = _estimate(noise, data, seed, on_progress, pred_proba)
        return ResolvedNoise(rates.shrunk_noise, rates)
    q = targets.labels.shape[1]
    return ResolvedNoise(ClassConditionalNoise(0.0, 0.0, n_labels=q, label_names=targets.label_names))


def _check_labels_of_noise(noise: NoiseModel, targets: Targets) -> None:
    """Raise an error unless the noise model has the labels of y."""
    q, names = targets.labels.shape[1], targets.label_names
    if noise.n_labels != q:
        raise ValueError(f"Expected a noise model with {q} labels, as y; got {noise.n_labels}")
    if names and noise.label_names and names != noise.label_names:
        raise ValueError(
            f"The label names of the noise model, {', '.join(noise.label_names[:4])} ..., differ from the names in "
            f"y, {', '.join(names[:4])} ...; use the same order, or omit the names"
        )


def _can_estimate(noise: str, data: TrainingData) -> bool:
    """Return whether there are enough rows to estimate rates; raise an error if there are too many labels and rows."""
    n, q = data.targets.labels.shape
    if n * q > MAX_ESTIMATION_ENTRIES:
        raise ValueError(
            f"noise={noise!r} would estimate the rates of {q} labels from {n} rows, which needs too much memory; pass "
            "noise=ClassConditionalNoise(rho_pos, rho_neg) with rates estimated by estimate_noise on fewer rows or on "
            "groups of labels"
        )
    if n < MIN_SAMPLES_FOR_ESTIMATION and data.trusted is None:
        warnings.warn(
            f"n_samples={n} is below the minimum of {MIN_SAMPLES_FOR_ESTIMATION}: noise rates are not estimated "
            "and labels are used without noise correction. Pass a noise model to correct them.",
            stacklevel=4,
        )
    return bool(n >= MIN_SAMPLES_FOR_ESTIMATION)


def _noise_of_probabilities(targets: Targets, *, zero: bool) -> ClassConditionalNoise:
    r"""Return the noise of the probabilities :math:`\mu` of true labels given votes, as soft labels.

    A probability that was computed without features is nearer to the prevalence than the true label:

    .. math:: E[1 - \mu \mid y = 1] = \frac{\sum_i \mu_i (1 - \mu_i)}{\sum_i \mu_i}, \qquad
              E[\mu \mid y = 0] = \frac{\sum_i \mu_i (1 - \mu_i)}{\sum_i (1 - \mu_i)}

    These are the rates with which the loss is unbiased. They sum to at most 0.9; with ``zero``, they are 0.
    """
    mu = targets.labels.astype(np.float64)
    spread = 0.0 if zero else np.nansum(mu * (1 - mu), 0)
    tiny = np.finfo(np.float64).tiny
    rho_pos, rho_neg = (spread / np.maximum(np.nansum(part, 0), tiny) for part in (mu, 1 - mu))
    rates = limit_rate_sums(rho_pos, rho_neg, 1 - MIN_SIGNAL)
    return ClassConditionalNoise(*rates, label_names=targets.label_names)


def _estimate(
    noise: str,
    data: TrainingData,
    seed: int,
    on_progress: Callable[[int, int], None] | None = None,
    pred_proba: Any = None,
) -> Any:
    """Return estimated rates, which carry the names of the labels."""
    from ccmn.estimation import estimate_noise

    labels = data.targets.labels
    if data.targets.label_names is not None:
        from pandas import DataFrame

        labels = DataFrame(to_dense_array(labels), columns=list(data.targets.label_names))
    X = data.X if pred_proba is None else None
    settings: dict[str, Any] = {"pred_proba": pred_proba, "groups": data.groups, "on_progress": on_progress}
    return estimate_noise(X, labels, noise_type=noise, trusted=data.trusted, random_state=seed, **settings)


def with_out_of_fold_features(
    data: TrainingData, make_model: Callable[[], torch.nn.Module], **settings: Any
) -> TrainingData:
    """Return the data with out-of-fold embeddings of a network as features, from which rates are estimated.

    Without a last linear layer, the log-odds of out-of-fold probabilities are the features.
    """
    if data.targets.inferred is not None or data.X.shape[0] < MIN_SAMPLES_FOR_ESTIMATION:
        return data
    fitted = cross_fit_proba(make_model, data.X, to_dense_array(data.targets.labels), **settings)
    features = fitted.embeddings
    return replace(data, X=scipy.special.logit(fitted.pred_proba) if features is None else features)


def check_zeros_for(
    noise: Noise, Y: Any, label_names: Sequence[str] | None, trusted: tuple[Any, Any] | None = None
) -> None:
    """Raise an error if labels are 1 or NaN and never 0, without noise or under noise that removes true labels."""
    if isinstance(noise, ClassConditionalNoise):
        only_removed = np.asarray((noise.rho_neg == 0) & (noise.rho_pos > 0))
        if only_removed.size != Y.shape[1] or not only_removed.any():
            return
    elif noise is None or (isinstance(noise, str) and noise in ("missing", "both")):
        only_removed = np.full(Y.shape[1], noise == "missing")
    else:
        return
    from ccmn.estimation.evidence import check_zeros_observed

    check_zeros_observed(Y, only_removed, label_names, None if trusted is None else trusted[1])


def check_groups_possible(loss: str, targets: Targets, noisy_validation: bool) -> None:
    """Raise an error for arguments that cannot be combined with groups."""
    if loss not in ("auto", *LOSSES):
        raise ValueError(f"groups require a loss on debiased labels, 'hamming' or 'ranking'; got {loss!r}")
    if is_sparse(targets.labels):
        n, q = targets.labels.shape
        raise ValueError(f"groups require dense labels; got {n} x {q} sparse labels. Pass y.toarray().")
    if noisy_validation:
        raise ValueError("groups require clean validation rows (validation_is_clean=True), or none")


# -- Samples


@dataclass
class Sample:
    """Rows with their debiased labels."""

    X: Any
    p: Labels
    """Debiased labels (n, q), true labels in trusted rows; NaN where not observed."""
    weights: NDArray[np.float64] | None = None
    noisy: Labels | None = None
    """Labels that the loss takes instead of ``p``. If the loss itself models the noise, these are the noisy labels, and
    a verified label is replaced by the mean of the noisy label given the true one. Custom networks can be trained on
    posterior probabilities instead; verified labels are then the true ones."""
    information: NDArray[np.float32] | None = None
    """Information (n, q) of a label relative to a noisy one: 1 for noisy labels, more for verified ones. For sparse
    labels, the geometric mean (n, 1) of the information of a row."""

    def columns(self, labels: slice) -> NDArray[np.float32]:
        """Return the debiased labels of some columns."""
        return self.p.columns(labels) if isinstance(self.p, SparseLabels) else self.p[:, labels]

    def dense_labels(self) -> NDArray[np.float32]:
        """Return all debiased labels as a dense array."""
        if not isinstance(self.p, SparseLabels):
            return self.p
        return self.p.targets(torch.arange(self.p.shape[0]).unsqueeze(0))[0, 0].numpy()

    def fitted_labels(self) -> NDArray[np.float64]:
        """Return the dense labels that the loss takes."""
        labels = self.p if self.noisy is None else self.noisy
        assert isinstance(labels, np.ndarray)
        return labels.astype(np.float64)

    def row_weights(self) -> NDArray[np.float64] | None:
        """Return the weight of every row: the sample weight times the geometric mean of its information."""
        if self.information is None:
            return self.weights
        mean = np.exp(np.log(self.information.astype(np.float64)).mean(1))
        return np.asarray(mean if self.weights is None else mean * self.weights)

    def label_weights(self) -> NDArray[np.float64] | None:
        """Return the weights of rows (n, 1), or of every label of every row (n, q)."""
        if self.information is None:
            return None if self.weights is None else self.weights[:, None]
        return self.information.astype(np.float64) * (1.0 if self.weights is None else self.weights[:, None])

    def take(self, rows: NDArray[Any]) -> Sample:
        """Return some of the rows."""
        return Sample(
            self.X[rows],
            self.p[rows],
            None if self.weights is None else self.weights[rows],
            None if self.noisy is None else self.noisy[rows],
            None if self.information is None else self.information[rows],
        )

    def at_most(self, count: int) -> Sample:
        """Return the sample itself, or this number of its rows, evenly spread."""
        n = self.X.shape[0]
        return self if n <= count else self.take(np.linspace(0, n - 1, count).astype(np.int64))


Fold = tuple[Sample, NDArray[np.int64]]
"""Training rows, and the numbers of the rows that are predicted from them."""


@dataclass(frozen=True)
class Split:
    """Training and validation rows."""

    train: Sample
    valid: Sample
    whole: Sample | None = None
    """All rows, to which a model with selected hyperparameters is fitted; None if validation rows were passed."""
    valid_rows: NDArray[np.int64] | None = None
    """Numbers of the validation rows among all rows."""

    def folds(self, max_rows: int) -> list[Fold] | None:
        """Return the folds of a cross-validation of all rows, the first of which has the validation rows.

        None if the validation rows were passed, if they are the training rows, or if there are more than ``max_rows``.
        """
        if self.whole is None or self.valid_rows is None or self.whole is self.train:
            return None
        n, size = self.whole.X.shape[0], len(self.valid_rows)
        if n > max_rows or 2 * size > n:
            return None
        rest = np.setdiff1d(np.arange(n), self.valid_rows)
        parts = np.array_split(np.random.default_rng(size).permutation(rest), round(n / size) - 1)
        folds: list[Fold] = [(self.train, self.valid_rows)]
        for part in parts:
            kept = np.ones(n, dtype=bool)
            kept[part] = False
            folds.append((self.whole.take(np.flatnonzero(kept)), np.sort(part)))
        return folds

    def scaled(self, scaling: Scaling | None) -> Split:
        """Return the rows with scaled features."""
        if scaling is None:
            return self
        train = replace(self.train, X=scaling.transform(self.train.X))
        valid = train if self.valid is self.train else replace(self.valid, X=scaling.transform(self.valid.X))
        if self.whole is None or self.whole is self.train:
            return Split(train, valid, None if self.whole is None else train, self.valid_rows)
        return Split(train, valid, replace(self.whole, X=scaling.transform(self.whole.X)), self.valid_rows)


MAX_INFORMATION = 100.0
"""Largest information of a verified label, relative to a noisy one."""


def relative_information(noise: NoiseModel, labels: Any) -> NDArray[np.float64]:
    r"""Return the variance of a debiased noisy label divided by that of a true one, for every label.

    With :math:`c = 1 - \rho_{pos} - \rho_{neg}` and the share m of noisy ones, the variances are
    :math:`m (1 - m) / c^2` and :math:`\pi (1 - \pi)` for :math:`\pi = (m - \rho_{neg}) / c`. A verified label has as
    much information as this number of noisy ones.
    """
    if not isinstance(noise, ClassConditionalNoise):
        return np.ones(labels.shape[1])
    values = labels.data if is_sparse(labels) else labels
    missing = np.isnan(values)
    ones, unobserved = np.where(missing, 0, values), missing.astype(np.float64)
    if is_sparse(labels):
        q = labels.shape[1]
        ones, unobserved = (np.bincount(labels.indices, part, minlength=q) for part in (ones, unobserved))
    else:
        ones, unobserved = ones.sum(0, dtype=np.float64), unobserved.sum(0)
    mean = (ones + 0.5) / (labels.shape[0] - unobserved + 1)
    prevalence = np.clip(debias_labels(mean, noise.rho_pos, noise.rho_neg), 0.01, 0.99)
    slope = 1 - noise.rho_pos - noise.rho_neg
    return np.asarray(np.clip(mean * (1 - mean) / (slope**2 * prevalence * (1 - prevalence)), 1, MAX_INFORMATION))


def debias(data: TrainingData, noise: ResolvedNoise, *, keep_noisy: bool) -> Sample:
    """Return the rows with debiased labels, and with the noisy ones if the loss itself models the noise."""
    labels, model = data.targets.labels, noise.model
    if is_sparse(labels):
        return _debias_sparse(data, noise, keep_noisy)
    if data.targets.inferred is not None:
        assert isinstance(model, ClassConditionalNoise)
        rates = model.rho_pos.astype(np.float32), model.rho_neg.astype(np.float32)
        p = debias_labels(labels, *rates)  # soft labels, which NoiseModel.debias rejects
    elif noise.groups is None:
        p = model.debias(labels)
    else:
        p = noise.groups.debias(labels, data.groups)  # type: ignore[arg-type]
    noisy, information = labels if keep_noisy else None, None
    if data.trusted is not None:
        rows, true = data.trusted[0], to_dense_array(data.trusted[1])
        verified = ~np.isnan(true)
        p[rows] = np.where(verified, true, p[rows])
        information = np.ones(labels.shape, dtype=np.float32)
        information[rows] = np.where(verified, relative_information(model, labels), 1)
        if noisy is not None and isinstance(model, ClassConditionalNoise):
            mean = model.rho_neg + (1 - model.rho_pos - model.rho_neg) * true
            noisy = noisy.copy()
            noisy[rows] = np.where(verified, mean, noisy[rows])
    return Sample(data.X, p, data.weights, noisy, information)


def with_posterior_labels(
    sample: Sample, data: TrainingData, noise: NoiseModel, make_model: Callable[[], torch.nn.Module], **settings: Any
) -> Sample:
    """Return the rows with posterior probabilities of the true labels, on which a network is trained.

    The probabilities of the true labels given the features are those of networks that were not trained on the row.
    """
    assert isinstance(noise, ClassConditionalNoise)
    labels = to_dense_array(data.targets.labels)
    batch_size = 32 if len(labels) <= MAX_ROWS_IN_SMALL_BATCHES else 128
    settings = {**POSTERIOR_TRAINING, "batch_size": batch_size, **settings}
    fitted = cross_fit_proba(make_model, data.X, labels, noise=noise, head=None, **settings)
    posterior = noise.posterior(labels, fitted.pred_proba).astype(np.float32)
    if data.trusted is not None:
        rows, true = data.trusted[0], to_dense_array(data.trusted[1])
        posterior[rows] = np.where(np.isnan(true), posterior[rows], true)
    return replace(sample, noisy=posterior)


def _debias_sparse(data: TrainingData, noise: ResolvedNoise, keep_noisy: bool) -> Sample:
    """Return the rows with labels that are debiased when a batch of them is gathered."""
    labels = matrix = data.targets.labels
    is_trusted, information = None, None
    if data.trusted is not None:
        rows, true = data.trusted
        if np.isnan(true.data if is_sparse(true) else true).any():
            raise ValueError(
                "trusted labels with NaN (not verified) require dense labels; pass y.toarray(), or verify whole rows"
            )
        n = labels.shape[0]
        is_trusted = np.zeros(n, dtype=bool)
        is_trusted[rows] = True
        information = np.ones((n, 1), dtype=np.float32)
        information[is_trusted] = np.exp(np.log(relative_information(noise.model, labels)).mean())
        # The true labels are appended as new rows, which then take the places of the trusted rows.
        place = np.arange(n)
        place[rows] = n + np.arange(len(rows))
        matrix = scipy.sparse.vstack((labels, scipy.sparse.csr_array(true)), format="csr")[place]
    p = SparseLabels(matrix, noise.model.debiasing(), is_trusted)
    return Sample(data.X, p, data.weights, SparseLabels(labels) if keep_noisy else None, information)


def is_small(n: int, weights: NDArray[np.float64] | None) -> bool:
    """Return whether rows are too few to be split; rows with a weight of 0 do not count."""
    return (n if weights is None else int(np.count_nonzero(weights))) < MIN_SAMPLES_TO_SPLIT


def split(sample: Sample, fraction: float, seed: int) -> Split:
    """Return training and validation rows: a random fraction of the rows, or all rows for both if there are few."""
    n = sample.X.shape[0]
    if is_small(n, sample.weights):
        return Split(sample, sample, sample, np.arange(n))
    order = np.random.default_rng(seed).permutation(n)
    n_validation = min(max(1, round(fraction * n)), n - 1)
    train_rows, valid_rows = np.sort(order[n_validation:]), np.sort(order[:n_validation])
    train, valid = sample.take(train_rows), sample.take(valid_rows)
    for part, rows in (("training", train), ("validation", valid)):
        if rows.weights is not None and not rows.weights.any():
            raise ValueError(f"Expected a positive sample_weight in a {part} row; got only 0. Pass validation=(X, y).")
    return Split(train, valid, sample, valid_rows)


def given_validation(X: Any, y: Any, targets: Targets, noise: NoiseModel | None) -> Sample:
    """Return validation rows of the user, whose labels are clean (``noise=None``) or noisy like the training labels."""
    Y = encode_like(y, targets)
    if Y.shape[0] != X.shape[0]:
        raise ValueError(f"Expected as many rows of y as of X in validation, {X.shape[0]}; got {Y.shape[0]}")
    if is_sparse(Y):
        return Sample(X, SparseLabels(Y, None if noise is None else noise.debiasing()))
    if np.isnan(Y).all():
        raise ValueError("y of validation must contain observed labels; got only NaN")
    if is_votes(y) and isinstance(noise, ClassConditionalNoise):
        return Sample(X, debias_labels(Y, noise.rho_pos, noise.rho_neg).astype(np.float32))
    return Sample(X, Y if noise is None else noise.debias(Y))


def fit_fingerprint(params: Mapping[str, Any], noise: NoiseModel, *values: Any) -> str:
    """Return a text that identifies a fit: its parameters, its noise rates and every value of its data.

    Parameters
    ----------
    params : mapping
        Parameters of the estimator. ``noise`` and ``verbose`` are ignored.
    noise : NoiseModel
        Resolved noise model, all digits of which count.
    *values : Sample, array, sparse matrix, bytes or other object
        Data of the fit. Objects other than arrays count by their ``repr``.
    """
    # The address of a function differs between processes.
    named = [
        (name, re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)))
        for name, value in sorted(params.items())
        if name not in ("noise", "verbose")
    ]
    parts: list[Any] = [named, json.dumps(noise.to_dict())]
    for value in values:
        if not isinstance(value, Sample):
            parts.append(value)
            continue
        parts.append(value.X)
        for labels in (value.p, value.noisy):
            if isinstance(labels, SparseLabels):
                parts += [labels.matrix, labels.trusted, labels.debias is None]
            else:
                parts.append(labels)
        parts.append(value.weights)
    return _files.fingerprint(*("none" if part is None else part for part in parts))
