"""Metrics without noise: reference implementations, scikit-learn, ties, and rows of a stack of models."""

import math
from functools import partial

import pytest
import sklearn.metrics
import torch
from hypothesis import given

from ccmn.metrics import METRICS, coverage, macro_auc, macro_f1, mean_average_precision, micro_f1, ranking_loss
from ccmn.metrics.ranking_metrics import Ranking, average_precision_from, coverage_rows, ranking_loss_from
from metrics import reference
from metrics.strategies import labels_and_scores, random_case


def ranking_loss_rows(Y, scores, ties="full"):
    return ranking_loss_from(Ranking.of(Y, scores), ties)


every_rows = pytest.mark.parametrize(
    "rows", [ranking_loss_rows, lambda Y, f: average_precision_from(Ranking.of(Y, f)), coverage_rows]
)


@given(labels_and_scores)
def test_options_equal_the_reference(case):
    for metric, options in ((ranking_loss, {"ties": "half"}), (coverage, {"normalized": True})):
        expected = getattr(reference, metric.__name__)(*case, **options)
        assert metric(*case, **options) == pytest.approx(expected, abs=1e-12)


def f1(average):
    return partial(sklearn.metrics.f1_score, average=average, zero_division=0)


SKLEARN = {
    "hamming_loss": sklearn.metrics.hamming_loss,
    "micro_f1": f1("micro"),
    "macro_f1": f1("macro"),
    "macro_auc": sklearn.metrics.roc_auc_score,
    "mean_average_precision": sklearn.metrics.average_precision_score,
    "ranking_loss": sklearn.metrics.label_ranking_loss,
    "coverage": sklearn.metrics.coverage_error,
    "average_precision": sklearn.metrics.label_ranking_average_precision_score,
}


@pytest.mark.parametrize("levels", [None, 2, 20])
@pytest.mark.parametrize("name", SKLEARN)
def test_equal_to_scikit_learn(name, levels):
    metric = METRICS[name]
    Y, scores = random_case(200, 17, levels)
    other = (scores > 0.6).astype(int) if metric.needs == "labels" else scores
    assert metric.function(Y, other) == pytest.approx(SKLEARN[name](Y, other), abs=1e-12)


def test_labels_without_positive_rows():
    Y, scores = random_case(60, 5)
    Y[:, 3], kept = 0, [0, 1, 2, 4]
    assert mean_average_precision(Y, scores) == pytest.approx(mean_average_precision(Y[:, kept], scores[:, kept]))
    for average, metric in (("micro", micro_f1), ("macro", macro_f1)):
        assert metric(Y, 0 * Y) == f1(average)(Y, 0 * Y) == 0
    with pytest.warns(UserWarning, match="macro_auc .* is NaN .*: no label has enough positive and negative rows"):
        assert math.isnan(macro_auc([[1, 0], [1, 0]], [[0.1, 0.2], [0.3, 0.4]]))
    with pytest.warns(UserWarning, match="mean_average_precision .*: no label has enough positive rows") as issued:
        assert math.isnan(mean_average_precision([[0, 0]], [[0.1, 0.2]]))
    assert issued[0].filename == __file__


def test_counts_are_exact_for_many_labels():
    q, half = 200_000, 100_000
    # The upper half of the scores is negative, so every pair is wrong. A swap in the middle corrects one pair.
    Y, scores = torch.arange(q) < half, torch.arange(q, dtype=torch.float64)
    assert ranking_loss_rows(Y, scores).item() == 1.0
    scores[half - 1], scores[half] = half, half - 1
    assert ranking_loss_rows(Y, scores).item() == (half**2 - 1) / half**2
    scores[half - 1] = half - 1
    assert ranking_loss_rows(Y, scores, ties="half").item() == (half**2 - 0.5) / half**2
    assert coverage_rows(Y, scores).item() == q


def test_unknown_ties():
    with pytest.raises(ValueError, match="ties must be 'full' or 'half'; got 'none'"):
        ranking_loss([[1, 0]], [[0.1, 0.2]], ties="none")


@pytest.mark.parametrize("q", [1, 6, 32])
def test_pairwise_ranks_equal_sorted_ranks(q):
    torch.manual_seed(0)
    Y, scores = torch.randint(0, 2, (40, q)), torch.randn(3, 40, q).round()
    Y[0], scores[:, 1] = 1, 0.0
    compared, by_sort = Ranking._compare(Y, scores), Ranking.of(Y, scores)
    for ties in ("full", "half"):
        assert torch.equal(ranking_loss_from(compared, ties), ranking_loss_from(by_sort, ties))
    torch.testing.assert_close(average_precision_from(compared), average_precision_from(by_sort), rtol=0, atol=1e-15)
    assert torch.equal(compared.positives.expand(3, 40), by_sort.positives.expand(3, 40))


@every_rows
def test_rows_broadcast_over_leading_dimensions(rows):
    Y, scores = map(torch.tensor, random_case(10, 6, levels=4))
    generator = torch.Generator().manual_seed(0)
    stack = torch.stack([scores, -scores, scores.flip(-1)])
    targets = torch.stack([Y, Y[torch.randperm(10, generator=generator)], Y])
    for given_Y, given_other in ((Y, stack), (targets, stack), (targets, stack[0]), (targets[:, :1], stack)):
        one_by_one = [rows(y, o) for y, o in zip(*torch.broadcast_tensors(given_Y, given_other))]
        torch.testing.assert_close(rows(given_Y, given_other), torch.stack(one_by_one), equal_nan=True)
    torch.testing.assert_close(rows(Y[0], stack[0, 0]), rows(Y[:1], stack[0, :1])[0], equal_nan=True)


@every_rows
def test_rows_do_not_synchronize_with_the_device(rows):
    # Tensors on "meta" have no values, so reading one fails.
    Y, other = torch.empty(3, 4, 5, dtype=torch.bool, device="meta"), torch.empty(3, 4, 5, device="meta")
    assert rows(Y, other).shape == (3, 4)
