"""What every partial multi-label method shares: reading candidate sets, scores against a cut, the scikit-learn face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import Self

from ccmn._containers import is_sparse, label_names_of, to_dense_array
from ccmn._validation import FloatArray, check_candidates


class PartialLabelClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A method that learns from candidate sets: ``candidates[i, j]`` is 1 where label j may be true of row i.

    A method says what it learns (``_learn``) and what it answers (``_margins``: score minus cut). Features are taken as
    given: scale them before, in a pipeline.
    """

    def fit(self, X: Any, candidates: Any) -> Self:
        """Learn from features and candidate sets.

        Parameters
        ----------
        X : array, DataFrame, tensor or CSR of shape (n, d)
        candidates : array, DataFrame, tensor or CSR of shape (n, q)
            1 where the label is in the row's candidate set, else 0.
        """
        self._check_parameters()
        self._learn(*self._read(X, candidates))
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Score minus cut, (n, q): a label is predicted where it is at least 0."""
        return self._margins(self._features(X))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 where ``decision_function`` is at least 0, (n, q)."""
        return (self.decision_function(X) >= 0).astype(np.int64)

    @abstractmethod
    def _check_parameters(self) -> None:
        """Refuse parameters that are wrong by themselves."""

    @abstractmethod
    def _learn(self, X: Any, Y: FloatArray) -> None:
        """Set the fitted attributes from checked features (dense or CSR, float64) and candidates."""

    @abstractmethod
    def _margins(self, X: Any) -> FloatArray:
        """Score minus cut of checked features."""

    def _features(self, X: Any) -> Any:
        """Features of other rows, once fitted."""
        check_is_fitted(self)
        return validate_data(self, _plain(X), reset=False, accept_sparse="csr", dtype=np.float64)

    def _read(self, X: Any, candidates: Any) -> tuple[Any, FloatArray]:
        if candidates is None:
            raise ValueError("a partial multi-label method requires y to be passed, but the target y is None")
        self.label_names_ = label_names_of(candidates)
        X, Y = validate_data(
            self, _plain(X), _plain(candidates), multi_output=True, accept_sparse="csr", dtype=np.float64
        )
        check_classification_targets(Y)
        Y = check_candidates(to_dense_array(Y))
        self.classes_ = np.arange(Y.shape[1])
        return X, Y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags


def _plain(container: Any) -> Any:
    """Tensors as arrays; everything else scikit-learn reads by itself."""
    return to_dense_array(container) if hasattr(container, "detach") and not is_sparse(container) else container
