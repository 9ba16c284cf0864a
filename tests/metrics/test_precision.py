import pytest
import sklearn.metrics
import torch
from hypothesis import given

from ccmn.metrics import Ranking, average_precision, average_precision_from, average_precision_rows
from metrics import reference
from metrics.strategies import labels_and_scores, random_case


@given(labels_and_scores)
def test_agrees_with_the_plain_loop(case):
    assert average_precision(*case) == pytest.approx(reference.average_precision(*case), abs=1e-12)


@pytest.mark.parametrize("levels", [None, 2, 5])
def test_agrees_with_scikit_learn(levels):
    case = random_case(200, 17, levels)
    expected = sklearn.metrics.label_ranking_average_precision_score(*case)
    assert average_precision(*case) == pytest.approx(expected, abs=1e-12)


def test_empty_and_full_rows_count_one():
    assert average_precision([[0, 0], [1, 1]], [[0.1, 0.2], [0.5, 0.5]]) == 1.0


def test_from_a_ranking_at_hand():
    Y, scores = map(torch.tensor, random_case(40, 8, levels=4))
    torch.testing.assert_close(average_precision_from(Ranking.of(Y, scores)), average_precision_rows(Y, scores))


def test_two_hundred_thousand_labels():
    q = 200_000
    Y, scores = torch.zeros(q), torch.arange(q, 0, -1.0)
    Y[[0, q - 1]] = 1
    assert average_precision_rows(Y, scores).item() == (1 + 2 / q) / 2
