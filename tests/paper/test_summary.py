"""Summaries of artificial results, and the statistical tests."""

import numpy as np
import pytest
import scipy.stats

from ccmn.paper.result_store import Cell, Result
from ccmn.paper.summary import friedman, paired_t_test, summarize
from ccmn.paper.tables import AS_PRINTED, printed, printed_values


def results(values, table="table1", protocol="literal", dataset="yeast", metric="hamming_loss", configuration="{}"):
    """Return results from method -> value of each repeat, with the same values for both selections."""
    return [
        Result(
            Cell(table, protocol, dataset, method, repeat, 100, configuration),
            {"values": {s: {metric: value} for s in ("clean", "noisy")}},
            seconds=1.0,
            machine={"device": "cpu"},
        )
        for method, runs in values.items()
        for repeat, value in enumerate(runs)
    ]


TABLE = {
    "unbiased-hamming-square": [0.20, 0.21, 0.22],
    "unbiased-hamming-hinge": [0.21, 0.22, 0.24],
    "plain-hamming-square": [0.30, 0.31, 0.33],
    "plain-hamming-hinge": [0.30, 0.20, 0.24],
}


def test_means_best_entries_and_marks():
    clean, noisy = summarize(results(TABLE))
    assert (clean.selection, noisy.selection) == ("clean", "noisy")
    entry = clean.entry("unbiased-hamming-square", "yeast", "hamming_loss")
    assert entry.mean == pytest.approx(0.21)
    assert entry.std == pytest.approx(0.01)
    assert entry.best
    assert entry.mark == ""
    marks = {e.method: e.mark for e in clean.entries}
    assert marks["plain-hamming-square"] == "better"  # all three differences are about 0.1
    assert marks["plain-hamming-hinge"] == ""  # the differences vary too much
    assert clean.methods == list(TABLE)
    assert clean.wins() == (2, 0, 0)  # unbiased against plain losses


def test_comparison_with_the_printed_value():
    (clean, _) = summarize(results(TABLE))
    printed = printed_values()["table1", "yeast", "unbiased-hamming-square", "hamming_loss"].mean
    entry = clean.entry("unbiased-hamming-square", "yeast", "hamming_loss")
    assert entry.gain == pytest.approx(printed - 0.21)
    assert entry.at_level
    (worse, _) = summarize(results({"unbiased-hamming-square": [printed + 0.021]}))
    assert worse.near_printed() == (0, 0, 1)
    (just, _) = summarize(results({"unbiased-hamming-square": [printed + 0.02]}))
    assert just.near_printed() == (1, 1, 1)
    (better, _) = summarize(results({"unbiased-hamming-square": [printed - 0.021]}))
    assert better.near_printed() == (0, 1, 1)


def test_two_forms_of_a_dataset():
    """The wrong cut is compared with the printed values, the correct one is counted in everything else."""
    wrong = {"unbiased-hamming-square": [0.058] * 3, "plain-hamming-square": [0.01] * 3}
    (clean, _) = summarize(results(TABLE, dataset="enron") + results(wrong, dataset="enron_as_printed"))
    assert clean.near_printed() == (1, 1, 1)
    assert clean.only("enron").near_printed() == (0, 0, 2)
    assert clean.wins() == (2, 0, 0)
    assert clean.only("enron_as_printed").wins() == (0, 0, 1)
    assert clean.ranking is None  # one dataset and metric


def test_rivals_of_the_best_proposed_method():
    values = {
        "unbiased-hamming-square": [0.20, 0.21, 0.22],
        "unbiased-ranking-sigmoid": [0.30, 0.31, 0.32],
        "unbiased-hamming-square-estimated": [0.0, 0.0, 0.0],
        "PMLNI": [0.30, 0.311, 0.32],  # significantly worse
        "fPML": [0.20, 0.28, 0.19],  # worse, not significantly
        "PARMAP": [0.10, 0.11, 0.121],  # significantly better
        "ridge": [0.9, 0.9, 0.9],
    }
    (clean, _) = summarize(results(values, table="table3", protocol="injected"))
    assert clean.rivals() == (2, 1, 1, 3)


def test_ranks_over_data_sets_and_metrics():
    found = []
    for dataset in ("yeast", "scene"):
        found += results(TABLE, dataset=dataset)
    (clean, _) = summarize(found)
    at = dict(zip(clean.ranking.methods, clean.ranking.ranks))
    assert at["unbiased-hamming-square"] == 1
    assert at["plain-hamming-square"] == 4
    assert clean.ranking.n == 2


def test_results_of_two_configurations_are_rejected():
    found = results(TABLE) + results(TABLE, configuration='{"epochs": 3}')
    with pytest.raises(ValueError, match="two configurations"):
        summarize(found)


def test_printed_values_of_one_cell():
    found = printed("table1", "yeast", "unbiased-hamming-square")
    assert found == {"hamming_loss": 0.218, "ranking_loss": 0.210, "average_precision": 0.714}
    for name in AS_PRINTED:
        assert printed("table2", name, "plain-hamming-hinge") == printed(
            "table2", name.removesuffix("_as_printed"), "plain-hamming-hinge"
        )
    with pytest.raises(ValueError, match="table1 has no printed values of method 'ridge' on dataset 'yeast'; it has"):
        printed("table1", "yeast", "ridge")
    with pytest.raises(ValueError, match="unknown table"):
        printed("table9", "yeast", "ridge")


# -- Statistical tests


def test_paired_t_test_equals_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5))
    assert paired_t_test(a, b) == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue)


def test_friedman_equals_scipy_without_ties():
    rng = np.random.default_rng(1)
    table = rng.normal(size=(12, 4))
    found = friedman(table, "abcd")
    chi2 = scipy.stats.friedmanchisquare(*table.T).statistic
    assert found.statistic == pytest.approx(11 * chi2 / (12 * 3 - chi2))


def test_direction_of_each_row():
    table = np.array([[0.1, 0.2], [0.9, 0.8], [0.3, 0.4]])
    assert friedman(table, "ab", greater_is_better=[False, True, False]).ranks == (1.0, 2.0)


def test_critical_values_of_the_bonferroni_dunn_test():
    """Compare with the published critical values q_0.05 for k methods."""
    for k, q in {2: 1.960, 3: 2.241, 4: 2.394, 5: 2.498, 6: 2.576, 10: 2.773}.items():
        table = np.random.default_rng(k).normal(size=(9, k))
        found = friedman(table, [str(i) for i in range(k)])
        assert found.critical_difference / np.sqrt(k * (k + 1) / (6 * 9)) == pytest.approx(q, abs=6e-4)
