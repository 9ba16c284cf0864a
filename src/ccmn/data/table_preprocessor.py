"""Transformer of tables in the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from typing_extensions import Self

from ccmn._validation import check_count
from ccmn.data.column_roles import name_hint
from ccmn.data.dataset import Matrix
from ccmn.data.fitted_table import CategoryFeatures, FittedTable, TextFeatures, check_frame, fit_steps


class TablePreprocessor(FittedTable, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer of tables with numbers, categories, dates, texts and gaps to numeric features.

    The kind of a column follows from its values: numbers (also yes, no, true, false), ISO dates, or categories.
    Categories that occur once or are not among the most frequent share one feature.

    Parameters
    ----------
    text : str or sequence of str, default=()
        Text columns, converted to TF-IDF features.
    categorical : sequence of str, default=()
        Columns of categories, even if their values are numbers.
    ignore : sequence of str, default=()
        Columns that are not features.
    max_categories : int, default=50
        Maximum number of categories of a column that get their own feature.

    Attributes
    ----------
    steps_ : tuple
        Fitted steps, in the order of the features.
    feature_names_out_ : list of str
        Names of the features.

    See Also
    --------
    ccmn.CorrectedClassifier : Classifier that takes the features.

    Examples
    --------
    >>> import pandas as pd
    >>> from ccmn.data import TablePreprocessor
    >>> table = pd.DataFrame({"age": [20, None, 40], "city": ["Rome", "Oslo", "Rome"]})
    >>> preprocessor = TablePreprocessor().fit(table)
    >>> preprocessor.get_feature_names_out().tolist()
    ['age', 'age:missing', 'city=Rome', 'city:rare']
    >>> preprocessor.transform(table).astype(float).round(1).tolist()
    [[-1.2, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.2, 0.0, 1.0, 0.0]]
    """

    def __init__(
        self,
        text: str | Sequence[str] = (),
        *,
        categorical: Sequence[str] = (),
        ignore: Sequence[str] = (),
        max_categories: int = 50,
    ) -> None:
        self.text, self.categorical, self.ignore, self.max_categories = text, categorical, ignore, max_categories

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the steps from a table.

        Parameters
        ----------
        X : DataFrame of shape (n, columns)
            Table of pandas, pyarrow or polars.
        y : object, default=None
            Ignored.

        Returns
        -------
        TablePreprocessor
            This object.
        """
        frame = check_frame(X)
        text = [self.text] if isinstance(self.text, str) else list(self.text)
        check_count(self.max_categories, "max_categories")
        for role, wanted in (("text", text), ("categorical", self.categorical), ("ignore", self.ignore)):
            for name in wanted:
                if name not in frame.columns:
                    raise ValueError(f"{role}: there is no column {name!r}; {name_hint(name, list(frame.columns))}")
        steps = [
            step
            for name in frame.columns
            if name not in text and name not in self.ignore and frame[name].notna().any()
            for step in fit_steps(frame[name], name in self.categorical, self.max_categories)
        ]
        steps.sort(key=lambda step: 2 if getattr(step, "part", "") else isinstance(step, CategoryFeatures))
        return self.set_steps([*steps, *(TextFeatures.fit(frame[name]) for name in text)])

    def transform(self, X: Any) -> Matrix:
        """Return the features of a table.

        Parameters
        ----------
        X : DataFrame
            Table of pandas, pyarrow or polars with the columns of ``fit``, in any order; other columns are ignored.

        Returns
        -------
        array or CSR array of shape (n, features)
            Features in float32; sparse if there are texts or more than 1000 features of categories.
        """
        check_is_fitted(self, "steps_")
        return super().transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : object, default=None
            Ignored; part of the interface of scikit-learn.

        Returns
        -------
        ndarray of object
            Names, one per feature.
        """
        return np.array(self.feature_names_out_, dtype=object)
