"""A column of texts as features: TF-IDF, its vocabulary kept as JSON so that new texts become the same features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn.data.multilabel import Matrix, MultiLabelData

_MOST_TERMS = 50_000
"""The most frequent terms are kept; more would make a model of many labels large, and rare terms tell little."""


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """TF-IDF of one column of texts: words, logarithmic counts, rows of length 1.

    Parameters
    ----------
    column : str
        The name of the column.
    terms : sequence of str
        The vocabulary, in the order of the features.
    idf : array of shape (len(terms),)
        The inverse document frequency of each term.

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
        """Learn the vocabulary and its weights."""
        vectorizer = _vectorizer(max_features=_MOST_TERMS)
        try:
            vectorizer.fit(texts)
        except ValueError:  # scikit-learn speaks of stop words here, of which there are none
            raise ValueError(
                f"the text column {column!r} has no words (of two letters or more) in its {len(texts)} rows"
            ) from None
        return cls(column, tuple(vectorizer.get_feature_names_out().tolist()), vectorizer.idf_.astype(np.float64))

    def transform(self, texts: Sequence[str]) -> Matrix:
        """The features of some texts, float32 CSR of shape (n, len(terms)); unknown words count for nothing."""
        vectorizer = _vectorizer(vocabulary=list(self.terms))
        vectorizer.idf_ = self.idf
        return scipy.sparse.csr_array(vectorizer.transform(texts), dtype=np.float32)

    def join(self, data: MultiLabelData, texts: Sequence[str]) -> MultiLabelData:
        """The data with these features after its own."""
        own = data.feature_names or [f"x{j}" for j in range(data.d)]
        X = scipy.sparse.hstack([scipy.sparse.csr_array(data.X), self.transform(texts)], format="csr")
        return replace(data, X=X, feature_names=[*own, *(f"{self.column}:{term}" for term in self.terms)])

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; ``from_dict`` reads it back."""
        return {"column": self.column, "terms": list(self.terms), "idf": self.idf.tolist()}

    @classmethod
    def from_dict(cls, d: Any) -> TextFeatures:
        """The inverse of ``to_dict``."""
        try:
            column, terms, idf = d["column"], [str(term) for term in d["terms"]], np.array(d["idf"], dtype=np.float64)
        except (KeyError, TypeError, ValueError):
            raise ValueError("not a description of text features: column, terms and idf are expected") from None
        if not terms or len(set(terms)) < len(terms) or idf.shape != (len(terms),):
            raise ValueError("not a description of text features: every term must differ and have one idf")
        return cls(str(column), tuple(terms), idf)


def _vectorizer(**settings: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, dtype=np.float64, **settings)
