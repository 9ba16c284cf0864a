"""Metrics of label sets and of separate labels: scikit-learn, labels without rows."""

import math

import numpy as np
import pytest
import sklearn.metrics

from ccmn.metrics import hamming_loss, macro_auc, macro_f1, mean_average_precision, micro_f1
from metrics.strategies import random_case


@pytest.mark.parametrize("density", [0.0, 0.02, 0.4])
def test_label_sets_equal_scikit_learn(density):
    Y, scores = random_case(60, 12, density=density)
    Y_pred = (scores > 1.5).astype(int)
    assert hamming_loss(Y, Y_pred) == pytest.approx(sklearn.metrics.hamming_loss(Y, Y_pred), abs=1e-12)
    for average, metric in (("micro", micro_f1), ("macro", macro_f1)):
        expected = sklearn.metrics.f1_score(Y, Y_pred, average=average, zero_division=0)
        assert metric(Y, Y_pred) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("levels", [None, 2, 20])
def test_rankings_of_rows_equal_scikit_learn(levels):
    Y, scores = random_case(200, 17, levels)
    assert macro_auc(Y, scores) == pytest.approx(sklearn.metrics.roc_auc_score(Y, scores, average="macro"), abs=1e-12)
    Y[:, 3] = 0
    expected = sklearn.metrics.average_precision_score(np.delete(Y, 3, 1), np.delete(scores, 3, 1))
    assert mean_average_precision(Y, scores) == pytest.approx(expected, abs=1e-12)


def test_nan_without_the_rows_that_a_label_needs():
    with pytest.warns(UserWarning, match="macro_auc .* is NaN .*: no label has enough positive and negative rows"):
        assert math.isnan(macro_auc([[1, 0], [1, 0]], [[0.1, 0.2], [0.3, 0.4]]))
    with pytest.warns(UserWarning, match="mean_average_precision .*: no label has enough positive rows") as issued:
        assert math.isnan(mean_average_precision([[0, 0]], [[0.1, 0.2]]))
    assert issued[0].filename == __file__
