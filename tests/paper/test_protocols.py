"""Protocols: splits, noisy labels and stored settings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.data import MultiLabelData, make_noisy_multilabel
from ccmn.paper.protocols import INJECTED, MODERATE, REAL, make_repeat, split


@pytest.fixture(scope="module")
def data():
    task = make_noisy_multilabel(300, 8, 5, random_state=0)
    candidates = np.maximum(task.Y, np.random.default_rng(1).random(task.Y.shape) < 0.3)
    return MultiLabelData(X=task.X, Y=task.Y, candidates=candidates)


def test_repeats_are_reproducible_and_differ(data):
    a, b = ([make_repeat(data, MODERATE, k, random_state=4) for k in range(3)] for _ in range(2))
    assert all(np.array_equal(x.train, y.train) and np.array_equal(x.noisy, y.noisy) for x, y in zip(a, b))
    assert not np.array_equal(a[0].train, a[1].train)
    assert max((r.noise.rho_pos + r.noise.rho_neg).max() for r in a) <= 0.6 + 1e-9
    assert len(a[0].train) + len(a[0].validation) + len(a[0].test) == 300


def test_injected_noise_adds_labels_with_one_rate(data):
    repeats = [make_repeat(data, INJECTED, k) for k in range(8)]
    for repeat in repeats:
        assert (repeat.noisy >= data.Y).all()
        assert len(set(repeat.noise.rho_neg)) == 1
        assert not repeat.noise.rho_pos.any()
    assert len({r.noise.rho_neg[0] for r in repeats}) > 1


def test_rates_of_real_candidate_sets_are_those_of_the_training_rows(data):
    repeat = make_repeat(data, REAL, 0)
    Y, C = np.asarray(data.Y)[repeat.train], np.asarray(data.candidates)[repeat.train]
    expected = [(C[:, j] & (1 - Y[:, j])).sum() / (1 - Y[:, j]).sum() for j in range(5)]
    np.testing.assert_allclose(repeat.noise.rho_neg, expected)
    assert repeat.noisy is data.candidates


@given(st.integers(10, 5000), st.integers(0, 2**32))
def test_parts_of_a_split_are_disjoint_and_complete(n, seed):
    parts = split(n, (0.5, 0.2, 0.3), random_state=seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert np.abs(np.array([len(part) for part in parts]) - np.array([0.5, 0.2, 0.3]) * n).max() <= 1


def test_splits_of_the_paper():
    assert [len(part) for part in split(2417, (0.5, 0.2, 0.3), random_state=0)] == [1208, 484, 725]
    with pytest.raises(ValueError, match="n=2 rows are too few"):
        split(2, (0.5, 0.2, 0.3))
    with pytest.raises(ValueError, match="fractions must be positive numbers with sum 1"):
        split(10, (0.5, 0.6))
