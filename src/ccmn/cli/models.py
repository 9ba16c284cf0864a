"""Models at the command line: what they were fitted on, kept with them as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ccmn.data.columns import Columns
    from ccmn.models import CCMNClassifier
    from ccmn.report.predictions import Predictions

_ENTRIES_AT_ONCE = 1 << 22
"""Probabilities in memory at once."""

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model saved by ccmn fit (or by its save).", show_default=False)
]


def remember(classifier: CCMNClassifier, columns: Columns) -> None:
    """Keep with a model which columns of a file it takes: names of features, and the text column's vocabulary."""
    classifier.extra_["feature_names"] = None if columns.feature_names is None else list(columns.feature_names)
    if columns.text is not None:
        classifier.extra_["text"] = columns.text.to_dict()


def columns_of(classifier: CCMNClassifier) -> Columns:
    """Which columns of a file a model takes."""
    from ccmn._validation import check_feature_names
    from ccmn.data.columns import Columns, TextFeatures

    extra = classifier.extra_
    text = TextFeatures.from_dict(extra["text"]) if "text" in extra else None
    names = extra.get("feature_names", getattr(classifier, "feature_names_in_", None))
    words = len(text.terms) if text else 0
    n_features = classifier.n_features_in_ - words
    if n_features < 0:
        raise ValueError(f"the model takes {classifier.n_features_in_} features, but knows {words} words")
    return Columns(
        n_features=n_features,
        n_labels=classifier.noise_.n_labels,
        feature_names=check_feature_names(names, n_features),
        label_names=classifier.label_names_,
        text=text,
    )


def predictions_of(classifier: CCMNClassifier, X: Any) -> Iterator[Predictions]:
    """Labels (or, of a model of classes, the classes) and probabilities, with their names, some rows at a time."""
    size = max(1, _ENTRIES_AT_ONCE // classifier.noise_.n_labels)
    for start in range(0, X.shape[0], size):
        yield _predictions(classifier, X[start : start + size], start)


def _predictions(classifier: CCMNClassifier, X: Any, first: int) -> Predictions:
    from ccmn.report.predictions import Predictions

    labels, p = classifier.predict(X, sparse=False), classifier.predict_proba(X)
    if labels.ndim == 1:
        names = [str(name) for name in classifier.classes_]
        return Predictions(names, p, labels[:, None] == classifier.classes_, first)
    return Predictions([str(name) for name in classifier.label_names_ or classifier.classes_], p, labels == 1, first)
