"""Search for confused labels: power, false alarms, and data that it must not accuse."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from ccmn import diagnose_noise
from ccmn.data import make_noisy_multilabel

RNG = np.random.default_rng(7)


def test_confused_labels_are_named():
    """35 % of the positives of every label are moved to the next label."""
    data = make_noisy_multilabel(3000, 20, 10, strength=4.0, random_state=21)
    drawn, noisy = np.random.default_rng(0).random(data.Y.shape), data.Y.copy()
    for j, k in zip(range(10), [*range(1, 10), 0]):
        moved = (data.Y[:, j] == 1) & (data.Y[:, k] == 0) & (drawn[:, j] < 0.35)
        noisy[moved, j], noisy[moved, k] = 0, 1
    flags = diagnose_noise(data.X, pd.DataFrame(noisy, columns=list("abcdefghij"))).flags
    assert {flag.code for flag in flags} == {"confused_labels"}
    successor = dict(zip("abcdefghij", "bcdefghija"))
    assert all(f"label {successor[flag.name]!r} is given instead" in flag.note for flag in flags)
    few = noisy.astype(float)
    few[400:, 0] = np.nan
    assert diagnose_noise(data.X, few).flags == ()
    with pytest.raises(ValueError, match="got neither"):
        diagnose_noise(Y_noisy=noisy)


def test_nested_labels_and_rows_without_labels_are_not_accused():
    X = RNG.normal(size=(3000, 8))
    w, v = RNG.normal(size=8), RNG.normal(size=(8, 4))
    gate = RNG.random(3000) < expit(1.2 * X @ w - 1)
    children = gate[:, None] & (RNG.random((3000, 4)) < expit(0.7 * X @ v))
    assert not diagnose_noise(X, np.column_stack([children, children.any(1)]).astype(int)).flags


def test_share_of_moved_labels_is_estimated():
    score = np.sort(RNG.normal(size=3000))[::-1]
    true = score > 1
    moved = true & (RNG.random(3000) < 0.35)
    other = RNG.random(3000) < 0.2
    proba = expit(np.column_stack([score, -score]))
    confused, independent = (np.column_stack([true & ~moved, o]).astype(int) for o in (other | moved, other))
    (flag,) = diagnose_noise(Y_noisy=confused, pred_proba=proba).flags
    assert flag.label == 0
    assert 27 <= int(re.search(r"about (\d+)% .* label 1 is given instead", flag.note)[1]) <= 43
    assert not diagnose_noise(Y_noisy=independent, pred_proba=proba).flags
