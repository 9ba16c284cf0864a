"""What a model keeps of the columns it was fitted on."""

from __future__ import annotations

import pytest

from ccmn.cli.models import columns_of
from ccmn.models import load_model


def test_columns_of_a_saved_model(saved):
    columns = columns_of(load_model(saved))
    assert columns.feature_names == ("length", "width", "depth", "age")
    assert (columns.n_features, columns.n_labels, columns.label_names) == (4, 3, ("sea", "sky", "sun"))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"feature_names": ["a", "b"]}, "one name per feature"),
        ({"feature_names": ["a", "a", "b", "c"]}, "must differ"),
        ({"text": {"column": "t", "terms": list("abcde"), "idf": [1.0] * 5}}, "takes 4 features, but knows 5 words"),
        ({"text": {"column": "t"}}, "not a description of text features"),
    ],
)
def test_notes_that_do_not_fit_the_model_are_refused(saved, extra, message):
    classifier = load_model(saved)
    classifier.extra_ = extra
    with pytest.raises(ValueError, match=message):
        columns_of(classifier)
