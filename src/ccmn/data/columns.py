"""Columns of a fitted model: matched with the columns of data files, with TF-IDF features of a text column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._files import PathLike, prefix_errors
from ccmn._validation import check_no_missing
from ccmn.data.catalog import DATASETS, load_dataset
from ccmn.data.dataset import Matrix, MultiLabelData
from ccmn.data.formats import FORMATS, format_suffix, read_file, read_rows, read_text_file
from ccmn.data.libsvm import read_libsvm
from ccmn.data.tables import LabelSpec
from ccmn.data.vote_table import read_votes

MAX_TERMS = 50_000
"""Only the most frequent terms are used: rare terms add little, and more would make models of many labels large."""
MAX_NAMES_SHOWN = 5
"""Error messages list this many missing columns."""


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """TF-IDF features of a text column: words, logarithmic term frequencies, rows of norm 1.

    Parameters
    ----------
    column : str
        Name of the column.
    terms : sequence of str
        Vocabulary, in the order of the features.
    idf : array of shape (len(terms),)
        Inverse document frequency of every term.

    Examples
    --------
    >>> text = TextFeatures.fit("review", ["a red boat", "a blue boat"])
    >>> text.terms
    ('blue', 'boat', 'red')
    >>> text.transform(["red, red!"]).toarray().tolist()
    [[0.0, 0.0, 1.0]]
    """

    column: str
    terms: Sequence[str]
    idf: NDArray[np.float64]

    @classmethod
    def fit(cls, column: str, texts: Sequence[str]) -> TextFeatures:
        """Return the vocabulary and the weights of some texts."""
        vectorizer = _vectorizer(max_features=MAX_TERMS)
        try:
            vectorizer.fit(texts)
        except ValueError:  # the message of scikit-learn mentions stop words, which are not used
            raise ValueError(
                f"the text column {column!r} has no words (of two letters or more) in its {len(texts)} rows"
            ) from None
        return cls(column, tuple(vectorizer.get_feature_names_out().tolist()), vectorizer.idf_.astype(np.float64))

    def transform(self, texts: Sequence[str]) -> Matrix:
        """Return the features of some texts, a float32 CSR array (n, len(terms)); unknown words are ignored."""
        vectorizer = _vectorizer(vocabulary=list(self.terms))
        vectorizer.idf_ = self.idf
        return scipy.sparse.csr_array(vectorizer.transform(texts), dtype=np.float32)

    def join(self, data: MultiLabelData, texts: Sequence[str]) -> MultiLabelData:
        """Return the data with the features of the texts appended."""
        own = data.feature_names or [f"x{j}" for j in range(data.d)]
        X = scipy.sparse.hstack([scipy.sparse.csr_array(data.X), self.transform(texts)], format="csr")
        return replace(data, X=X, feature_names=[*own, *(f"{self.column}:{term}" for term in self.terms)])

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that JSON can store; ``from_dict`` reads it."""
        return {"column": self.column, "terms": list(self.terms), "idf": self.idf.tolist()}

    @classmethod
    def from_dict(cls, d: Any) -> TextFeatures:
        """Return the features described by ``to_dict``."""
        try:
            column, terms, idf = d["column"], [str(term) for term in d["terms"]], np.array(d["idf"], dtype=np.float64)
        except (KeyError, TypeError, ValueError):
            raise ValueError("not a description of text features: expected column, terms and idf") from None
        if not terms or len(set(terms)) < len(terms) or idf.shape != (len(terms),):
            raise ValueError("not a description of text features: terms must be unique and have one idf each")
        return cls(str(column), tuple(terms), idf)


@dataclass(frozen=True)
class Columns:
    """Feature and label columns of the data that a model was fitted on.

    Parameters
    ----------
    n_features : int
        Number of features, without the features of the text column.
    n_labels : int
        Number of labels.
    feature_names, label_names : sequence of str, default=None
        Column names. If they are known, columns of other files are matched by name in any order, else by position.
    text : TextFeatures, default=None
        TF-IDF features of the text column.
    """

    n_features: int
    n_labels: int
    feature_names: Sequence[str] | None = None
    label_names: Sequence[str] | None = None
    text: TextFeatures | None = None

    @classmethod
    def from_training_data(
        cls,
        source: PathLike,
        labels: LabelSpec | None = None,
        text: str | None = None,
        *,
        data_dir: PathLike | None = None,
        votes: Sequence[str] | None = None,
    ) -> tuple[Columns, MultiLabelData]:
        """Read training data; return their columns, and the data with the text column converted to features.

        ``votes`` names the columns of a long table of votes, as in :func:`ccmn.data.vote_table.read_votes`.
        """
        if votes is not None:
            if labels is not None:
                raise ValueError("Expected either label columns or votes, not both (--labels and --votes)")
            data, voted_texts = read_votes(source, votes, text)
            features = None if voted_texts is None or text is None else TextFeatures.fit(text, voted_texts)
            columns = cls(data.d, data.q, data.feature_names, data.label_names, features)
            joined = data if features is None or voted_texts is None else features.join(data, voted_texts)
        elif text is None:
            data = load_dataset(source, labels=labels, data_dir=data_dir)
            columns = cls(data.d, data.q, data.feature_names, data.label_names)
            joined = data
        else:
            data, texts = read_text_file(source, text, labels)
            features = TextFeatures.fit(text, texts)
            columns = cls(data.d, data.q, data.feature_names, data.label_names, features)
            joined = features.join(data, texts)
        with prefix_errors(source):
            check_no_missing(data.X, data.feature_names)
            if not (data.q and joined.d):
                raise ValueError(f"there are no {'features' if data.q else 'labels'} in these data")
        return columns, joined

    def read_rows(self, source: PathLike, *, data_dir: PathLike | None = None) -> MultiLabelData:
        """Read rows to predict from a file or a dataset of the catalog; labels are ignored."""
        texts: list[str] = []
        if self.text is not None:
            data, texts = read_text_file(source, self.text.column, [])
        elif _is_dataset_name(source):
            data = load_dataset(source, data_dir=data_dir)
        else:
            data = read_rows(source)
        data = replace(data, Y=np.empty((data.n, 0)), candidates=None, label_names=None)
        return self._with_features(data, texts, source)

    def read_labeled(
        self, source: PathLike, labels: LabelSpec | None = None, *, data_dir: PathLike | None = None
    ) -> MultiLabelData:
        """Read features and labels; without ``labels``, the label columns have the names in the model."""
        texts: list[str] = []
        if self.text is not None:
            data, texts = read_text_file(source, self.text.column, self._labels(source, labels))
        elif _is_dataset_name(source):
            data = load_dataset(source, labels=labels, data_dir=data_dir)
        else:
            data = read_file(source, self._labels(source, labels))
        return self._with_features(self._with_labels(data, source), texts, source)

    def _labels(self, source: PathLike, labels: LabelSpec | None) -> LabelSpec | None:
        """Return the selection of labels as given, or the labels of the model."""
        suffix = format_suffix(source)
        if labels is not None or suffix not in FORMATS or FORMATS[suffix].labels_apart:
            return labels
        if self.label_names is not None:
            return list(self.label_names)
        return self.n_labels if _is_libsvm(source) else None

    def _with_features(self, data: MultiLabelData, texts: list[str], source: PathLike) -> MultiLabelData:
        """Return the data with the features of the model, in its order."""
        with prefix_errors(source):
            if self.feature_names is not None and data.feature_names is not None:
                X = data.X[:, _places(self.feature_names, data.feature_names, "feature")]
            else:
                X = self._by_position(data, source)
            check_no_missing(X, self.feature_names)
        data = replace(data, X=X, feature_names=self.feature_names)
        return data if self.text is None else self.text.join(data, texts)

    def _by_position(self, data: MultiLabelData, source: PathLike) -> Matrix:
        """Return the features of a file that cannot be matched by name."""
        X, names = data.X, data.feature_names
        if names is not None and self.label_names is not None:
            X = X[:, np.flatnonzero(~np.isin(names, list(self.label_names)))]
        # LIBSVM text does not store the number of features: a part of a dataset may lack the last ones.
        if _is_libsvm(source) and X.shape[1] < self.n_features:
            X = scipy.sparse.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], self.n_features))
        if X.shape[1] != self.n_features:
            raise ValueError(f"the model was fitted on {self.n_features} features; got {X.shape[1]}")
        return X

    def _with_labels(self, data: MultiLabelData, source: PathLike) -> MultiLabelData:
        """Return the data with the labels of the model, in its order."""
        with prefix_errors(source):
            if self.label_names is not None and data.label_names is not None:
                places = _places(self.label_names, data.label_names, "label")
                candidates = None if data.candidates is None else data.candidates[:, places]
                return replace(data, Y=data.Y[:, places], candidates=candidates, label_names=self.label_names)
            if data.q != self.n_labels:
                raise ValueError(f"the model was fitted on {self.n_labels} labels; got {data.q}")
        return replace(data, label_names=self.label_names)


def _is_dataset_name(source: PathLike) -> bool:
    """Return whether the source is a dataset name, possibly a misspelled one."""
    return source in DATASETS or (isinstance(source, str) and format_suffix(source) == "")


def _is_libsvm(source: PathLike) -> bool:
    """Return whether the suffix is one of LIBSVM text."""
    suffix = format_suffix(source)
    return suffix in FORMATS and FORMATS[suffix].read is read_libsvm


def _places(wanted: Sequence[str], names: Sequence[str], what: str) -> list[int]:
    """Return the positions of named columns."""
    places = {name: place for place, name in enumerate(names)}
    missing = [name for name in wanted if name not in places]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:MAX_NAMES_SHOWN])
        rest = f" and {len(missing) - MAX_NAMES_SHOWN} more" if len(missing) > MAX_NAMES_SHOWN else ""
        raise ValueError(
            f"the model was fitted on {len(wanted)} {what}s, of which {len(missing)} are missing: {shown}{rest}"
        )
    return [places[name] for name in wanted]


def _vectorizer(**settings: Any) -> Any:
    """Return scikit-learn's TF-IDF vectorizer with the settings of this module."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, dtype=np.float64, **settings)
