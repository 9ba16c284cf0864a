from __future__ import annotations

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
from ccmn import ClassConditionalNoise, PartialNoise, TransitionNoise, find_label_issues
from ccmn.audit import label_issues, p_wrong
from ccmn.estimation import NoiseRates
from strategies import SEEDS, noises

NOISE = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.3, 0.0])


def draw(seed, n=40, q=3):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, (n, q)), rng.random((n, q))


@given(noises(), SEEDS, st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.booleans())
def test_slow_twin(noise, seed, least, masked):
    noise = ClassConditionalNoise(noise.rho_pos.round(3), noise.rho_neg.round(3))
    Y, P = draw(seed, 12, noise.n_labels)
    P = P.round(1) if seed % 2 else P
    Y = np.where(np.random.default_rng(seed).random(Y.shape) < 0.3, np.nan, Y) if masked else Y
    expected = reference.issues(Y, P, noise.rho_pos, noise.rho_neg, least)
    found = find_label_issues(Y, P, noise, least)
    apart = {(i, j) for i, j, _, p in expected if abs(p - least) > 1e-9}  # at the limit, rounding may decide
    listed = set(zip(found.row, found.label))
    assert apart <= listed
    assert len(listed) == len(found)
    if least == 0:
        assert len(found) == np.isfinite(Y).sum()
    twin = {(i, j): (y, p) for i, j, y, p in reference.issues(Y, P, noise.rho_pos, noise.rho_neg, 0)}
    for row in found.itertuples():
        given_label, p = twin[row.row, row.label]
        assert row.given == given_label
        assert abs(row.p_wrong - p) < 1e-10
        assert row.suggested == (1 - row.given if row.p_wrong >= 0.5 else row.given)


def test_columns_and_kinds():
    found = find_label_issues(*draw(0), NOISE)
    assert list(found.columns) == ["row", "label", "given", "p_wrong", "suggested"]
    assert found.index.tolist() == list(range(len(found)))
    assert [found[name].dtype.kind for name in found] == ["i", "i", "i", "f", "i"]
    assert (found.p_wrong >= 0.5).all()
    assert (found.suggested == 1 - found.given).all()


def test_the_most_suspicious_first_and_equals_in_their_order():
    Y, P = draw(1, 300)
    P = P.round(1)
    found = find_label_issues(Y, P, NOISE, 0)
    assert len(found) == Y.size
    order = np.lexsort((found.label, found.row, -found.p_wrong))
    assert_array_equal(order, np.arange(len(found)))
    assert_frame_equal(found, find_label_issues(Y, P, NOISE, 0))


def test_blocks_change_nothing(monkeypatch):
    Y, P = draw(2, 50)
    whole = find_label_issues(Y, P, NOISE, 0.2)
    monkeypatch.setattr(label_issues, "_BLOCK", 7)
    assert_frame_equal(find_label_issues(Y, P, NOISE, 0.2), whole)
    assert_frame_equal(find_label_issues(scipy.sparse.csr_array(Y), P, NOISE, 0.2), whole)


def test_containers():
    Y, P = draw(3)
    expected = find_label_issues(Y, P, NOISE)
    for labels in (Y.tolist(), Y.astype(bool), torch.tensor(Y), scipy.sparse.csr_matrix(Y), scipy.sparse.coo_array(Y)):
        assert_frame_equal(find_label_issues(labels, P, NOISE), expected)
    for probabilities in (P.tolist(), torch.tensor(P), pd.DataFrame(P)):
        assert_frame_equal(find_label_issues(Y, probabilities, NOISE), expected)
    named = find_label_issues(pd.DataFrame(Y, columns=["a", "b", "c"], index=range(5, 45)), P, NOISE)
    assert named.label.tolist() == ["abc"[j] for j in expected.label]
    assert_array_equal(named.row, expected.row)


def test_names_come_from_the_noise_where_the_labels_have_none():
    noise = ClassConditionalNoise(0.3, 0.3, n_labels=2, label_names=["sea", "sky"])
    assert find_label_issues([[1, 0]], [[0.3, 0.6]], noise, 0).label.tolist() == ["sea", "sky"]


def test_nothing_found():
    found = find_label_issues(*draw(4), ClassConditionalNoise(0.0, 0.0, n_labels=3))
    assert len(found) == 0
    assert list(found.columns) == ["row", "label", "given", "p_wrong", "suggested"]


def test_not_observed_is_not_listed():
    Y, P = draw(5)
    Y = Y.astype(float)
    Y[::2] = np.nan
    assert (find_label_issues(Y, P, NOISE, 0).row % 2 == 1).all()
    assert len(find_label_issues(Y * np.nan, P, NOISE, 0)) == 0


def test_candidate_sets_only_lose_labels():
    found = find_label_issues(*draw(6), PartialNoise(0.4, n_labels=3))
    assert len(found) > 0
    assert (found.given == 1).all()


def test_single_precision_probabilities():
    Y, P = draw(7)
    found = find_label_issues(Y, P.astype(np.float32), NOISE, 0).sort_values(["row", "label"])
    assert_allclose(found.p_wrong.to_numpy().reshape(P.shape), p_wrong(Y, P, NOISE.rho_pos, NOISE.rho_neg), atol=1e-5)


def test_an_upper_bound_is_taken_for_a_bound():
    Y, P = draw(8)
    rates = NoiseRates.known(NOISE, Y)
    assert_frame_equal(find_label_issues(Y, P, rates), find_label_issues(Y, P, NOISE))
    fields = rates.to_dict() | {"kind": ["upper bound"] * 3}
    halved = ClassConditionalNoise(NOISE.rho_pos / 2, NOISE.rho_neg)
    assert_frame_equal(find_label_issues(Y, P, NoiseRates.from_dict(fields)), find_label_issues(Y, P, halved))


def test_it_is_a_public_name():
    assert ccmn.find_label_issues is find_label_issues
    assert "find_label_issues" in dir(ccmn)
    assert ccmn.audit.find_label_issues is find_label_issues


Y, P = draw(9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Y, P[:5], NOISE), ValueError, r"one shape \(n, q\); got \(40, 3\) and \(5, 3\)"),
        ((Y[:, :2], P, NOISE), ValueError, "Y_noisy must have 3 labels"),
        ((Y[0], P[0], NOISE), ValueError, "Y_noisy must be a matrix"),
        ((Y[:0], P[:0], NOISE), ValueError, "at least one row"),
        ((2 * Y, P, NOISE), ValueError, "Y_noisy must be 0 or 1"),
        ((2 * Y - 1, P, NOISE), ValueError, r"pass \(Y \+ 1\) / 2"),
        ((Y, P + 1, NOISE), ValueError, "pred_proba must hold probabilities"),
        ((Y, P * np.nan, NOISE), ValueError, "pred_proba must hold probabilities, between 0 and 1; got nan"),
        ((Y, P.astype(str), NOISE), ValueError, "pred_proba must be a matrix of numbers"),
        ((Y, P, None), TypeError, "noise must be a ClassConditionalNoise"),
        ((Y, P, "estimate"), TypeError, "got str"),
        ((Y, P, TransitionNoise(np.eye(3))), TypeError, "got TransitionNoise"),
        ((Y, P, NOISE, 1.5), ValueError, "min_p_wrong must be from 0 to 1; got 1.5"),
        ((Y, P, NOISE, -0.1), ValueError, "min_p_wrong must be from 0 to 1"),
        ((Y, P, NOISE, float("nan")), ValueError, "min_p_wrong must be from 0 to 1"),
        ((Y, P, NOISE, "high"), ValueError, "min_p_wrong must be a number from 0 to 1; got 'high'"),
    ],
)
def test_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        find_label_issues(*arguments)


def test_refuses_names_in_another_order():
    noise = ClassConditionalNoise(NOISE.rho_pos, NOISE.rho_neg, label_names=["a", "b", "c"])
    with pytest.raises(ValueError, match="bring them into one order"):
        find_label_issues(pd.DataFrame(Y, columns=["b", "a", "c"]), P, noise)
    with pytest.raises(ValueError, match="about the same labels"):
        find_label_issues(pd.DataFrame(Y, columns=["b", "a", "d"]), P, noise)
    with pytest.raises(ValueError, match="pred_proba about c, b, a"):
        find_label_issues(pd.DataFrame(Y, columns=list("abc")), pd.DataFrame(P, columns=list("cba")), noise)
