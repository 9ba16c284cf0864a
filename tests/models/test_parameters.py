"""Invalid parameters raise an error before anything is computed."""

from __future__ import annotations

import pytest
from ccmn.models.classifier import check_parameters

from ccmn import CCMNClassifier


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("lr", "quick", "lr must be a positive number or a list of them; got 'quick'"),
        ("lr", None, "lr must be"),
        ("lr", (), "lr must be"),
        ("lr", [0.1, -1], "lr must be"),
        ("lr", [[0.1]], "lr must be"),
        ("weight_decay", "much", "weight_decay must be a number of at least 0; got 'much'"),
        ("weight_decay", -1.0, "weight_decay must be a number of at least 0"),
        ("weight_decay", float("nan"), "weight_decay must be"),
        ("validation_fraction", None, "validation_fraction must be a number"),
        ("validation_fraction", 1.0, "validation_fraction must be between 0 and 1"),
        ("validation_fraction", 0, "validation_fraction must be between 0 and 1"),
        ("epochs", 2.5, "epochs must be an integer"),
        ("batch_size", 0, "batch_size must be an integer"),
        ("threshold", "f2", "threshold must be 'fixed' or 'f1'"),
        ("noise", "both", "noise must be 'estimate' or 'partial' or 'missing'"),
    ],
)
def test_invalid_parameters(parameter, value, message):
    with pytest.raises(ValueError, match=message):
        check_parameters(CCMNClassifier(**{parameter: value}).get_params())


def test_valid_parameters():
    clf = CCMNClassifier(lr=0.1, weight_decay=0, validation_fraction=0.5, batch_size=7)
    check_parameters(clf.get_params())
