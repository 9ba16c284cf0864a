import pytest
import sklearn.metrics
import torch
from hypothesis import given

from ccmn.metrics import average_precision, coverage, one_error, ranking_loss
from ccmn.metrics.ranking_metrics import (
    Ranking,
    average_precision_from,
    coverage_rows,
    ranking_loss_from,
    ranking_loss_rows,
)
from metrics import reference
from metrics.strategies import labels_and_scores, random_case

LEVELS = [None, 2, 5]


@given(labels_and_scores)
def test_ranking_loss_agrees_with_reference(case):
    for ties in ("full", "half"):
        assert ranking_loss(*case, ties=ties) == pytest.approx(reference.ranking_loss(*case, ties=ties), abs=1e-12)


@given(labels_and_scores)
def test_coverage_agrees_with_reference(case):
    for normalized in (False, True):
        expected = reference.coverage(*case, normalized=normalized)
        assert coverage(*case, normalized=normalized) == pytest.approx(expected, abs=1e-12)


@given(labels_and_scores)
def test_one_error_agrees_with_reference(case):
    assert one_error(*case) == pytest.approx(reference.one_error(*case), abs=1e-12)


@pytest.mark.parametrize("levels", LEVELS)
def test_ranking_loss_agrees_with_scikit_learn(levels):
    case = random_case(200, 17, levels)
    assert ranking_loss(*case) == pytest.approx(sklearn.metrics.label_ranking_loss(*case), abs=1e-12)


@pytest.mark.parametrize("levels", LEVELS)
def test_coverage_agrees_with_scikit_learn(levels):
    case = random_case(200, 17, levels)
    assert coverage(*case) == pytest.approx(sklearn.metrics.coverage_error(*case), abs=1e-12)


def test_weight_of_tied_pairs():
    Y, scores = [[1, 0]], [[0.3, 0.3]]
    assert ranking_loss(Y, scores) == 1.0
    assert ranking_loss(Y, scores, ties="half") == 0.5


def test_half_ties_of_ranking_and_reverse_sum_to_one():
    Y, scores = random_case(50, 9, levels=3)
    rows = ranking_loss_rows(torch.tensor(Y), torch.tensor(scores), ties="half")
    reverse = ranking_loss_rows(torch.tensor(Y), -torch.tensor(scores), ties="half")
    has_pairs = (Y.sum(1) > 0) & (Y.sum(1) < 9)
    torch.testing.assert_close(rows + reverse, torch.tensor(has_pairs).double())


def test_rows_without_pairs_count_zero():
    Y, scores = [[0, 0], [1, 1], [1, 0]], [[0.1, 0.2], [0.1, 0.2], [0.1, 0.2]]
    for ties in ("full", "half"):
        assert ranking_loss(Y, scores, ties=ties) == pytest.approx(1 / 3)


def test_coverage_of_row_without_labels_is_zero():
    for normalized in (False, True):
        assert coverage([[0, 0]], [[float("inf"), 0.0]], normalized=normalized) == 0.0


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


def test_labels_with_more_dimensions_than_scores():
    torch.manual_seed(0)
    Y, scores = torch.randint(0, 2, (3, 40, 6)), torch.randn(40, 6)
    assert torch.equal(ranking_loss_rows(Y, scores)[1], ranking_loss_rows(Y[1], scores))


@given(labels_and_scores)
def test_average_precision_agrees_with_reference(case):
    assert average_precision(*case) == pytest.approx(reference.average_precision(*case), abs=1e-12)


@pytest.mark.parametrize("levels", LEVELS)
def test_average_precision_agrees_with_scikit_learn(levels):
    case = random_case(200, 17, levels)
    expected = sklearn.metrics.label_ranking_average_precision_score(*case)
    assert average_precision(*case) == pytest.approx(expected, abs=1e-12)
