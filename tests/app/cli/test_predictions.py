from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from ccmn.app.cli.predict_command import Predictions


@pytest.fixture
def predictions():
    p = np.array([[0.2, 0.9, 0.9], [0.6, 0.1, 0.3]])
    return Predictions(["sea", "sky, high", 'the "sun"'], p, p >= 0.5)


def test_wide_format(predictions):
    header, first, second = predictions.wide()
    assert header == ["row", "sea", "sky, high", 'the "sun"', "p(sea)", "p(sky, high)", 'p(the "sun")']
    assert first == [0, 0, 1, 1, "0.2", "0.9", "0.9"]
    assert second[:4] == [1, 1, 0, 0]


def test_ties_are_broken_by_label_order(predictions):
    assert list(predictions.top(1))[1:] == [[0, 1, "sky, high", "0.9", 1], [1, 1, "sea", "0.6", 1]]
    assert len(list(predictions.top(5))) == 1 + 6


def test_to_dicts(predictions):
    assert predictions.to_dicts(1)[0] == {
        "row": 0,
        "predicted": ["sky, high"],
        "probability": {"sky, high": 0.9},
    }
    assert list(predictions.to_dicts()[1]["probability"]) == list(predictions.label_names)


def test_label_names_are_quoted_in_csv(predictions):
    stream = io.BytesIO()
    predictions.write(stream)
    assert next(csv.reader(io.StringIO(stream.getvalue().decode())))[1:4] == list(predictions.label_names)
    assert not stream.closed
