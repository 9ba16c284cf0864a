import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given

from ccmn.metrics import hamming_loss, macro_auc, macro_f1, micro_f1
from ccmn.metrics.classification import auc_rows, f1_over, hamming_rows
from metrics import reference
from metrics.strategies import labels_and_predictions, labels_and_scores, random_case


class TestHammingLoss:
    @given(labels_and_predictions)
    def test_agrees_with_reference(self, case):
        assert hamming_loss(*case) == pytest.approx(reference.hamming_loss(*case), abs=1e-12)

    def test_agrees_with_scikit_learn(self):
        Y, scores = random_case(300, 23)
        assert hamming_loss(Y, scores > 0) == pytest.approx(sklearn.metrics.hamming_loss(Y, scores > 0), abs=1e-12)

    def test_rows_accept_any_label_dtype(self):
        Y, Y_pred = torch.tensor([[1, 0, 1]]), torch.tensor([[1.0, 1.0, 1.0]])
        for dtype in (torch.bool, torch.uint8, torch.int64, torch.float32):
            assert hamming_rows(Y.to(dtype), Y_pred).item() == pytest.approx(1 / 3)


class TestF1:
    @given(labels_and_predictions)
    def test_agrees_with_reference(self, case):
        assert micro_f1(*case) == pytest.approx(reference.micro_f1(*case), abs=1e-12)
        assert macro_f1(*case) == pytest.approx(reference.macro_f1(*case), abs=1e-12)

    @pytest.mark.parametrize("density", [0.0, 0.02, 0.4])
    def test_agrees_with_scikit_learn(self, density):
        Y, scores = random_case(60, 12, density=density)
        Y_pred = (scores > 1.5).astype(int)
        for average, metric in (("micro", micro_f1), ("macro", macro_f1)):
            expected = sklearn.metrics.f1_score(Y, Y_pred, average=average, zero_division=0)
            assert metric(Y, Y_pred) == pytest.approx(expected, abs=1e-12)

    def test_zero_without_true_and_predicted_labels(self):
        nothing = np.zeros((3, 2), dtype=int)
        assert micro_f1(nothing, nothing) == macro_f1(nothing, nothing) == 0.0

    def test_leading_dimensions_broadcast(self):
        Y, scores = map(torch.tensor, random_case(20, 5))
        stack = torch.stack([scores > 0, scores > 0.5])
        values = f1_over(Y, stack, dim=(-2, -1))
        torch.testing.assert_close(values, torch.stack([micro_f1(Y, one) for one in stack]))


class TestMacroAUC:
    @given(labels_and_scores)
    def test_agrees_with_reference(self, case):
        assert macro_auc(*case) == pytest.approx(reference.macro_auc(*case), abs=1e-12, nan_ok=True)

    @pytest.mark.parametrize("levels", [None, 2, 5])
    def test_agrees_with_scikit_learn(self, levels):
        case = random_case(200, 17, levels)
        assert macro_auc(*case) == pytest.approx(sklearn.metrics.roc_auc_score(*case, average="macro"), abs=1e-12)

    def test_labels_with_one_class_are_excluded(self):
        Y, scores = random_case(50, 4)
        expected = sklearn.metrics.roc_auc_score(Y[:, 2:], scores[:, 2:])
        Y[:, 0], Y[:, 1] = 0, 1
        assert macro_auc(Y, scores) == pytest.approx(expected, abs=1e-12)

    def test_nan_if_no_label_has_both_classes(self):
        with pytest.warns(UserWarning, match="macro_auc is NaN: no label has positive and negative rows"):
            assert math.isnan(macro_auc([[1, 0], [1, 0]], [[0.1, 0.2], [0.3, 0.4]]))

    def test_leading_dimensions_broadcast(self):
        Y, scores = map(torch.tensor, random_case(30, 4))
        stack = torch.stack([scores, scores.round(), -scores])
        values = auc_rows(Y.mT, stack.mT)
        assert values.shape == (3, 4)
        torch.testing.assert_close(values[0] + values[2], torch.ones(4, dtype=torch.float64))
        torch.testing.assert_close(values.mean(-1), torch.stack([macro_auc(Y, one) for one in stack]))
