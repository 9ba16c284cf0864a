import pytest
import sklearn.metrics
import torch
from hypothesis import given

from ccmn.metrics import (
    Ranking,
    average_precision_from,
    coverage,
    coverage_rows,
    one_error,
    ranking_loss,
    ranking_loss_from,
    ranking_loss_rows,
)
from metrics import reference
from metrics.strategies import labels_and_scores, random_case

LEVELS = [None, 2, 5]


@given(labels_and_scores)
def test_ranking_loss_agrees_with_the_plain_loop(case):
    for ties in ("full", "half"):
        assert ranking_loss(*case, ties=ties) == pytest.approx(reference.ranking_loss(*case, ties=ties), abs=1e-12)


@given(labels_and_scores)
def test_coverage_agrees_with_the_plain_loop(case):
    for normalised in (False, True):
        expected = reference.coverage(*case, normalised=normalised)
        assert coverage(*case, normalised=normalised) == pytest.approx(expected, abs=1e-12)


@given(labels_and_scores)
def test_one_error_agrees_with_the_plain_loop(case):
    assert one_error(*case) == pytest.approx(reference.one_error(*case), abs=1e-12)


@pytest.mark.parametrize("levels", LEVELS)
def test_ranking_loss_agrees_with_scikit_learn(levels):
    case = random_case(200, 17, levels)
    assert ranking_loss(*case) == pytest.approx(sklearn.metrics.label_ranking_loss(*case), abs=1e-12)


@pytest.mark.parametrize("levels", LEVELS)
def test_coverage_agrees_with_scikit_learn(levels):
    case = random_case(200, 17, levels)
    assert coverage(*case) == pytest.approx(sklearn.metrics.coverage_error(*case), abs=1e-12)


def test_a_tied_pair_counts_one_or_half():
    Y, scores = [[1, 0]], [[0.3, 0.3]]
    assert ranking_loss(Y, scores) == 1.0
    assert ranking_loss(Y, scores, ties="half") == 0.5


def test_half_ties_lie_between_a_ranking_and_its_reverse():
    Y, scores = random_case(50, 9, levels=3)
    rows = ranking_loss_rows(torch.tensor(Y), torch.tensor(scores), ties="half")
    reverse = ranking_loss_rows(torch.tensor(Y), -torch.tensor(scores), ties="half")
    has_pairs = (Y.sum(1) > 0) & (Y.sum(1) < 9)
    torch.testing.assert_close(rows + reverse, torch.tensor(has_pairs).double())


def test_rows_without_pairs_count_zero_and_stay_in_the_average():
    Y, scores = [[0, 0], [1, 1], [1, 0]], [[0.1, 0.2], [0.1, 0.2], [0.1, 0.2]]
    for ties in ("full", "half"):
        assert ranking_loss(Y, scores, ties=ties) == pytest.approx(1 / 3)


def test_an_empty_row_covers_nothing_even_with_infinite_scores():
    for normalised in (False, True):
        assert coverage([[0, 0]], [[float("inf"), 0.0]], normalised=normalised) == 0.0


def test_normalised_coverage_is_depth_below_the_top_over_q():
    assert coverage([[0, 0, 0, 1]], [[3.0, 2.0, 1.0, 0.0]], normalised=True) == 3 / 4
    assert coverage([[1, 0, 0, 0]], [[3.0, 2.0, 1.0, 0.0]], normalised=True) == 0.0


def test_one_error_averages_over_labels_tied_at_the_top():
    assert one_error([[1, 0, 0]], [[0.5, 0.5, 0.5]]) == pytest.approx(2 / 3)
    assert one_error([[0, 0, 0]], [[0.9, 0.5, 0.1]]) == 1.0


def test_a_single_label_has_no_pairs():
    Y, scores = [[0], [1]], [[0.2], [0.4]]
    assert (ranking_loss(Y, scores), coverage(Y, scores), one_error(Y, scores)) == (0.0, 0.5, 0.5)


def test_counts_are_exact_for_two_hundred_thousand_labels():
    q, half = 200_000, 100_000
    # The upper half in score is negative, so every pair is wrong; then one pair is put right by a swap at the middle.
    Y, scores = torch.arange(q) < half, torch.arange(q, dtype=torch.float64)
    assert ranking_loss_rows(Y, scores).item() == 1.0
    scores[half - 1], scores[half] = half, half - 1
    assert ranking_loss_rows(Y, scores).item() == (half**2 - 1) / half**2
    scores[half - 1] = half - 1
    assert ranking_loss_rows(Y, scores, ties="half").item() == (half**2 - 0.5) / half**2
    assert coverage_rows(Y, scores).item() == q


def test_a_ranking_serves_several_metrics():
    Y, scores = map(torch.tensor, random_case(40, 8, levels=4))
    ranking = Ranking.of(Y, scores)
    for ties in ("full", "half"):
        torch.testing.assert_close(ranking_loss_from(ranking, ties), ranking_loss_rows(Y, scores, ties))


def test_unknown_rule_for_ties():
    with pytest.raises(ValueError, match="ties must be 'full' or 'half'; got 'none'"):
        ranking_loss([[1, 0]], [[0.1, 0.2]], ties="none")


@pytest.mark.parametrize("q", [1, 6, 32])
@pytest.mark.parametrize("way", [Ranking._compare, Ranking._count])
def test_ranks_by_comparison_are_those_by_sorting(way, q):
    """The ways for few labels on an accelerator and on a CPU: the same metrics, ties and all."""
    torch.manual_seed(0)
    Y, scores = torch.randint(0, 2, (40, q)), torch.randn(3, 40, q).round()
    Y[0], scores[:, 1] = 1, 0.0
    compared, by_sort = way(Y, scores), Ranking._sort(Y, scores)
    for ties in ("full", "half"):
        assert torch.equal(ranking_loss_from(compared, ties), ranking_loss_from(by_sort, ties))
    torch.testing.assert_close(average_precision_from(compared), average_precision_from(by_sort), rtol=0, atol=1e-15)
    assert torch.equal(compared.positives.expand(3, 40), by_sort.positives.expand(3, 40))


def test_labels_may_have_more_dimensions_than_scores():
    torch.manual_seed(0)
    Y, scores = torch.randint(0, 2, (3, 40, 6)), torch.randn(40, 6)
    assert torch.equal(ranking_loss_rows(Y, scores)[1], ranking_loss_rows(Y[1], scores))
