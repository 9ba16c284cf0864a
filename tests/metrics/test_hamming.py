import pytest
import sklearn.metrics
import torch
from hypothesis import given

from ccmn.metrics import hamming_loss, hamming_rows
from metrics import reference
from metrics.strategies import labels_and_predictions, random_case


@given(labels_and_predictions)
def test_agrees_with_the_plain_loop(case):
    assert hamming_loss(*case) == pytest.approx(reference.hamming_loss(*case), abs=1e-12)


def test_agrees_with_scikit_learn():
    Y, scores = random_case(300, 23)
    assert hamming_loss(Y, scores > 0) == pytest.approx(sklearn.metrics.hamming_loss(Y, scores > 0), abs=1e-12)


def test_rows_take_any_label_dtype():
    Y, Y_pred = torch.tensor([[1, 0, 1]]), torch.tensor([[1.0, 1.0, 1.0]])
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.float32):
        assert hamming_rows(Y.to(dtype), Y_pred).item() == pytest.approx(1 / 3)
