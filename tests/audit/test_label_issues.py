from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal

import ccmn
from audit import reference
from ccmn import ClassConditionalNoise, PartialNoise, find_label_issues
from ccmn.audit import label_issues
from ccmn.audit.error_model import p_wrong
from ccmn.estimation import NoiseRates
from ccmn.noise import TransitionNoise
from reference import noisy_vectors
from strategies import SEEDS, noises

NOISE = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.3, 0.0])
COLUMNS = ["row", "label", "given", "suspicion", "p_wrong", "suggested"]


def random_labels(seed, n=40, q=3):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, (n, q)), rng.random((n, q))


@given(noises(), SEEDS, st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.booleans())
def test_find_label_issues_agrees_with_reference(noise, seed, least, masked):
    noise = ClassConditionalNoise(noise.rho_pos.round(3), noise.rho_neg.round(3))
    Y, P = random_labels(seed, 12, noise.n_labels)
    P = P.round(1) if seed % 2 else P
    Y = np.where(np.random.default_rng(seed).random(Y.shape) < 0.3, np.nan, Y) if masked else Y
    expected = reference.issues(Y, P, noise.rho_pos, noise.rho_neg, least)
    found = find_label_issues(Y, P, noise, min_p_wrong=least)
    expected_pairs = {
        (i, j) for i, j, _, p in expected if abs(p - least) > 1e-9
    }  # rounding decides for values at the threshold
    listed = set(zip(found.row, found.label))
    assert expected_pairs <= listed
    assert len(listed) == len(found)
    if least == 0:
        assert len(found) == np.isfinite(Y).sum()
    all_labels = {(i, j): (y, p) for i, j, y, p in reference.issues(Y, P, noise.rho_pos, noise.rho_neg, 0)}
    for row in found.itertuples():
        given_label, p = all_labels[row.row, row.label]
        assert row.given == given_label
        assert abs(row.p_wrong - p) < 1e-10
        assert row.suspicion == row.p_wrong
        assert row.suggested == (1 - row.given if row.suspicion > 0.5 else row.given)


def test_columns_and_dtypes():
    found = find_label_issues(*random_labels(0), NOISE)
    assert list(found.columns) == COLUMNS
    assert found.index.tolist() == list(range(len(found)))
    assert [found[name].dtype.kind for name in found] == ["i", "i", "i", "f", "f", "i"]
    assert (found.p_wrong >= 0.5).all()
    assert (found.suggested == 1 - found.given).all()


def test_sorted_by_descending_p_wrong_then_row_and_label():
    Y, P = random_labels(1, 300)
    P = P.round(1)
    found = find_label_issues(Y, P, NOISE, min_p_wrong=0)
    assert len(found) == Y.size
    order = np.lexsort((found.label, found.row, -found.p_wrong))
    assert_array_equal(order, np.arange(len(found)))
    assert_frame_equal(found, find_label_issues(Y, P, NOISE, min_p_wrong=0))


def test_blocks_give_the_same_result(monkeypatch):
    Y, P = random_labels(2, 50)
    whole = find_label_issues(Y, P, NOISE, min_p_wrong=0.2)
    monkeypatch.setattr(label_issues, "MAX_BLOCK_ENTRIES", 7)
    assert_frame_equal(find_label_issues(Y, P, NOISE, min_p_wrong=0.2), whole)
    assert_frame_equal(find_label_issues(scipy.sparse.csr_array(Y), P, NOISE, min_p_wrong=0.2), whole)


def test_containers_of_find_label_issues():
    Y, P = random_labels(3)
    expected = find_label_issues(Y, P, NOISE)
    for labels in (Y.tolist(), Y.astype(bool), torch.tensor(Y), scipy.sparse.csr_matrix(Y), scipy.sparse.coo_array(Y)):
        assert_frame_equal(find_label_issues(labels, P, NOISE), expected)
    for probabilities in (P.tolist(), torch.tensor(P), pd.DataFrame(P)):
        assert_frame_equal(find_label_issues(Y, probabilities, NOISE), expected)
    named = find_label_issues(pd.DataFrame(Y, columns=["a", "b", "c"], index=range(5, 45)), P, NOISE)
    assert named.label.tolist() == ["abc"[j] for j in expected.label]
    assert_array_equal(named.row, expected.row)


def test_label_names_from_noise_model():
    noise = ClassConditionalNoise(0.3, 0.3, n_labels=2, label_names=["sea", "sky"])
    assert find_label_issues([[1, 0]], [[0.3, 0.6]], noise, min_p_wrong=0).label.tolist() == ["sea", "sky"]


def test_no_issues():
    found = find_label_issues(*random_labels(4), ClassConditionalNoise(0.0, 0.0, n_labels=3))
    assert len(found) == 0
    assert list(found.columns) == COLUMNS


def test_unobserved_labels_are_not_listed():
    Y, P = random_labels(5)
    Y = Y.astype(float)
    Y[::2] = np.nan
    assert (find_label_issues(Y, P, NOISE, min_p_wrong=0).row % 2 == 1).all()
    assert len(find_label_issues(Y * np.nan, P, NOISE, min_p_wrong=0)) == 0


def test_partial_noise_flags_only_ones():
    found = find_label_issues(*random_labels(6), PartialNoise(0.4, n_labels=3))
    assert len(found) > 0
    assert (found.given == 1).all()


def test_single_precision_probabilities():
    Y, P = random_labels(7)
    found = find_label_issues(Y, P.astype(np.float32), NOISE, min_p_wrong=0).sort_values(["row", "label"])
    assert_allclose(found.p_wrong.to_numpy().reshape(P.shape), p_wrong(Y, P, NOISE.rho_pos, NOISE.rho_neg), atol=1e-5)


def test_known_estimates_equal_a_noise_model():
    Y, P = random_labels(8)
    assert_frame_equal(find_label_issues(Y, P, NoiseRates.known(NOISE, Y)), find_label_issues(Y, P, NOISE))


def test_without_noise_all_labels_are_ranked_by_self_confidence():
    Y, P = random_labels(8, 60)
    P = P.round(1)  # ties
    found = find_label_issues(Y, P)
    assert list(found.columns) == COLUMNS
    assert len(found) == Y.size
    assert found.p_wrong.isna().all()
    assert_allclose(found.suspicion, np.where(Y == 1, 1 - P, P)[found.row, found.label])
    assert_array_equal(np.lexsort((found.label, found.row, -found.suspicion)), np.arange(len(found)))
    assert (found.suggested == np.where(found.suspicion > 0.5, 1 - found.given, found.given)).all()


@pytest.mark.parametrize("noise", [None, NOISE])
def test_top_is_the_beginning_of_the_list(monkeypatch, noise):
    Y, P = random_labels(8, 60)
    whole = find_label_issues(Y, P.round(1), noise)
    monkeypatch.setattr(label_issues, "MAX_BLOCK_ENTRIES", 7)
    for top in (1, 20, 10_000):
        assert_frame_equal(find_label_issues(Y, P.round(1), noise, top=top), whole.head(top))
    with pytest.raises(ValueError, match="top must be an integer of at least 1; got 0"):
        find_label_issues(Y, P, noise, top=0)


def test_min_p_wrong_requires_error_probabilities():
    with pytest.raises(ValueError, match=r"min_p_wrong requires error probabilities.*trusted="):
        find_label_issues(*random_labels(8), min_p_wrong=0.5)


def test_without_noise_blocks_and_containers_give_the_same_result(monkeypatch):
    Y, P = random_labels(8, 60)
    whole = find_label_issues(Y, P)
    trusted = (np.arange(20), 1 - Y[:20])
    learned = find_label_issues(Y, P, trusted=trusted, min_p_wrong=0.1)
    assert learned.p_wrong.notna().all()
    monkeypatch.setattr(label_issues, "MAX_BLOCK_ENTRIES", 7)
    for labels in (Y, scipy.sparse.csr_array(Y), torch.tensor(Y)):
        assert_frame_equal(find_label_issues(labels, P), whole)
        assert_frame_equal(find_label_issues(labels, P, trusted=trusted, min_p_wrong=0.1), learned)
    named = find_label_issues(Y, pd.DataFrame(P, columns=list("abc")))
    assert named.label.tolist() == ["abc"[j] for j in whole.label]


def test_public_name():
    assert ccmn.find_label_issues is find_label_issues
    assert "find_label_issues" in dir(ccmn)
    assert ccmn.audit.find_label_issues is find_label_issues


Y, P = random_labels(9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Y, P[:5], NOISE), ValueError, r"shape .n, q.; got \(40, 3\) and \(5, 3\)"),
        ((Y[:, :2], P, NOISE), ValueError, "Y_noisy must have 3 labels"),
        ((Y[0], P[0], NOISE), ValueError, "Y_noisy must be a matrix"),
        ((Y[:0], P[:0], NOISE), ValueError, "at least one row"),
        ((2 * Y, P, NOISE), ValueError, "Y_noisy must be 0 or 1"),
        ((2 * Y - 1, P, NOISE), ValueError, r"pass \(Y \+ 1\) / 2"),
        ((Y, P + 1, NOISE), ValueError, "pred_proba must be probabilities"),
        ((Y, P * np.nan, NOISE), ValueError, "pred_proba must be probabilities, between 0 and 1; got nan"),
        ((Y, P.astype(str), NOISE), ValueError, "pred_proba must be a matrix of numbers"),
        ((Y, P, "estimate"), TypeError, "got str"),
        ((Y, P, TransitionNoise(np.eye(3))), TypeError, "got TransitionNoise"),
    ],
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        find_label_issues(*arguments)


def test_label_names_must_match():
    noise = ClassConditionalNoise(NOISE.rho_pos, NOISE.rho_neg, label_names=["a", "b", "c"])
    with pytest.raises(ValueError, match="reorder the columns"):
        find_label_issues(pd.DataFrame(Y, columns=["b", "a", "c"]), P, noise)
    with pytest.raises(ValueError, match="the same labels"):
        find_label_issues(pd.DataFrame(Y, columns=["b", "a", "d"]), P, noise)
    with pytest.raises(ValueError, match="pred_proba has c, b, a"):
        find_label_issues(pd.DataFrame(Y, columns=list("abc")), pd.DataFrame(P, columns=list("cba")), noise)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.5, "min_p_wrong must be from 0 to 1; got 1.5"),
        (-0.1, "min_p_wrong must be from 0 to 1"),
        (float("nan"), "min_p_wrong must be from 0 to 1"),
        ("high", "min_p_wrong must be a number from 0 to 1; got 'high'"),
    ],
)
def test_invalid_min_p_wrong(value, message):
    with pytest.raises(ValueError, match=message):
        find_label_issues(Y, P, NOISE, min_p_wrong=value)


@given(noises(q=4), SEEDS)
def test_p_wrong_is_exact_for_known_distribution(noise, seed):
    """Four dependent labels: enumerate all true and noisy label vectors with their probabilities."""
    p_true = dict(zip(itertools.product((0, 1), repeat=4), np.random.default_rng(seed).dirichlet(np.full(16, 0.5))))
    seen, wrong = np.zeros((2, 4)), np.zeros((2, 4))
    for true, p in p_true.items():
        for noisy, flipped in noisy_vectors(true, noise.rho_pos, noise.rho_neg):
            for j in range(4):
                seen[noisy[j], j] += p * flipped
                wrong[noisy[j], j] += p * flipped * (true[j] != noisy[j])
    given_labels = np.array([[0] * 4, [1] * 4])
    found = p_wrong(given_labels, np.stack([seen[1], seen[1]]), noise.rho_pos, noise.rho_neg)
    # Compare joint probabilities: for rare values, rounding makes the ratio inaccurate.
    assert_allclose(found * seen, wrong, atol=1e-12)


@given(noises(q=3), SEEDS)
def test_p_wrong_agrees_with_reference(noise, seed):
    """Predictions in [0, 1], including both limits and the limits of the range under the noise."""
    rng = np.random.default_rng(seed)
    # Rates are 0 or at least 0.001. For a rate of 1e-300, the last bit of a prediction would decide the result.
    rho_pos, rho_neg = noise.rho_pos.round(3), noise.rho_neg.round(3)
    P = np.concatenate([rng.random((4, 3)), [[0, 1, 0], [1, 0, 1]], [rho_neg, 1 - rho_pos]])
    Y = rng.integers(0, 2, P.shape)
    expected = [
        [reference.p_wrong(y, p, a, b) for y, p, a, b in zip(labels, scores, rho_pos, rho_neg)]
        for labels, scores in zip(Y.tolist(), P.tolist())
    ]
    assert_allclose(p_wrong(Y, P, rho_pos, rho_neg), expected, atol=1e-11)


@given(noises(q=2), st.integers(0, 1))
def test_p_wrong_decreases_with_probability_of_given_label(noise, value):
    P = np.linspace(0, 1, 101)[:, None].repeat(2, axis=1)
    found = p_wrong(np.full(P.shape, value), P, noise.rho_pos, noise.rho_neg)
    assert ((found >= 0) & (found <= 1)).all()
    steps = np.diff(found, axis=0) * (1 if value == 0 else -1)
    assert (steps >= -1e-15).all()


def test_p_wrong_of_one_is_ordered_by_prediction():
    found = p_wrong(np.ones((3, 1)), np.array([[0.1], [0.2], [0.3]]), np.array([0.2]), np.array([0.4]))
    assert_allclose(found, 1, atol=1e-12)
    assert found[0] > found[1] > found[2]


def test_p_wrong_is_zero_for_rate_zero():
    Y, P = np.array([[0, 1], [0, 1]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    assert p_wrong(Y, P, np.array([0.0, 0.3]), np.array([0.4, 0.0])).tolist() == [[0, 0], [0, 0]]


def test_p_wrong_of_unobserved_label_is_nan():
    found = p_wrong(np.array([np.nan, 1.0]), np.array([0.5, 0.5]), np.array([0.1, 0.1]), np.array([0.2, 0.2]))
    assert np.isnan(found).tolist() == [True, False]
