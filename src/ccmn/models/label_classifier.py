"""Base class of the estimators: predictions, scores and names that follow from ``decision_function``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from typing_extensions import Self

from ccmn._containers import is_dataframe, is_sparse, to_dense_array
from ccmn._validation import FloatArray, check_choice, check_count
from ccmn.models.model_file import write_model
from ccmn.models.targets import is_votes
from ccmn.votes import infer_labels

MAX_TILE_SCORES = 1 << 20
"""Scores of a tile of rows and labels."""

Scores = Callable[[Any, slice], NDArray[np.float64]]
"""(features of some rows, some labels) -> their scores."""


class LabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of several labels per row whose predictions are ``decision_function(X) >= 0``.

    ``_scores`` (n, q) are those of features and, optionally, of a slice of the labels. ``_description`` returns the
    description and the arrays that ``save`` writes. With ``_sparse``, predictions are CSR matrices.
    """

    classes_: NDArray[Any]
    _sparse: bool = False
    _scores: Callable[..., FloatArray]
    _probabilities: Callable[[Any], FloatArray]
    _module: Callable[[], torch.nn.Module]
    _description: Callable[[], tuple[dict[str, Any], dict[str, NDArray[Any]]]]

    def _tiles(self) -> list[slice]:
        """Return slices of the labels whose scores are computed together."""
        return [slice(0, len(self.classes_))]

    def _predicted(self, scores: FloatArray) -> NDArray[Any]:
        return (scores >= 0).astype(np.int64)

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores of the labels.

        Those of ``CCMNClassifier`` with the ranking loss are relative to the dummy label. Those of
        ``CorrectedClassifier`` are the log-odds of the true labels minus the thresholds; with another ``estimator``,
        twice the corrected probability minus 1, which can lie outside [-1, 1].

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features, or what ``estimator`` accepts.

        Returns
        -------
        array of shape (n, q)
            Scores. A label is predicted when its score is at least 0; with one class per row, the class with the
            largest score.
        """
        check_is_fitted(self)
        return self._scores(X)

    def predict(self, X: Any) -> Any:
        """Predict the true labels, or the class of every row.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.

        Returns
        -------
        array of shape (n, q) or (n,)
            1 where ``decision_function`` is at least 0, else 0. A CSR matrix if the labels were sparse in ``fit``, and
            a DataFrame after ``set_output(transform="pandas")``. With ``TransitionNoise``, the class with the largest
            score, in the form of the labels in ``fit``.
        """
        check_is_fitted(self)
        if self._sparse:
            return self._named(predicted_labels(self._scores, X, self._tiles()), X)
        return self._named(self._predicted(self._scores(X)), X)

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
        return top_labels(self._scores, X, self._tiles(), k)

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

    def to_torch(self) -> torch.nn.Module:
        """Return the fitted classifier as a torch module, for ``torch.export``, ONNX or a service without ccmn.

        Returns
        -------
        torch.nn.Module
            Module that takes a tensor of original, dense features (n, d), or of inputs with the shape of those in
            ``fit``, and returns what ``predict_proba`` returns.

        Examples
        --------
        >>> from ccmn import CorrectedClassifier
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> clf = CorrectedClassifier(noise=None, random_state=0).fit(X, X > 0)
        >>> bool(np.allclose(clf.to_torch()(torch.tensor(X)).numpy(), clf.predict_proba(X), atol=1e-5))
        True
        """
        check_is_fitted(self)
        return self._module().eval()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model to a file, never as a pickle.

        Parameters
        ----------
        path : path-like
            File, such as ``model.ccmn``. An existing file is replaced atomically.
        """
        check_is_fitted(self)
        write_model(path, *self._description())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_network") or hasattr(self, "_curve")

    def _named(self, values: Any, X: Any) -> Any:
        """Return predictions in the container that ``set_output`` has set."""
        if getattr(self, "_output", "default") == "default":
            return values
        index = X.index if is_dataframe(X) else None
        if is_sparse(values):
            frame: Any = pd.DataFrame
            return frame.sparse.from_spmatrix(values, index=index, columns=self.classes_)
        return pd.Series(values, index) if values.ndim == 1 else pd.DataFrame(values, index, self.classes_)


# -- Predictions for many labels: scores exist only for one tile of rows and labels at a time


def predicted_labels(scores: Scores, X: Any, tiles: list[slice]) -> Any:
    """Return the labels with a score of at least 0 as a CSR matrix (n, q) of int64."""
    parts = [(np.nonzero(f >= 0), part.start, labels.start) for labels, part, f in _tile_scores(scores, X, tiles)]
    rows, columns = zip(*((row + start, column + first) for (row, column), start, first in parts))
    at = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(at[0].size, dtype=np.int64)
    return scipy.sparse.coo_matrix((ones, at), shape=(X.shape[0], tiles[-1].stop)).tocsr()


def top_labels(scores: Scores, X: Any, tiles: list[slice], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k labels with the highest scores of every row, highest first, and these scores: (n, k) each.

    The best k labels so far are merged with one tile at a time by partial sorting, in O(n q) time. Of equal scores, the
    first label comes first among those that are kept.
    """
    n = X.shape[0]
    best, best_labels = np.full((n, 0), -np.inf), np.zeros((n, 0), dtype=np.int64)
    for tile in tiles:
        merged = []
        for _, part, f in _tile_scores(scores, X, [tile]):
            values = np.concatenate((best[part], f), 1)
            new = np.broadcast_to(np.arange(tile.start, tile.start + f.shape[1]), f.shape)
            labels = np.concatenate((best_labels[part], new), 1)
            if values.shape[1] > k:
                kept = np.argpartition(-values, k - 1, axis=1)[:, :k]
                values, labels = np.take_along_axis(values, kept, 1), np.take_along_axis(labels, kept, 1)
            merged.append((values, labels))
        best, best_labels = (np.concatenate(side) for side in zip(*merged))
    order = np.lexsort((best_labels, -best))
    return np.take_along_axis(best_labels, order, 1), np.take_along_axis(best, order, 1)


def _tile_scores(scores: Scores, X: Any, tiles: list[slice]) -> Iterator[tuple[slice, slice, NDArray[np.float64]]]:
    """Yield (labels, rows, their scores) tile by tile."""
    for labels in tiles:
        size = max(1, MAX_TILE_SCORES // (labels.stop - labels.start))
        for start in range(0, X.shape[0], size):
            part = slice(start, min(start + size, X.shape[0]))
            yield labels, part, scores(X[part], labels)
