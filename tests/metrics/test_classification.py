import math

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given

from ccmn.metrics import hamming_loss, macro_auc, macro_f1, mean_average_precision, micro_f1
from ccmn.noise import ClassConditionalNoise, MissingNoise
from metrics import reference
from metrics.strategies import labels_and_predictions, labels_and_scores, random_case


class TestHammingLoss:
    @given(labels_and_predictions)
    def test_agrees_with_reference(self, case):
        assert hamming_loss(*case) == pytest.approx(reference.hamming_loss(*case), abs=1e-12)

    def test_agrees_with_scikit_learn(self):
        Y, scores = random_case(300, 23)
        assert hamming_loss(Y, scores > 0) == pytest.approx(sklearn.metrics.hamming_loss(Y, scores > 0), abs=1e-12)


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


class TestMacroAUC:
    @given(labels_and_scores)
    def test_agrees_with_reference(self, case):
        assert macro_auc(*case) == pytest.approx(reference.macro_auc(*case), abs=1e-12, nan_ok=True)

    @pytest.mark.parametrize("levels", [None, 2, 5])
    def test_agrees_with_scikit_learn(self, levels):
        case = random_case(200, 17, levels)
        assert macro_auc(*case) == pytest.approx(sklearn.metrics.roc_auc_score(*case, average="macro"), abs=1e-12)

    def test_nan_if_no_label_has_both_classes(self):
        with pytest.warns(UserWarning, match="macro_auc .* is NaN .*: no label has enough positive and negative rows"):
            assert math.isnan(macro_auc([[1, 0], [1, 0]], [[0.1, 0.2], [0.3, 0.4]]))


class TestMeanAveragePrecision:
    @given(labels_and_scores)
    @pytest.mark.filterwarnings("ignore:mean_average_precision cannot")
    def test_agrees_with_reference(self, case):
        expected = reference.mean_average_precision(*case)
        assert mean_average_precision(*case) == pytest.approx(expected, abs=1e-12, nan_ok=True)

    def test_agrees_with_scikit_learn(self):
        Y, scores = random_case(200, 12, levels=20)
        Y[:, 3] = 0
        expected = sklearn.metrics.average_precision_score(np.delete(Y, 3, 1), np.delete(scores, 3, 1))
        assert mean_average_precision(Y, scores) == pytest.approx(expected, abs=1e-12)

    def test_without_positive_rows(self):
        with pytest.warns(UserWarning, match="mean_average_precision .*: no label has enough positive rows") as issued:
            assert math.isnan(mean_average_precision([[0, 0]], [[0.1, 0.2]]))
        assert issued[0].filename == __file__

    def test_labels_without_clear_positives_are_excluded(self):
        Y, scores = random_case(500, 3)
        Y[:, 2] = 0
        Y[0, 2] = 1
        noise = ClassConditionalNoise(0.1, 0.2, n_labels=3)
        found = mean_average_precision(Y, scores, noise=noise)
        first = ClassConditionalNoise(0.1, 0.2, n_labels=2)
        assert found.status == "approximate"
        assert found == pytest.approx(mean_average_precision(Y[:, :2], scores[:, :2], noise=first))
        only_missing = mean_average_precision(Y, scores, noise=MissingNoise(0.5, n_labels=3))
        assert only_missing.status == "approximate"  # one positive row is within two standard errors of 0
