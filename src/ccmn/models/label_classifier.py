"""Base class of the estimators: predictions, scores and names that follow from ``decision_function``."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from typing_extensions import Self

from ccmn._containers import is_dataframe, is_sparse, to_dense_array
from ccmn._validation import FloatArray, check_choice, check_count
from ccmn.models.predictor import predicted_labels, top_labels
from ccmn.models.training_data import is_votes
from ccmn.votes import infer_labels

if TYPE_CHECKING:
    from sklearn.utils import Tags


class LabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of several labels per row whose predictions are ``decision_function(X) >= 0``."""

    classes_: NDArray[Any]
    _sparse: bool = False
    """Whether predictions are CSR matrices, because the labels were sparse in ``fit``."""

    @abstractmethod
    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores (n, q) of the labels. A label is predicted when its score is at least 0."""

    @abstractmethod
    def _probabilities(self, X: Any) -> FloatArray:
        """Return the probabilities (n, q) of the true labels."""

    def _tiles(self) -> list[slice]:
        """Return slices of the labels whose scores are computed together."""
        return [slice(0, len(self.classes_))]

    def _tile_scores(self, X: Any, labels: slice) -> FloatArray:
        """Return the scores of some labels."""
        return self.decision_function(X)[:, labels]

    def predict(self, X: Any) -> Any:
        """Predict the true labels.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.

        Returns
        -------
        array of shape (n, q)
            1 where ``decision_function`` is at least 0, else 0. A CSR matrix if the labels were sparse in ``fit``, and
            a DataFrame after ``set_output(transform="pandas")``.
        """
        check_is_fitted(self)
        if self._sparse:
            return self._named(predicted_labels(self._tile_scores, X, self._tiles()), X)
        return self._named((self.decision_function(X) >= 0).astype(np.int64), X)

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the true labels.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.

        Returns
        -------
        array of shape (n, q)
            P(true label = 1 | x), strictly inside (0, 1). A DataFrame after ``set_output(transform="pandas")``.
        """
        check_is_fitted(self)
        return self._named(self._probabilities(X), X)

    def top_labels(self, X: Any, k: int) -> tuple[NDArray[np.int64], FloatArray]:
        """Return the k labels with the highest scores.

        Scores are computed in tiles and neither stored nor sorted as a whole, so that there can be very many labels.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.
        k : int
            Number of labels per row.

        Returns
        -------
        labels : array of int of shape (n, k)
            Column numbers, best first.
        scores : array of shape (n, k)
            Their scores.
        """
        check_is_fitted(self)
        if check_count(k, "k") > len(self.classes_):
            raise ValueError(f"k must be at most the number of labels, {len(self.classes_)}; got {k}")
        return top_labels(self._tile_scores, X, self._tiles(), k)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose predicted labels are all correct, as in scikit-learn.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.
        y : labels of shape (n, q), or votes
            Labels. Predictions are compared with the labels inferred from votes.
        sample_weight : array of shape (n,), default=None
            Sample weights.

        Returns
        -------
        float
            Subset accuracy.
        """
        if is_votes(y):
            y = infer_labels(y).labels
        elif isinstance(y, torch.Tensor):
            y = to_dense_array(y)
        return float(super().score(X, y, sample_weight))

    def set_output(self, *, transform: str | None = None) -> Self:
        """Set the container of predictions and probabilities.

        Parameters
        ----------
        transform : {"default", "pandas"} or None, default=None
            "pandas" returns DataFrames with the names of the labels as columns, and with the index of X if it is a
            DataFrame. None changes nothing.

        Returns
        -------
        estimator
            The estimator itself.
        """
        if transform is not None:
            self._output = check_choice(transform, "transform", ("default", "pandas"))
        return self

    def _named(self, values: Any, X: Any) -> Any:
        """Return predictions in the container that ``set_output`` has set."""
        if getattr(self, "_output", "default") == "default":
            return values
        from pandas import DataFrame, Series

        index = X.index if is_dataframe(X) else None
        if is_sparse(values):
            frame: Any = DataFrame
            return frame.sparse.from_spmatrix(values, index=index, columns=self.classes_)
        if values.ndim == 1:
            return Series(values, index=index)
        return DataFrame(values, index=index, columns=self.classes_)

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of a multi-label classifier."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        return tags
