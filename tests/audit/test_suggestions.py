from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given
from numpy.testing import assert_array_equal

from ccmn import ClassConditionalNoise, find_label_issues
from ccmn.audit import label_issues, suggest_labels
from strategies import SEEDS, noises


@given(noises(), SEEDS)
def test_turns_over_what_find_label_issues_lists(noise, seed):
    rng = np.random.default_rng(seed)
    Y, P = rng.integers(0, 2, (8, noise.n_labels)), rng.random((8, noise.n_labels))
    expected = Y.copy()
    for row in find_label_issues(Y, P, noise).itertuples():
        expected[row.row, row.label] = row.suggested
    assert_array_equal(suggest_labels(Y, P, noise), expected)


def test_containers_come_back_as_they_were(monkeypatch):
    rng = np.random.default_rng(0)
    Y, P = rng.integers(0, 2, (30, 3)), rng.random((30, 3))
    noise = ClassConditionalNoise([0.3, 0.1, 0.2], [0.1, 0.3, 0.2])
    expected = suggest_labels(Y, P, noise)
    assert (expected != Y).any()
    assert expected.dtype == Y.dtype
    monkeypatch.setattr(label_issues, "_BLOCK", 12)
    for kind in (scipy.sparse.csr_array, scipy.sparse.csr_matrix):
        sparse = suggest_labels(kind(Y), P, noise)
        assert type(sparse) is kind
        assert sparse.dtype == Y.dtype
        assert_array_equal(sparse.toarray(), expected)
    frame = pd.DataFrame(Y, columns=list("abc"), index=range(3, 33))
    turned = suggest_labels(frame, P, noise)
    assert turned.index.equals(frame.index)
    assert_array_equal(turned, expected)
    assert_array_equal(suggest_labels(torch.tensor(Y), P, noise), expected)


def test_not_observed_stays_so():
    noise = ClassConditionalNoise(0.2, 0.2, n_labels=2)
    turned = suggest_labels(np.array([[np.nan, 1.0]]), np.array([[0.9, 0.1]]), noise)
    assert_array_equal(turned, [[np.nan, 0.0]])


def test_refuses_to_make_labels_worse():
    with pytest.raises(ValueError, match=r"from 0\.5 to 1; got 0\.3: below 0\.5 the label given is the likelier one"):
        suggest_labels([[1]], [[0.5]], ClassConditionalNoise([0.1], [0.1]), 0.3)
