"""Columns stored with a model."""

from __future__ import annotations

import pytest

from ccmn.cli.predict_command import model_columns
from ccmn.models import load_model


def test_columns_of_a_saved_model(saved):
    columns = model_columns(load_model(saved))
    assert columns.feature_names == ("length", "width", "depth", "age")
    assert (columns.n_features, columns.n_labels, columns.label_names) == (4, 3, ("sea", "sky", "sun"))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"feature_names": ["a", "b"]}, "one name per feature"),
        ({"feature_names": ["a", "a", "b", "c"]}, "must be unique"),
        ({"text": {"column": "t", "terms": list("abcde"), "idf": [1.0] * 5}}, "4 features but 5 terms"),
        ({"text": {"column": "t"}}, "not a description of text features"),
    ],
)
def test_inconsistent_columns(saved, extra, message):
    classifier = load_model(saved)
    classifier.extra_ = extra
    with pytest.raises(ValueError, match=message):
        model_columns(classifier)
