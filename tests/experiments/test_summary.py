"""Summaries of made-up results whose answers can be told by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn.experiments.cells import Cell
from ccmn.experiments.published import published
from ccmn.experiments.store import Result
from ccmn.experiments.summary import summarise


def results(values, table="table1", protocol="literal", dataset="yeast", metric="hamming_loss", recipe="{}"):
    """Method -> value of each repeat, the same for both selections."""
    return [
        Result(
            Cell(table, protocol, dataset, method, repeat, 100, recipe),
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


def test_means_best_and_marks():
    clean, noisy = summarise(results(TABLE))
    assert (clean.selection, noisy.selection) == ("clean", "noisy")
    entry = clean.entry("unbiased-hamming-square", "yeast", "hamming_loss")
    assert entry.mean == pytest.approx(0.21)
    assert entry.std == pytest.approx(0.01)
    assert entry.best
    assert entry.mark == ""
    marks = {e.method: e.mark for e in clean.entries}
    assert marks["plain-hamming-square"] == "better"  # all three differences are about 0.1
    assert marks["plain-hamming-hinge"] == ""  # the spread is too wide to tell
    assert clean.methods == list(TABLE)


def test_a_rival_can_be_significantly_better():
    (clean, _) = summarise(results({"unbiased-hamming-square": [0.3, 0.31, 0.3], "ridge": [0.1, 0.11, 0.101]}))
    assert clean.entry("ridge", "yeast", "hamming_loss").mark == "worse"


def test_greater_is_better_turns_everything_round():
    (clean, _) = summarise(results(TABLE, metric="average_precision"))
    assert clean.entry("plain-hamming-square", "yeast", "average_precision").best
    assert clean.wins() == (0, 0, 2)


def test_wins_of_unbiased_against_plain():
    (clean, _) = summarise(results(TABLE))
    assert clean.wins() == (2, 0, 0)
    assert [d.significant for d in clean.duels] == [True, False]


def test_the_difference_to_the_printed_cell():
    (clean, _) = summarise(results(TABLE))
    printed = published()["table1", "yeast", "unbiased-hamming-square", "hamming_loss"].mean
    entry = clean.entry("unbiased-hamming-square", "yeast", "hamming_loss")
    assert entry.gain == pytest.approx(printed - 0.21)
    assert entry.at_level
    (worse, _) = summarise(results({"unbiased-hamming-square": [printed + 0.021]}))
    assert worse.near_printed() == (0, 1)
    (just, _) = summarise(results({"unbiased-hamming-square": [printed + 0.02]}))
    assert just.near_printed() == (1, 1)


def test_ranks_over_data_sets_and_metrics():
    found = []
    for dataset in ("yeast", "scene"):
        found += results(TABLE, dataset=dataset)
    (clean, _) = summarise(found)
    at = dict(zip(clean.ranking.methods, clean.ranking.ranks))
    assert at["unbiased-hamming-square"] == 1
    assert at["plain-hamming-square"] == 4
    assert clean.ranking.n == 2


def test_two_recipes_are_not_mixed():
    found = results(TABLE) + results(TABLE, recipe='{"epochs": 3}')
    with pytest.raises(ValueError, match="two recipes"):
        summarise(found)


def test_failures_are_named_and_counted_as_nothing():
    failed = Result(Cell("table1", "literal", "yeast", "ridge", 0, 100, "{}"), error="ValueError: no")
    (clean, _) = summarise([*results(TABLE), failed])
    assert clean.failures == ("yeast ridge 0: ValueError: no",)
    assert "ridge" not in clean.methods


def test_the_printed_tables():
    counts = dict(zip(*np.unique([key[0] for key in published()], return_counts=True)))
    assert counts == {"table1": 240, "table2": 240, "table3": 168, "journal1": 320, "journal2": 224}
