import math
import warnings

import pytest
import torch
from hypothesis import given
from sklearn.metrics import roc_auc_score

from ccmn.metrics import auc_rows, macro_auc
from metrics import reference
from metrics.strategies import labels_and_scores, random_case


@given(labels_and_scores)
def test_agrees_with_the_plain_loop(case):
    assert macro_auc(*case) == pytest.approx(reference.macro_auc(*case), abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("levels", [None, 2, 5])
def test_agrees_with_scikit_learn(levels):
    case = random_case(200, 17, levels)
    assert macro_auc(*case) == pytest.approx(roc_auc_score(*case, average="macro"), abs=1e-12)


def test_labels_with_one_class_are_left_out():
    Y, scores = random_case(50, 4)
    expected = roc_auc_score(Y[:, 2:], scores[:, 2:])
    Y[:, 0], Y[:, 1] = 0, 1
    assert macro_auc(Y, scores) == pytest.approx(expected, abs=1e-12)


def test_nan_without_a_warning_where_no_label_has_both_classes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(macro_auc([[1, 0], [1, 0]], [[0.1, 0.2], [0.3, 0.4]]))


def test_leading_dimensions_broadcast():
    Y, scores = map(torch.tensor, random_case(30, 4))
    stack = torch.stack([scores, scores.round(), -scores])
    values = auc_rows(Y.mT, stack.mT)
    assert values.shape == (3, 4)
    torch.testing.assert_close(values[0] + values[2], torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(values.mean(-1), torch.stack([macro_auc(Y, one) for one in stack]))
