from __future__ import annotations

import numpy as np
import pytest

from ccmn.report.facts.data import data_facts


def test_counts_as_loops_do():
    rng = np.random.default_rng(0)
    Y = rng.choice([0.0, 1.0, np.nan], size=(40, 5), p=[0.6, 0.2, 0.2])
    facts = data_facts("some", 7, Y, list("abcde"))
    assert (facts.n, facts.d, facts.q) == (40, 7, 5)
    for j, label in enumerate(facts.labels):
        assert label.name == "abcde"[j]
        assert label.given == sum(value == 1 for value in Y[:, j])
        assert label.observed == sum(value in (0, 1) for value in Y[:, j])
        assert label.share == label.given / label.observed
    assert facts.rows_without_labels == sum(not any(value == 1 for value in row) for row in Y)
    assert facts.cardinality == pytest.approx(sum(value == 1 for row in Y for value in row) / 40)
    assert facts.observed == pytest.approx(1 - np.isnan(Y).mean())


def test_a_label_that_was_never_observed():
    assert data_facts("", 1, np.array([[np.nan]]), ["x"]).labels[0].share == 0
