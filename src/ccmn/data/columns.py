"""What a fitted model takes from a data file: the right columns, in its own order, labels likewise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse

from ccmn._validation import check_no_missing
from ccmn.data.datasets import DATASETS, load_dataset
from ccmn.data.files import PathLike, blame
from ccmn.data.formats import FORMATS, format_suffix, read_file, read_rows, read_text_file
from ccmn.data.labels import LabelSpec
from ccmn.data.libsvm import read_libsvm
from ccmn.data.multilabel import Matrix, MultiLabelData
from ccmn.data.text import TextFeatures

_MOST_NAMED = 5


@dataclass(frozen=True)
class Columns:
    """The columns a model was fitted on.

    Parameters
    ----------
    n_features : int
        How many features a file must have, those made of text not counted.
    n_labels : int
    feature_names, label_names : sequence of str, optional
        Where they are known, columns are found by name, whatever their order; else by their number.
    text : TextFeatures, optional
        The column of texts, and what becomes of it.
    """

    n_features: int
    n_labels: int
    feature_names: Sequence[str] | None = None
    label_names: Sequence[str] | None = None
    text: TextFeatures | None = None

    @classmethod
    def of_training_data(
        cls,
        source: PathLike,
        labels: LabelSpec | None = None,
        text: str | None = None,
        *,
        data_dir: PathLike | None = None,
    ) -> tuple[Columns, MultiLabelData]:
        """Read data to fit a model on: what the model will ask for, and the data, a text column made into features."""
        if text is None:
            data = load_dataset(source, labels=labels, data_dir=data_dir)
            columns = cls(data.d, data.q, data.feature_names, data.label_names)
            whole = data
        else:
            data, texts = read_text_file(source, text, labels)
            features = TextFeatures.fit(text, texts)
            columns = cls(data.d, data.q, data.feature_names, data.label_names, features)
            whole = features.join(data, texts)
        with blame(source):
            check_no_missing(data.X, data.feature_names)
            if not (data.q and whole.d):
                raise ValueError(f"there are no {'features' if data.q else 'labels'} in these data to learn from")
        return columns, whole

    def read_rows(self, source: PathLike, *, data_dir: PathLike | None = None) -> MultiLabelData:
        """Rows to predict on: the model's features from a file, or a data set by name; labels are left out."""
        texts: list[str] = []
        if self.text is not None:
            data, texts = read_text_file(source, self.text.column, [])
        elif _is_data_set(source):
            data = load_dataset(source, data_dir=data_dir)
        else:
            data = read_rows(source)
        data = replace(data, Y=np.empty((data.n, 0)), candidates=None, label_names=None)
        return self._with_features(data, texts, source)

    def read_labelled(
        self, source: PathLike, labels: LabelSpec | None = None, *, data_dir: PathLike | None = None
    ) -> MultiLabelData:
        """The model's features and labels; which columns are labels the model knows by name, unless it is said."""
        texts: list[str] = []
        if self.text is not None:
            data, texts = read_text_file(source, self.text.column, self._labels(source, labels))
        elif _is_data_set(source):
            data = load_dataset(source, labels=labels, data_dir=data_dir)
        else:
            data = read_file(source, self._labels(source, labels))
        return self._with_features(self._with_labels(data, source), texts, source)

    def _labels(self, source: PathLike, labels: LabelSpec | None) -> LabelSpec | None:
        """Which columns are labels: as it is said, or those that the model knows."""
        suffix = format_suffix(source)
        if labels is not None or suffix not in FORMATS or FORMATS[suffix].labels_apart:
            return labels
        if self.label_names is not None:
            return list(self.label_names)
        return self.n_labels if _is_libsvm(source) else None

    def _with_features(self, data: MultiLabelData, texts: list[str], source: PathLike) -> MultiLabelData:
        with blame(source):
            if self.feature_names is not None and data.feature_names is not None:
                X = data.X[:, _places(self.feature_names, data.feature_names, "feature")]
            else:
                X = self._by_number(data, source)
            check_no_missing(X, self.feature_names)
        data = replace(data, X=X, feature_names=self.feature_names)
        return data if self.text is None else self.text.join(data, texts)

    def _by_number(self, data: MultiLabelData, source: PathLike) -> Matrix:
        X, names = data.X, data.feature_names
        if names is not None and self.label_names is not None:
            X = X[:, np.flatnonzero(~np.isin(names, list(self.label_names)))]
        # LIBSVM text shows no features beyond the largest it holds: a part of the data may lack the last.
        if _is_libsvm(source) and X.shape[1] < self.n_features:
            X = scipy.sparse.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], self.n_features))
        if X.shape[1] != self.n_features:
            raise ValueError(f"the model was fitted on {self.n_features} features; there are {X.shape[1]} here")
        return X

    def _with_labels(self, data: MultiLabelData, source: PathLike) -> MultiLabelData:
        with blame(source):
            if self.label_names is not None and data.label_names is not None:
                places = _places(self.label_names, data.label_names, "label")
                candidates = None if data.candidates is None else data.candidates[:, places]
                return replace(data, Y=data.Y[:, places], candidates=candidates, label_names=self.label_names)
            if data.q != self.n_labels:
                raise ValueError(f"the model was fitted on {self.n_labels} labels; there are {data.q} here")
        return replace(data, label_names=self.label_names)


def _is_data_set(source: PathLike) -> bool:
    """A name of the catalogue, or a misspelt one, whose message then lists them."""
    return source in DATASETS or (isinstance(source, str) and format_suffix(source) == "")


def _is_libsvm(source: PathLike) -> bool:
    suffix = format_suffix(source)
    return suffix in FORMATS and FORMATS[suffix].read is read_libsvm


def _places(wanted: Sequence[str], names: Sequence[str], what: str) -> list[int]:
    """Where the columns of these names are."""
    places = {name: place for place, name in enumerate(names)}
    missing = [name for name in wanted if name not in places]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:_MOST_NAMED])
        rest = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        raise ValueError(
            f"the model was fitted on {len(wanted)} {what}s, of which {len(missing)} are not there: {shown}{rest}"
        )
    return [places[name] for name in wanted]
