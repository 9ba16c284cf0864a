"""Tests of significance against scipy, textbook values and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from ccmn.experiments.statistics import average_ranks, friedman, paired_t_test


def test_paired_t_test_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5))
    assert paired_t_test(a, b) == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue)


def test_differences_without_spread():
    assert paired_t_test([0.1, 0.2], [0.1, 0.2]) == 1
    assert paired_t_test([0.1, 0.2], [0.2, 0.3]) == 0
    assert paired_t_test([0.1], [0.9]) == 1


def test_average_ranks_by_hand():
    np.testing.assert_allclose(average_ranks(np.array([[0.1, 0.2, 0.3], [0.2, 0.2, 0.1]])), [1.75, 2.25, 2.0])


def test_friedman_is_scipys_where_there_are_no_ties():
    rng = np.random.default_rng(1)
    table = rng.normal(size=(12, 4))
    found = friedman(table, "abcd")
    chi2 = scipy.stats.friedmanchisquare(*table.T).statistic
    assert found.statistic == pytest.approx(11 * chi2 / (12 * 3 - chi2))


def test_the_direction_of_each_row():
    table = np.array([[0.1, 0.2], [0.9, 0.8], [0.3, 0.4]])
    assert friedman(table, "ab", greater_is_better=[False, True, False]).ranks == (1.0, 2.0)


def test_critical_values_of_the_two_tailed_bonferroni_dunn_test():
    """q_0.05 as printed in tables of this field: 1.960, 2.241, 2.394, 2.498, 2.576 ... for 2, 3, ... methods."""
    for k, q in {2: 1.960, 3: 2.241, 4: 2.394, 5: 2.498, 6: 2.576, 10: 2.773}.items():
        table = np.random.default_rng(k).normal(size=(9, k))
        found = friedman(table, [str(i) for i in range(k)])
        assert found.critical_difference / np.sqrt(k * (k + 1) / (6 * 9)) == pytest.approx(q, abs=6e-4)


def test_all_rows_alike():
    found = friedman([[1, 2], [1, 2], [1, 2]], "ab")
    assert found.statistic == np.inf
    assert found.p_value == 0


def test_too_little_to_rank():
    with pytest.raises(ValueError, match="two rows and two methods"):
        friedman([[1, 2]], "ab")
