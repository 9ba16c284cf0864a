import numpy as np
import pytest
import torch
from hypothesis import given
from sklearn.metrics import f1_score

from ccmn.metrics import f1_over, macro_f1, micro_f1
from metrics import reference
from metrics.strategies import labels_and_predictions, random_case


@given(labels_and_predictions)
def test_agree_with_the_plain_loops(case):
    assert micro_f1(*case) == pytest.approx(reference.micro_f1(*case), abs=1e-12)
    assert macro_f1(*case) == pytest.approx(reference.macro_f1(*case), abs=1e-12)


@pytest.mark.parametrize("density", [0.0, 0.02, 0.4])
def test_agree_with_scikit_learn(density):
    Y, scores = random_case(60, 12, density=density)
    Y_pred = (scores > 1.5).astype(int)
    assert micro_f1(Y, Y_pred) == pytest.approx(f1_score(Y, Y_pred, average="micro", zero_division=0), abs=1e-12)
    assert macro_f1(Y, Y_pred) == pytest.approx(f1_score(Y, Y_pred, average="macro", zero_division=0), abs=1e-12)


def test_nothing_true_and_nothing_predicted_counts_zero():
    nothing = np.zeros((3, 2), dtype=int)
    assert micro_f1(nothing, nothing) == macro_f1(nothing, nothing) == 0.0


def test_leading_dimensions_broadcast():
    Y, scores = map(torch.tensor, random_case(20, 5))
    stack = torch.stack([scores > 0, scores > 0.5])
    values = f1_over(Y, stack, dim=(-2, -1))
    torch.testing.assert_close(values, torch.stack([micro_f1(Y, one) for one in stack]))
