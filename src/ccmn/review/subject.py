"""What is reviewed: features to learn from, labels given, and how a row is shown to a person."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn.data.multilabel import MultiLabelData
from ccmn.review.pictures import Picture

MOST_FEATURES = 30
"""Features of a row that are shown: the telling ones, where there are more."""


class Feature(NamedTuple):
    """A feature of a row: its value, and how many standard deviations it lies from the mean."""

    name: str
    value: float
    apart: float


@dataclass(frozen=True, eq=False)
class Subject:
    """Data under review.

    Parameters
    ----------
    data : MultiLabelData
        Features and the labels given; what the model takes.
    texts : sequence of str, optional
        The text of every row.
    picture : callable, optional
        From the number of a row to its picture, or None where it has none.
    test : (X, Y), optional
        Rows with clean labels, where they are to be had: what retraining gains is measured on them.
    """

    data: MultiLabelData
    texts: Sequence[str] | None = None
    picture: Callable[[int], Picture | None] | None = None
    test: tuple[Any, Any] | None = None

    @cached_property
    def given(self) -> NDArray[np.float32]:
        """Labels (n, q), NaN where not observed."""
        Y = self.data.Y
        return np.asarray(Y.toarray() if is_sparse(Y) else Y, dtype=np.float32)

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """What labels are called; numbered where they have no names."""
        return tuple(self.data.label_names or (f"label {j}" for j in range(self.data.q)))

    @property
    def named_labels(self) -> Any:
        """The labels given with their names, where they have any."""
        if self.data.label_names is None:
            return self.given
        import pandas as pd

        return pd.DataFrame(self.given, columns=list(self.data.label_names))

    @property
    def facts(self) -> dict[str, Any]:
        """What decisions are about: they fit no data with other labels or rows."""
        labels = np.nan_to_num(self.given, nan=2).astype(np.uint8)
        return {
            "rows": self.data.n,
            "labels": list(self.label_names),
            "sha256 of the labels": hashlib.sha256(labels.tobytes()).hexdigest(),
        }

    def features(self, row: int) -> list[Feature]:
        """The features of a row that set it apart most, in the order of the columns."""
        mean, deviation = self._spread
        columns, values = self._row(row)
        apart = (values - mean[columns]) / deviation[columns]
        telling = np.sort(np.argsort(-np.abs(np.nan_to_num(apart)), kind="stable")[:MOST_FEATURES])
        names = self.data.feature_names
        return [
            Feature(names[columns[k]] if names else f"x{columns[k]}", float(values[k]), float(apart[k]))
            for k in telling
        ]

    def _row(self, row: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Columns and values: all of them, of a sparse row those that are stored."""
        X = self.data.X
        if is_sparse(X):
            inside = slice(X.indptr[row], X.indptr[row + 1])
            return X.indices[inside], X.data[inside]
        return np.arange(self.data.d), X[row]

    @cached_property
    def _spread(self) -> tuple[NDArray[Any], NDArray[Any]]:
        X = self.data.X
        if is_sparse(X):
            mean = np.asarray(X.mean(axis=0)).ravel()
            variance = np.asarray(X.multiply(X).mean(axis=0)).ravel() - mean**2
        else:
            mean, variance = np.nanmean(X, axis=0), np.nanvar(X, axis=0)
        return mean, np.sqrt(np.maximum(variance, np.finfo(np.float32).eps))
