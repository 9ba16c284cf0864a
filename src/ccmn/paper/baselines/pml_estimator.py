"""Shared parts of the partial multi-label methods: base classes, thresholds, linear systems, proximal operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import ParameterGrid
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import Self

from ccmn._containers import is_sparse, label_names_of, to_dense_array, to_dense_floats, to_plain_container
from ccmn._validation import FloatArray

MAX_FEATURE = 1e150
"""Largest absolute value of a feature: squares of larger values, and their sums, overflow."""


class PartialLabelClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of methods that learn from candidate label sets.

    A candidate set contains the true labels of a sample and possibly false ones. Subclasses implement ``_fit`` and
    ``_margins`` (score minus threshold). Features are used as given; scale them in a pipeline.

    Attributes
    ----------
    classes_ : ndarray of shape (q,)
        Names of the labels if they are known, else their numbers.
    label_names_ : tuple of str or None
        Column names of the candidate sets if ``fit`` received a DataFrame.
    n_features_in_ : int
        Number of features.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to candidate label sets.

        Parameters
        ----------
        X : array, DataFrame, tensor or CSR matrix of shape (n, d)
            Features.
        y : array, DataFrame, tensor or CSR matrix of shape (n, q)
            Candidate sets: 1 if the label is a candidate of the sample, otherwise 0.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        self._check_parameters()
        self._fit(*self._validate(X, y))
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Return scores minus thresholds.

        Parameters
        ----------
        X : array, DataFrame, tensor or CSR matrix of shape (n, d)
            Features.

        Returns
        -------
        margins : ndarray of shape (n, q)
            A label is predicted if its margin is at least 0.
        """
        check_is_fitted(self)
        X = validate_data(self, to_plain_container(X), reset=False, accept_sparse="csr", dtype=np.float64)
        return self._margins(_finish_features(X))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Predict label sets.

        Parameters
        ----------
        X : array, DataFrame, tensor or CSR matrix of shape (n, d)
            Features.

        Returns
        -------
        labels : ndarray of shape (n, q)
            1 if ``decision_function`` is at least 0, otherwise 0.
        """
        return (self.decision_function(X) >= 0).astype(np.int64)

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise ValueError for invalid constructor parameters."""

    @abstractmethod
    def _fit(self, X: Any, Y: FloatArray) -> None:
        """Set the fitted attributes from validated features (dense or CSR, float64) and candidates."""

    @abstractmethod
    def _margins(self, X: Any) -> FloatArray:
        """Return scores minus thresholds for validated features."""

    def _validate(self, X: Any, y: Any) -> tuple[Any, FloatArray]:
        """Return validated features and candidates; set the attributes that describe them."""
        if y is None:
            raise ValueError("a partial multi-label method requires y to be passed, but the target y is None")
        self.label_names_ = label_names_of(y)
        X, Y = validate_data(
            self,
            to_plain_container(X),
            y if is_sparse(y) else to_dense_array(y),
            multi_output=True,
            accept_sparse="csr",
            dtype=np.float64,
        )
        X = _finish_features(X)
        check_classification_targets(Y)
        Y = check_candidates(to_dense_array(Y))
        self.classes_ = np.arange(Y.shape[1]) if self.label_names_ is None else np.array(self.label_names_)
        return X, Y

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: multi-label targets only, sparse features supported."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags


def _finish_features(X: Any) -> Any:
    """Reject features whose squares overflow; return CSR features with 32-bit indices where possible."""
    largest = abs(X).max() if X.shape[0] and X.shape[1] else 0.0
    if largest > MAX_FEATURE:
        raise ValueError(f"features must be at most {MAX_FEATURE:g} in absolute value; got {largest:g}. Scale them.")
    if not is_sparse(X) or max(X.nnz, X.shape[1]) > np.iinfo(np.int32).max:
        return X
    # Support vector machines do not accept 64-bit indices.
    return type(X)((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)


class LinearPartialLabelClassifier(PartialLabelClassifier):
    """Base class of methods with linear scores, ``X @ coef_.T + intercept_``.

    The threshold is the midpoint of the regression targets 0 and 1. With ``fit_intercept``, a column of ones is
    appended to X.
    """

    coef_: FloatArray
    intercept_: FloatArray
    fit_intercept: bool
    _threshold = 0.5

    def _design(self, X: Any) -> Any:
        return append_ones(X) if self.fit_intercept else X

    def _set_weights(self, weights: FloatArray) -> None:
        """Set the weights (d, q) and the intercepts from the weights of the design."""
        intercept = weights[-1] if self.fit_intercept else np.zeros(weights.shape[1])
        self.W_ = weights[:-1] if self.fit_intercept else weights
        self.coef_, self.intercept_ = self.W_.T, intercept

    def _margins(self, X: Any) -> FloatArray:
        return np.asarray(X @ self.coef_.T) + self.intercept_ - self._threshold


@dataclass(frozen=True)
class Baseline:
    """Catalog entry of a method: its estimator and the hyperparameters that a comparison has to select.

    Parameters
    ----------
    name : str
        Name of the method in the tables.
    estimator : callable
        Class of the estimator, or a function that returns one.
    settings : mapping, default={}
        Constructor parameters that define this method.
    search_grid : mapping, default={}
        Values for model selection on a validation set, in the form of ``sklearn.model_selection.ParameterGrid``.
        Empty for methods with published default values.
    """

    name: str
    estimator: Callable[..., Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    search_grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def grid(self) -> list[dict[str, Any]]:
        """Points of the search grid; one without parameters if it is empty."""
        return list(ParameterGrid(dict(self.search_grid)))

    def make(self, **parameters: Any) -> Any:
        """Return an unfitted estimator.

        Parameters
        ----------
        **parameters : Any
            Constructor parameters; they override ``settings``.

        Returns
        -------
        estimator : PartialLabelClassifier
            The unfitted estimator.
        """
        return self.estimator(**{**self.settings, **parameters})


def append_ones(X: Any) -> Any:
    """Return [X, 1], the features with a last column of ones for the intercept; CSR stays CSR."""
    ones = np.ones((X.shape[0], 1))
    if is_sparse(X):
        return scipy.sparse.hstack([X, scipy.sparse.csr_array(ones)], format="csr")
    return np.hstack([X, ones])


class ShiftedGram:
    r"""Solver for :math:`B + c I` with :math:`B = \Phi^\top \Phi` and any c, from one eigendecomposition.

    With n rows and D columns, it decomposes B if :math:`D \le n`. Otherwise it decomposes the n x n matrix
    :math:`\Phi \Phi^\top`, which gives the leading eigenvectors of B. A sparse :math:`\Phi` is never made dense; memory
    is D x min(n, D).
    """

    def __init__(self, Phi: Any) -> None:
        n, D = Phi.shape
        self.is_complete = n >= D
        gram = to_dense_floats(Phi.T @ Phi) if self.is_complete else to_dense_floats(Phi @ Phi.T)
        values, vectors = scipy.linalg.eigh(gram, overwrite_a=True, check_finite=False)
        self.values = np.maximum(values, 0.0)
        rounding = self.values.max() * max(n, D) * np.finfo(float).eps
        self.is_positive = self.values > rounding
        self.vectors = vectors
        if not self.is_complete:
            self.values, self.is_positive = self.values[self.is_positive], self.is_positive[self.is_positive]
            self.vectors = to_dense_floats(Phi.T @ vectors[:, -len(self.values) :]) / np.sqrt(self.values)

    def solver(self, shift: float) -> Callable[[FloatArray], FloatArray]:
        """Return ``solve`` for a fixed shift, with a precomputed inverse if that takes fewer operations."""
        columns, rank = self.vectors.shape
        if columns > 2 * rank:
            return lambda M: self.solve(M, shift)
        inverse = self.solve(np.eye(columns), shift)
        return lambda M: np.asarray(M @ inverse)

    def solve(self, M: FloatArray, shift: float) -> FloatArray:
        """Return M (B + shift I)^{-1} for M of shape (q, D); shift 0 gives the solution of minimum norm."""
        projected = M @ self.vectors
        if shift == 0:
            inverse = np.divide(1.0, self.values, out=np.zeros_like(self.values), where=self.is_positive)
            return np.asarray((projected * inverse) @ self.vectors.T)
        if self.is_complete:
            return np.asarray((projected / (self.values + shift)) @ self.vectors.T)
        # B is zero on the orthogonal complement of the row space.
        correction = 1 / (self.values + shift) - 1 / shift
        return np.asarray(M / shift + (projected * correction) @ self.vectors.T)


def soft_threshold(A: FloatArray, t: float) -> FloatArray:
    r"""Return the proximal operator of the l1 norm, :math:`\mathrm{sign}(a) \max(\lvert a\rvert - t, 0)` per entry.

    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    return np.asarray(A - np.clip(A, -t, t))


def shrink_singular_values(A: FloatArray, t: float) -> FloatArray:
    r"""Return the proximal operator of the trace norm: singular values :math:`s \to \max(s - t, 0)`.

    The result is exactly zero if no singular value exceeds t.
    """
    if t <= 0:
        return A
    # The Frobenius norm bounds all singular values: a large t needs no decomposition.
    if np.linalg.norm(A) <= t:
        return np.zeros_like(A)
    left, values, right = np.linalg.svd(A, full_matrices=False)
    kept = values > t
    return np.asarray((left[:, kept] * (values[kept] - t)) @ right[kept])


def shrink_singular_values_tall(A: FloatArray, t: float) -> FloatArray:
    r"""Return ``shrink_singular_values`` of a matrix with many rows and few columns.

    With :math:`A^\top A = Q\, \mathrm{diag}(s^2)\, Q^\top` the result is :math:`A\, Q\, \mathrm{diag}(\max(1 - t/s,
    0))\, Q^\top`, which needs only a decomposition of the small Gram matrix. Singular values near t are accurate to
    about :math:`10^{-16} s_{\max}^2 / t`.
    """
    if t <= 0:
        return A
    squares, vectors = np.linalg.eigh(A.T @ A)
    kept = squares > t * t
    if not kept.any():
        return np.zeros_like(A)
    factor = 1 - t / np.sqrt(squares[kept])
    return np.asarray(A @ ((vectors[:, kept] * factor) @ vectors[:, kept].T))


def check_candidates(candidates: NDArray[Any], argument: str = "candidates") -> FloatArray:
    """Return candidate sets 0 or 1 of shape (n, q), without NaN, as float64."""
    is_numeric = candidates.dtype.kind in "biuf"
    if not is_numeric or not ((candidates == 0) | (candidates == 1)).all():
        given = np.unique(candidates)[:5].tolist() if is_numeric else f"dtype {candidates.dtype}"
        # scikit-learn's estimator checks look for the first sentence.
        raise ValueError(
            f"Only binary classification is supported. {argument} must be 0 or 1 for every label; got {given}: for "
            "-1/+1 pass (candidates + 1) / 2."
        )
    if candidates.ndim != 2:
        raise ValueError(
            f"{argument} must be a matrix of shape (n, q), 1 where a label is in the candidate set of the row; got "
            f"shape {candidates.shape}. Convert one class per row with sklearn.preprocessing.label_binarize."
        )
    return candidates.astype(np.float64)
