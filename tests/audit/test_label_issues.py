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

from audit import reference
from ccmn import ClassConditionalNoise, PartialNoise, find_label_issues
from ccmn.estimation import NoiseRates
from ccmn.noise import TransitionNoise
from reference import noisy_vectors
from strategies import SEEDS, noises

NOISE = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.3, 0.0])
COLUMNS = ["row", "label", "given", "suspicion", "p_wrong", "suggested"]


def random_labels(seed, n=40, q=3):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, (n, q)), rng.random((n, q))


def error_probabilities(Y, P, noise):
    """Return the error probabilities (n, q) of all labels."""
    return reference.scores_of(find_label_issues(Y, P, noise, min_p_wrong=0), np.shape(P), "p_wrong")


@given(noises(), SEEDS, st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.booleans())
def test_find_label_issues_agrees_with_reference(noise, seed, least, masked):
    """Predictions include 0, 1 and the limits of the range under the noise."""
    # Rates are 0 or at least 0.001. For a rate of 1e-300, the last bit of a prediction would decide the result.
    noise = ClassConditionalNoise(noise.rho_pos.round(3), noise.rho_neg.round(3))
    Y, P = random_labels(seed, 16, noise.n_labels)
    P[:4] = [*P[:2].round(), noise.rho_neg, 1 - noise.rho_pos]
    Y = np.where(np.random.default_rng(seed).random(Y.shape) < 0.3, np.nan, Y) if masked else Y
    every = {(i, j): (y, p) for i, j, y, p in reference.issues(Y, P, noise.rho_pos, noise.rho_neg, 0)}
    found = find_label_issues(Y, P, noise, min_p_wrong=least)
    listed = {(row.row, row.label): (row.given, row.p_wrong) for row in found.itertuples()}
    assert len(listed) == len(found)
    assert {place for place, (_, p) in every.items() if p > least + 1e-9} <= listed.keys()
    for place, (given_label, p) in listed.items():
        assert given_label == every[place][0]
        assert p == pytest.approx(every[place][1], abs=1e-10)
        assert p >= least


@pytest.mark.parametrize("noise", [None, NOISE])
def test_order_columns_and_top(monkeypatch, noise):
    Y, P = random_labels(8, 60)
    P = P.round(1)  # ties
    whole = find_label_issues(Y, P, noise)
    assert list(whole.columns) == COLUMNS
    assert [whole[name].dtype.kind for name in whole] == ["i", "i", "i", "f", "f", "i"]
    assert_array_equal(np.lexsort((whole.label, whole.row, -whole.suspicion)), np.arange(len(whole)))
    assert (whole.suggested == np.where(whole.suspicion > 0.5, 1 - whole.given, whole.given)).all()
    if noise is None:  # self-confidence
        assert len(whole) == Y.size
        assert whole.p_wrong.isna().all()
        assert_allclose(whole.suspicion, np.where(Y == 1, 1 - P, P)[whole.row, whole.label])
    else:
        assert (whole.p_wrong >= 0.5).all()
        assert_frame_equal(find_label_issues(Y, P, NoiseRates.known(NOISE, Y)), whole)
    monkeypatch.setattr("ccmn.audit.label_issues.MAX_BLOCK_ENTRIES", 7)
    for top in (1, 20, 10_000):
        assert_frame_equal(find_label_issues(Y, P, noise, top=top), whole.head(top))
    if noise is None:
        with pytest.raises(ValueError, match=r"min_p_wrong requires error probabilities.*trusted="):
            find_label_issues(Y, P, min_p_wrong=0.5)
    with pytest.raises(ValueError, match="top must be an integer of at least 1; got 0"):
        find_label_issues(Y, P, noise, top=0)


@pytest.mark.parametrize("case", ["ranked", "declared", "learned"])
def test_blocks_and_containers_give_the_same_result(monkeypatch, case):
    Y, P = random_labels(3, 50)
    knowledge = {"ranked": {}, "declared": {"noise": NOISE}, "learned": {"trusted": (np.arange(20), 1 - Y[:20])}}[case]
    whole = find_label_issues(Y, P, **knowledge)
    monkeypatch.setattr("ccmn.audit.label_issues.MAX_BLOCK_ENTRIES", 7)
    texts = np.where(np.isnan(Y), None, np.where(Y == 1, "1", "0"))
    dense = Y.tolist(), texts, Y.astype(bool), torch.tensor(Y)
    for labels in (*dense, scipy.sparse.csr_matrix(Y), scipy.sparse.coo_array(Y)):
        assert_frame_equal(find_label_issues(labels, P, **knowledge), whole)
    for probabilities in (P.tolist(), torch.tensor(P), pd.DataFrame(P)):
        assert_frame_equal(find_label_issues(Y, probabilities, **knowledge), whole)
    for named in (
        (pd.DataFrame(Y, columns=list("abc"), index=range(5, 55)), P),
        (Y, pd.DataFrame(P, columns=list("abc"))),
    ):
        found = find_label_issues(*named, **knowledge)
        assert found.label.tolist() == ["abc"[j] for j in whole.label]
        assert_array_equal(found.row, whole.row)


def test_noise_that_cannot_occur_is_not_listed():
    assert list(find_label_issues(*random_labels(4), ClassConditionalNoise(0.0, 0.0, n_labels=3)).columns) == COLUMNS
    assert set(find_label_issues(*random_labels(6), PartialNoise(0.4, n_labels=3)).given) == {1}
    Y, P = random_labels(5)
    assert len(find_label_issues(Y * np.nan, P, NOISE, min_p_wrong=0)) == 0


Y, P = random_labels(9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Y, P[:5], NOISE), ValueError, r"shape .n, q.; got \(40, 3\) and \(5, 3\)"),
        ((Y[:, :2], P, NOISE), ValueError, "Y_noisy must have 3 labels"),
        ((Y, P + 1, NOISE), ValueError, "pred_proba must be probabilities"),
        ((Y, P, "estimate"), TypeError, "got str"),
        ((Y, P, TransitionNoise(np.eye(3))), TypeError, "got TransitionNoise"),
    ],
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        find_label_issues(*arguments)


def test_label_names_must_match():
    noise = ClassConditionalNoise(NOISE.rho_pos, NOISE.rho_neg, label_names=["a", "b", "c"])
    assert set(find_label_issues(Y, P, noise).label) <= {"a", "b", "c"}
    with pytest.raises(ValueError, match="reorder the columns"):
        find_label_issues(pd.DataFrame(Y, columns=["b", "a", "c"]), P, noise)
    with pytest.raises(ValueError, match="the same labels"):
        find_label_issues(pd.DataFrame(Y, columns=["b", "a", "d"]), P, noise)
    with pytest.raises(ValueError, match="pred_proba has c, b, a"):
        find_label_issues(pd.DataFrame(Y, columns=list("abc")), pd.DataFrame(P, columns=list("cba")), noise)


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), "high"])
def test_invalid_min_p_wrong(value):
    with pytest.raises(ValueError, match=r"min_p_wrong must be (a number )?from 0 to 1"):
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
    found = error_probabilities(given_labels, np.stack([seen[1], seen[1]]), noise)
    # Compare joint probabilities: for rare values, rounding makes the ratio inaccurate.
    assert_allclose(found * seen, wrong, atol=1e-12)


def test_p_wrong_of_one_is_ordered_by_prediction():
    found = error_probabilities(np.ones((3, 1)), np.array([[0.1], [0.2], [0.3]]), ClassConditionalNoise([0.2], [0.4]))
    assert_allclose(found, 1, atol=1e-12)
    assert found[0] > found[1] > found[2]
