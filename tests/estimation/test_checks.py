"""Search for confused labels: power, false alarms, and data that it must not accuse."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from ccmn import diagnose_noise
from ccmn.data import make_noisy_multilabel
from ccmn.estimation.checks import confused_labels, confusions

N, Q = 1500, 6
DATA = make_noisy_multilabel(N, 10, Q, strength=6.0, random_state=1)
RNG = np.random.default_rng(7)


def confuse():
    """Move 35 % of the positives of every even label to the next label."""
    noisy = DATA.Y.copy()
    for j in range(0, Q, 2):
        moved = (DATA.Y[:, j] == 1) & (DATA.Y[:, j + 1] == 0) & (np.random.default_rng(j).random(N) < 0.35)
        noisy[moved, j], noisy[moved, j + 1] = 0, 1
    return noisy


def test_confused_labels_are_named():
    found = diagnose_noise(DATA.X, pd.DataFrame(confuse(), columns=list("abcdef")))
    flag = next(flag for flag in found.flags if flag.code == "confused_labels")
    pairs = [("a", "b"), ("c", "d"), ("e", "f")]
    assert any({flag.name} < set(pair) and f"label {(set(pair) - {flag.name}).pop()!r}" in flag.note for pair in pairs)
    with pytest.raises(ValueError, match="got neither"):
        diagnose_noise(Y_noisy=confuse())


def test_nested_labels_and_rows_without_labels_are_not_accused():
    X = RNG.normal(size=(3000, 8))
    w, v = RNG.normal(size=8), RNG.normal(size=(8, 4))
    gate = RNG.random(3000) < expit(1.2 * X @ w - 1)
    children = gate[:, None] & (RNG.random((3000, 4)) < expit(0.7 * X @ v))
    assert not diagnose_noise(X, np.column_stack([children, children.any(1)]).astype(int)).flags


def test_few_complete_rows_are_not_tested():
    Y = confuse().astype(float)
    Y[400:, 0] = np.nan
    assert confused_labels(Y, DATA.X[:, :Q]) == []


def test_share_of_moved_labels_is_estimated():
    score = np.sort(RNG.normal(size=3000))[::-1]
    true = score > 1
    moved = true & (RNG.random(3000) < 0.35)
    other = RNG.random(3000) < 0.2
    Y = np.column_stack([true & ~moved, other | moved]).astype(float)
    found = confusions(Y, np.column_stack([score, -score]))
    assert [(pair.label, pair.other) for pair in found] == [(0, 1)]
    assert found[0].moved == pytest.approx(0.35, abs=0.08)
    independent = np.column_stack([true & ~moved, other]).astype(float)
    assert not confusions(independent, np.column_stack([score, -score]))
