"""Splits and noise of the protocols."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn.data import MultiLabelData
from ccmn.data.synthetic import make_noisy_multilabel
from ccmn.experiments.protocols import INJECTED, LITERAL, MODERATE, REAL, make_repeat, make_repeats


@pytest.fixture(scope="module")
def data():
    task = make_noisy_multilabel(300, 8, 5, random_state=0)
    candidates = np.maximum(task.Y, np.random.default_rng(1).random(task.Y.shape) < 0.3)
    return MultiLabelData(X=task.X, Y=task.Y, candidates=candidates)


def test_repeats_are_seeded_and_differ(data):
    a, b = (make_repeats(data, MODERATE, 3, seed=4) for _ in range(2))
    assert all(np.array_equal(x.train, y.train) and np.array_equal(x.noisy, y.noisy) for x, y in zip(a, b))
    assert not np.array_equal(a[0].train, a[1].train)
    assert max((r.noise.rho_pos + r.noise.rho_neg).max() for r in a) <= 0.6 + 1e-9
    assert len(a[0].train) + len(a[0].validation) + len(a[0].test) == 300


def test_a_repeat_does_not_depend_on_how_many_there_are(data):
    assert np.array_equal(make_repeats(data, LITERAL, 3)[2].noisy, make_repeat(data, LITERAL, 2).noisy)


def test_injected_labels_are_only_added_at_one_rate(data):
    repeats = make_repeats(data, INJECTED, 8)
    for repeat in repeats:
        assert (repeat.noisy >= data.Y).all()
        assert len(set(repeat.noise.rho_neg)) == 1
        assert not repeat.noise.rho_pos.any()
    assert len({r.noise.rho_neg[0] for r in repeats}) > 1


def test_rates_of_real_candidate_sets_are_read_off_training_rows(data):
    repeat = make_repeat(data, REAL, 0)
    Y, C = np.asarray(data.Y)[repeat.train], np.asarray(data.candidates)[repeat.train]
    expected = [(C[:, j] & (1 - Y[:, j])).sum() / (1 - Y[:, j]).sum() for j in range(5)]
    np.testing.assert_allclose(repeat.noise.rho_neg, expected)
    assert repeat.noisy is data.candidates


def test_real_candidates_are_asked_for_where_there_are_none(data):
    with pytest.raises(ValueError, match="no candidate sets of its own"):
        make_repeat(MultiLabelData(X=data.X, Y=data.Y), REAL, 0)


def test_batch_sizes_of_the_appendix_and_of_others():
    assert LITERAL.batch_size("tmc") == 1000
    assert LITERAL.batch_size("mine") == 100
    assert LITERAL.recipe("tmc")["batch_size"] == 1000
