"""Metrics with ``noise=``: unbiasedness by enumeration, true labels, standard errors and ranges."""

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from ccmn.metrics import METRICS, Estimate, hamming_loss, macro_auc, macro_f1, mean_average_precision, micro_f1
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise, TransitionNoise
from helpers import Largest
from metrics import reference
from metrics.strategies import Estimated, central_difference, labels_and_predictions, labels_and_scores, make_task
from reference import noisy_vectors

STATUS = {
    "hamming_loss": "unbiased",
    "ranking_loss": "consistent",
    "average_precision": "unbiased",
    "one_error": "unbiased",
    "coverage": "unbiased",
    "micro_f1": "consistent",
    "macro_f1": "consistent",
    "macro_auc": "consistent",
    "mean_average_precision": "consistent",
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))


def second_argument(metric, scores):
    return (scores >= 0).astype(int) if metric.needs == "labels" else scores


def clean_value(metric, Y, scores):
    """Return the value that is estimated: the metric on true labels, pooled over rows for the ranking loss."""
    if metric.name != "ranking_loss":
        return metric.function(Y, second_argument(metric, scores))
    ordered, pairs = np.sum([reference.pair_sums(y, f) for y, f in zip(Y, scores)], axis=0)
    return 1 - ordered / pairs


class TestUnbiased:
    @pytest.mark.parametrize("name", [name for name, status in STATUS.items() if status == "unbiased"])
    def test_status_unbiased_by_enumeration(self, name):
        """Copies of one row, enough for the status "unbiased", over all noisy versions of the row."""
        noise = ClassConditionalNoise([0.1, 0.3, 0.0, 0.2], [0.2, 0.0, 0.3, 0.2])
        metric, copies = METRICS[name], 1000
        for y, f in (([1, 0, 1, 0], [0.3, 0.3, -1.0, 2.0]), ([0, 0, 0, 0], [1.0, 2.0, 0.5, 0.1])):
            other = second_argument(metric, np.tile(f, (copies, 1)))
            mean = 0.0
            for v, w in noisy_vectors(y, noise.rho_pos, noise.rho_neg):
                found = metric.function(np.tile(v, (copies, 1)), other, noise=noise)
                assert found.status == "unbiased"
                mean += w * found.value
            assert mean == pytest.approx(metric.function([y], other[:1]), abs=1e-12)

    def test_transition_matrix(self):
        noise = TransitionNoise([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.0, 0.4, 0.6]])
        scores = np.array([[0.3, 0.3, 0.1], [2.0, 0.0, 1.0], [0.0, 1.0, 2.0]])
        for name in ("hamming_loss", "one_error", "average_precision", "ranking_loss", "coverage"):
            metric, Y = METRICS[name], np.eye(3, dtype=int)
            mean = 0.0
            for classes in itertools.product(range(3), repeat=3):
                found = metric.function(Y[list(classes)], second_argument(metric, scores), noise=noise)
                assert found.status == "unbiased"
                mean += found.value * np.prod([noise.T[true, seen] for true, seen in enumerate(classes)])
            assert mean == pytest.approx(clean_value(metric, Y, scores), abs=1e-12)


class TestCleanLabels:
    zero = staticmethod(lambda q: ClassConditionalNoise(0.0, 0.0, n_labels=q))

    @pytest.mark.filterwarnings("ignore:(macro_auc|mean_average_precision) cannot be estimated")
    @settings(max_examples=50)
    @given(labels_and_scores, labels_and_predictions)
    def test_zero_rates_give_the_metric_on_clean_labels(self, with_scores, with_predictions):
        for metric in METRICS.values():
            Y, other = with_scores if metric.needs == "scores" else with_predictions
            if metric.name == "ranking_loss":
                continue  # pooled, see the next test
            found = metric.function(Y, other, noise=self.zero(Y.shape[1]))
            assert found.value == pytest.approx(metric.function(Y, other), abs=1e-12, nan_ok=True)
            assert found.status == STATUS[metric.name]

    def test_many_labels(self):
        rng = np.random.default_rng(0)
        Y, scores = (rng.random((20, 700)) < 0.3).astype(int), rng.normal(size=(20, 700)).round(2)
        for name in ("average_precision", "coverage"):
            metric = METRICS[name]
            assert metric.function(Y, scores, noise=self.zero(700)).value == pytest.approx(
                metric.function(Y, scores), abs=1e-6 if name == "average_precision" else 1e-9
            )


class TestAccuracy:
    noise = ClassConditionalNoise([0.2, 0.1, 0.3, 0.0], [0.1, 0.3, 0.2, 0.4])

    @every_metric
    def test_clean_value_within_five_standard_errors(self, metric):
        Y, scores = make_task(6000)
        other, Z = second_argument(metric, scores), self.noise.corrupt(Y, random_state=1)
        clean, found = clean_value(metric, Y, scores), metric.function(Z, other, noise=self.noise)
        assert abs(found.value - clean) < 5 * found.se
        assert found.status == STATUS[metric.name]
        assert 0 < found.se < 0.06
        assert abs(metric.function(Z, other) - clean) > found.se  # without noise correction

    @pytest.mark.parametrize("name", ["average_precision", "coverage"])
    def test_approximate_if_variance_is_too_large(self, name):
        metric, noise = METRICS[name], ClassConditionalNoise(0.3, 0.3, n_labels=12)
        Y, scores = make_task(2000, 12)
        Z = noise.corrupt(Y, random_state=1)
        clean, found = metric.function(Y, scores), metric.function(Z, scores, noise=noise)
        assert found.status == "approximate"
        assert abs(found.value - clean) < 0.1 * abs(metric.function(Z, scores) - clean) + 2 * found.se
        assert 0 < found.se < 0.3


class TestStandardErrors:
    noise = ClassConditionalNoise([0.2, 0.1, 0.3, 0.05], [0.1, 0.2, 0.2, 0.25])

    @every_metric
    @pytest.mark.parametrize("n", [300, 3000], ids=["approximate", "unbiased"])
    @pytest.mark.parametrize("unobserved", [False, True])
    def test_uncertain_rates_by_delta_method(self, metric, n, unobserved):
        """Compare with central differences, for one uncertain rate at a time and for all rates."""
        Y, scores = make_task(n)
        other, Z = second_argument(metric, scores), self.noise.corrupt(Y, random_state=1).astype(float)
        if unobserved:
            Z[::7, 1] = np.nan
        rows = metric.function(Z, other, noise=self.noise).se
        slopes = central_difference(lambda noise: metric.function(Z, other, noise=noise).value, self.noise)
        for se in (np.eye(8)[3] * 0.5, np.eye(8)[5] * 0.5, np.linspace(0.01, 0.05, 8)):
            found = metric.function(Z, other, noise=Estimated(self.noise, *se.reshape(2, 4))).se
            expected = (se.reshape(2, 4) * slopes) ** 2
            assert found**2 - rows**2 == pytest.approx(expected.sum(), rel=1e-3, abs=1e-9)

    @every_metric
    def test_agrees_with_jackknife_over_rows(self, metric):
        """The jackknife leaves out one row at a time."""
        n = 1200
        Y, scores = make_task(n)
        other, Z = second_argument(metric, scores), self.noise.corrupt(Y, random_state=1)
        found = metric.function(Z, other, noise=self.noise)
        rows = np.arange(0, n, 16)
        without = [metric.function(np.delete(Z, i, 0), np.delete(other, i, 0), noise=self.noise).value for i in rows]
        jackknife = ((n - 1) ** 2 / n * np.mean((np.array(without) - found.value) ** 2)) ** 0.5
        # The jackknife uses a sample of the rows, hence the tolerance.
        assert found.se == pytest.approx(jackknife, rel=0.3)

    def test_status_with_estimated_rates(self):
        Y, scores = make_task(3000)
        h = (scores >= 0).astype(int)
        for se, status in ((0.0, "unbiased"), (0.01, "approximate")):
            assert (
                hamming_loss(Y, h, noise=Estimated(self.noise, np.zeros(4), np.array([0, 0, 0, se]))).status == status
            )

    def test_gradient_modes_of_the_caller(self):
        Y, scores = make_task(300)
        with torch.no_grad():
            without = [
                metric.function(Y, second_argument(metric, scores), noise=self.noise) for metric in METRICS.values()
            ]
        with torch.inference_mode():
            given = torch.tensor(Y), torch.tensor(scores)
            for metric, expected in zip(METRICS.values(), without):
                other = (given[1] >= 0).long() if metric.needs == "labels" else given[1]
                assert metric.function(given[0], other, noise=self.noise) == expected


class TestNotObserved:
    noise = ClassConditionalNoise([0.2, 0.1, 0.3, 0.05], [0.1, 0.2, 0.2, 0.25])

    def masked(self):
        Y, scores = make_task(600)
        Z = self.noise.corrupt(Y, random_state=1).astype(float)
        Z[np.random.default_rng(0).random(Z.shape) < 0.1] = np.nan
        return Z, scores

    @pytest.mark.parametrize("name", ["one_error", "average_precision", "coverage"])
    def test_incomplete_rows_are_excluded_by_row_metrics(self, name):
        Z, scores = self.masked()
        whole = ~np.isnan(Z).any(1)
        found = METRICS[name].function(Z, scores, noise=self.noise)
        expected = METRICS[name].function(Z[whole], scores[whole], noise=self.noise)
        if found.status == "unbiased":
            assert found.value == pytest.approx(expected.value, abs=1e-12)
        else:  # incomplete rows still enter the isotonic regression
            assert found.value == pytest.approx(expected.value, abs=0.1)

    def test_unobserved_labels_are_excluded(self):
        Z, scores = (part[:200] for part in self.masked())
        h, p = (scores >= 0).astype(int), self.noise.debias(Z)
        seen = ~np.isnan(Z)
        f1 = [reference.corrected_f1(p[seen[:, j], j], h[seen[:, j], j]) for j in range(4)]
        assert macro_f1(Z, h, noise=self.noise).value == pytest.approx(np.mean(f1), abs=1e-12)
        assert micro_f1(Z, h, noise=self.noise).value == pytest.approx(
            reference.corrected_f1(p[seen], h[seen]), abs=1e-12
        )
        sums = [reference.pair_sums(p[seen[:, j], j], scores[seen[:, j], j]) for j in range(4)]
        auc = np.mean([ordered / pairs for ordered, pairs in sums])
        assert macro_auc(Z, scores, noise=self.noise).value == pytest.approx(auc, abs=1e-12)
        wrong = p * (1 - h) + (1 - p) * h
        assert hamming_loss(Z, h, noise=self.noise).value == pytest.approx(np.nanmean(wrong), abs=1e-12)


class TestEdgeCases:
    @pytest.mark.filterwarnings("ignore:.*cannot be estimated")
    def test_negative_number_of_positives(self):
        noise = ClassConditionalNoise(0.1, 0.4, n_labels=2)
        nothing, h = np.zeros((30, 2)), np.ones((30, 2), dtype=int)
        assert np.isnan(micro_f1(nothing, h, noise=noise).value)
        assert (macro_f1(nothing, h, noise=noise), macro_f1(nothing, h, noise=noise).status) == (0.0, "approximate")
        assert np.isnan(macro_auc(nothing, np.random.default_rng(0).normal(size=(30, 2)), noise=noise).value)

    @pytest.mark.parametrize("metric", [macro_auc, mean_average_precision])
    def test_labels_without_clear_positives_are_excluded(self, metric):
        Y, scores = make_task(500, 3)
        noise = ClassConditionalNoise([0.1, 0.1, 0.3], [0.1, 0.1, 0.45])
        Z = noise.corrupt(Y, random_state=0)
        Z[:, 2] = np.random.default_rng(0).random(500) < 0.45  # no true label
        part = ClassConditionalNoise(noise.rho_pos[:2], noise.rho_neg[:2])
        found, expected = metric(Z, scores, noise=noise), metric(Z[:, :2], scores[:, :2], noise=part)
        assert (found.value, found.se) == pytest.approx((expected.value, expected.se), abs=1e-12)
        assert (found.status, expected.status) == ("approximate", "consistent")
        Z[:, 2] = np.arange(500) == 0  # one positive row is within two standard errors of 0
        assert metric(Z, scores, noise=MissingNoise(0.5, n_labels=3)).status == "approximate"

    @every_metric
    def test_errors(self, metric):
        Y, other = [[1, 0]], [[1, 0]]
        noise = ClassConditionalNoise(0.1, 0.1, n_labels=4)
        with pytest.raises(ValueError, match="must have 4 labels"):
            metric.function(Y, other, noise=noise)
        for wrong in ("estimate", ClassConditionalNoise, 0.2):
            with pytest.raises(TypeError, match=r"noise must be a noise model.*or the rates that"):
                metric.function(Y, other, noise=wrong)
        with pytest.raises(ValueError, match=r"Y must be 0 or 1; got 0\.5"):
            metric.function([[0.5, 1]], other, noise=ClassConditionalNoise(0.1, 0.1, n_labels=2))


EXTREME_NOISE = {
    "missing 0.95": ClassConditionalNoise(0.95, 0, n_labels=4),
    "missing 0.999": MissingNoise(0.999, n_labels=4),
    "added 0.95": PartialNoise(0.95, n_labels=4),
    "added 0.999": PartialNoise(0.999, n_labels=4),
    "both 0.99": ClassConditionalNoise(0.49, 0.5, n_labels=4),
    "transition": TransitionNoise(0.04 * np.eye(4) + 0.24),
}


class TestNotEstimable:
    @every_metric
    @pytest.mark.parametrize("noise", EXTREME_NOISE.values(), ids=list(EXTREME_NOISE))
    @pytest.mark.parametrize("n", [1, 2, 5, 200])
    def test_nan_has_nan_error_and_one_warning(self, metric, noise, n):
        rng = np.random.default_rng(0)
        for share in (0.0, 0.3, 1.0, np.nan):
            scores = rng.normal(size=(n, 4))
            labels = np.eye(4)[rng.integers(4, size=n)] if noise.kind == "transition" else rng.random((n, 4)) < share
            Y = np.where(np.isnan(share), np.nan, labels)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = metric.function(Y, second_argument(metric, scores), noise=noise)
            if np.isnan(found.value):
                assert np.isnan(found.se)
                assert [metric.name in str(warning.message) for warning in caught] == [True]
            else:
                assert not np.isnan(share)
                assert not caught
                assert np.isnan(found.se) == (n == 1)


@every_metric
@pytest.mark.parametrize("noise", [ClassConditionalNoise, MissingNoise])
def test_memory_is_linear_in_rows_and_labels(metric, noise):
    rng = np.random.default_rng(0)
    for n, q in ((8, 3000), (3000, 4)):
        scores = rng.normal(size=(n, q))
        rates = (0.1, 0.1) if noise is ClassConditionalNoise else (0.1,)
        with Largest() as largest:
            metric.function(scores > 1, second_argument(metric, scores), noise=noise(*rates, n_labels=q))
        assert largest.entries <= (n + 1) * (q + 1)


class TestEstimate:
    def test_is_a_float(self):
        found = Estimate(0.25, 0.1, "unbiased")
        assert isinstance(found, float)
        assert (found.value, found.se, found.status) == (0.25, 0.1, "unbiased")
        assert type(found.value) is type(found + 1) is float
        assert (found + 1, found < 0.3, f"{found:.1f}") == (1.25, True, "0.2")
        assert repr(found) == "Estimate(value=0.25, se=0.1, status='unbiased')"
        assert np.mean([found, 0.75]) == 0.5

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))])
    @pytest.mark.parametrize("value", [0.25, np.nan])
    def test_copies_and_pickles(self, duplicate, value):
        found = duplicate(Estimate(value, 0.1, "consistent"))
        assert type(found) is Estimate
        assert repr(found) == repr(Estimate(value, 0.1, "consistent"))
