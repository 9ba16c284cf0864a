"""Checks of ScoreDependentNoise and RowNoise: rates that depend on the predicted probability."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from ccmn.noise import BaseNoise, ClassConditionalNoise, GroupedNoise, RowNoise, ScoreDependentNoise, TransitionNoise

CLEAR = ClassConditionalNoise([0.0, 0.1, 0.6], [0.0, 0.05, 0.0])
BOUNDARY = ClassConditionalNoise([0.4, 0.3, 0.3], [0.2, 0.3, 0.3])
FAR = ClassConditionalNoise([0.0, 0.1, 0.1], [0.0, 0.05, 0.6])
NOISE = ScoreDependentNoise({0.5: BOUNDARY, 0.0: CLEAR, 1.0: FAR})
P = np.array([[0.0, 0.25, 0.5], [0.75, 1.0, 0.1], [0.5, 0.5, 0.5], [0.9, 0.2, 0.6]])
Y = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 0]])


def interpolated(values, score):
    """Linear interpolation written out: the two neighboring scores and their shares."""
    points = [0.0, 0.5, 1.0]
    for k in range(2):
        if points[k] <= score <= points[k + 1]:
            share = (score - points[k]) / (points[k + 1] - points[k])
            return (1 - share) * values[k] + share * values[k + 1]
    raise AssertionError


def test_rates_are_interpolated_between_scores():
    rows = NOISE.at(P)
    models = [CLEAR, BOUNDARY, FAR]
    for i, j in itertools.product(range(4), range(3)):
        assert rows.rho_pos[i, j] == pytest.approx(interpolated([m.rho_pos[j] for m in models], P[i, j]))
        assert rows.rho_neg[i, j] == pytest.approx(interpolated([m.rho_neg[j] for m in models], P[i, j]))


def test_unbiased_by_enumeration():
    rows = NOISE.at(P)
    for i, true in itertools.product(range(4), itertools.product((0, 1), repeat=3)):
        mean = np.zeros(3)
        for noisy in itertools.product((0, 1), repeat=3):
            flip = np.where(np.array(true) == 1, rows.rho_pos[i], rows.rho_neg[i])
            chance = np.where(np.array(true) == np.array(noisy), 1 - flip, flip).prod()
            mean += chance * NOISE.debias(np.array([noisy]), P[i : i + 1])[0]
        np.testing.assert_allclose(mean, true, atol=1e-12)


def test_one_score_is_class_conditional_noise():
    noise = ScoreDependentNoise({0.5: BOUNDARY})
    np.testing.assert_allclose(noise.debias(Y, P), BOUNDARY.debias(Y))
    np.testing.assert_allclose(noise.mean(P).rho_pos, BOUNDARY.rho_pos)
    np.testing.assert_allclose(noise.mean(P).rho_neg, BOUNDARY.rho_neg)


def test_flip_frequencies_and_mean_rates():
    """A label that is true with the implied probability is noisy with the score, and has the mean rates."""
    n = 40_000
    rng = np.random.default_rng(0)
    noise = ScoreDependentNoise({0: ClassConditionalNoise([0.3], [0.0]), 1: ClassConditionalNoise([0.1], [0.4])})
    scores = rng.uniform(0.05, 0.85, (n, 1))
    rows = noise.at(scores)
    true = (rng.random((n, 1)) < (scores - rows.rho_neg) / (1 - rows.rho_pos - rows.rho_neg)).astype(int)
    noisy = noise.corrupt(true, scores, random_state=1)
    for low in (0.05, 0.25, 0.45, 0.65):
        inside = (scores >= low) & (scores < low + 0.2)
        assert noisy[inside].mean() == pytest.approx(scores[inside].mean(), abs=4 * 0.5 / np.sqrt(inside.sum()))
    mean = noise.mean(scores)
    assert mean.rho_pos[0] == pytest.approx((noisy[true == 1] == 0).mean(), abs=4 * 0.5 / np.sqrt(true.sum()))
    assert mean.rho_neg[0] == pytest.approx((noisy[true == 0] == 1).mean(), abs=4 * 0.5 / np.sqrt((1 - true).sum()))


def test_containers():
    expected = NOISE.debias(Y, P)
    frame = NOISE.debias(pd.DataFrame(Y, columns=list("abc")), pd.DataFrame(P, columns=list("abc")))
    assert list(frame.columns) == list("abc")
    np.testing.assert_array_equal(frame, expected)
    np.testing.assert_allclose(NOISE.debias(torch.tensor(Y), torch.tensor(P)).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(NOISE.debias(scipy.sparse.csr_array(Y), P), expected)
    masked = np.where(Y == 1, np.nan, Y.astype(float))
    assert (np.isnan(NOISE.debias(masked, P)) == (Y == 1)).all()


def test_json_and_equality():
    description = json.loads(json.dumps(NOISE.to_dict()))
    assert ScoreDependentNoise.from_dict(description) == BaseNoise.from_dict(description) == NOISE
    assert hash(NOISE) == hash(ScoreDependentNoise(NOISE.models))
    assert ScoreDependentNoise({0.5: BOUNDARY}) != NOISE
    assert NOISE.scores == (0.0, 0.5, 1.0)
    assert NOISE.rho_pos.shape == (3, 3)
    assert "score 0.5: mean rho_pos 0.333" in str(NOISE)


def test_groups_have_row_noise():
    groups = GroupedNoise({"a": BOUNDARY, "b": CLEAR})
    rows = groups.at(["b", "a", "a", "b"])
    np.testing.assert_array_equal(rows.debias(Y), groups.debias(Y, ["b", "a", "a", "b"]))


def test_errors():
    with pytest.raises(ValueError, match="at least one score"):
        ScoreDependentNoise({})
    with pytest.raises(ValueError, match=r"between 0 and 1; got 1\.5"):
        ScoreDependentNoise({1.5: CLEAR})
    with pytest.raises(TypeError, match="got TransitionNoise"):
        ScoreDependentNoise({0.5: TransitionNoise([[0.9, 0.1], [0.2, 0.8]])})
    with pytest.raises(ValueError, match="the same labels"):
        ScoreDependentNoise({0: CLEAR, 1: ClassConditionalNoise([0.1], [0.1])})
    with pytest.raises(ValueError, match="pred_proba must be probabilities"):
        NOISE.debias(Y, P * 2)
    with pytest.raises(ValueError, match="3 labels"):
        NOISE.at(P[:, :2])
    with pytest.raises(ValueError, match=r"rows that the rates belong to, \(4, 3\)"):
        NOISE.at(P).debias(Y[:2])
    with pytest.raises(ValueError, match=r"same shape \(n, q\)"):
        RowNoise([[0.1]], [[0.1, 0.2]])
    with pytest.raises(ValueError, match=r"below 1 in every row; got 0\.5 \+ 0\.5 in row 1, label 0"):
        RowNoise([[0.1], [0.5]], [[0.1], [0.5]])
    with pytest.raises(ValueError, match="rho_neg must be probabilities"):
        RowNoise([[0.1]], [[-0.1]])
