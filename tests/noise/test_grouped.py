"""Checks of GroupedNoise: separate rates for each group of rows."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from ccmn.noise import ClassConditionalNoise, GroupedNoise, TransitionNoise
from reference import noisy_vectors

CROWD = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.4, 0.0])
GOLD = ClassConditionalNoise(0.0, 0.0, n_labels=3)
NOISE = GroupedNoise({"crowd": CROWD, "gold": GOLD})
GROUPS = ["gold", "crowd", "crowd", "gold"]
Y = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 0]])


def test_each_row_is_debiased_by_its_own_model():
    p = NOISE.debias(Y, GROUPS)
    np.testing.assert_array_equal(p[[1, 2]], CROWD.debias(Y[[1, 2]]))
    np.testing.assert_array_equal(p[[0, 3]], Y[[0, 3]])


def test_unbiased_by_enumeration():
    for true in itertools.product((0, 1), repeat=3):
        versions = noisy_vectors(true, CROWD.rho_pos, CROWD.rho_neg)
        mean = sum(w * NOISE.debias(np.array([noisy]), ["crowd"])[0] for noisy, w in versions)
        np.testing.assert_allclose(mean, true, atol=1e-12)


def test_groups_without_noise_are_not_flipped():
    many = np.tile(Y, (200, 1))
    flipped = NOISE.corrupt(many, GROUPS * 200, random_state=0)
    same = (flipped == many).all(1).reshape(-1, 4)
    assert same[:, [0, 3]].all()
    assert not same[:, [1, 2]].all()
    np.testing.assert_array_equal(flipped, NOISE.corrupt(many, GROUPS * 200, random_state=0))


def test_containers():
    expected = NOISE.debias(Y, GROUPS)
    frame = NOISE.debias(pd.DataFrame(Y, columns=list("abc")), pd.Series(GROUPS))
    assert list(frame.columns) == list("abc")
    np.testing.assert_array_equal(frame, expected)
    np.testing.assert_array_equal(NOISE.debias(scipy.sparse.csr_array(Y), GROUPS), expected)
    np.testing.assert_allclose(NOISE.debias(torch.tensor(Y, dtype=torch.float32), GROUPS).numpy(), expected, atol=1e-6)
    masked = np.where(Y == 1, np.nan, Y.astype(float))
    assert (np.isnan(NOISE.debias(masked, GROUPS)) == (Y == 1)).all()


def test_sparse_labels_stay_sparse():
    rng = np.random.default_rng(0)
    labels = scipy.sparse.csr_matrix(rng.integers(0, 2, (2000, 3)).astype(np.int8))
    groups = rng.choice(["crowd", "gold"], 2000)
    noisy = NOISE.corrupt(labels, groups, random_state=0)
    assert type(noisy) is type(labels)
    assert noisy.dtype == labels.dtype
    flipped = (noisy != labels).toarray()
    assert not flipped[groups == "gold"].any()
    counted = ClassConditionalNoise.from_pairs(labels[groups == "crowd"], noisy[groups == "crowd"])
    # At least 400 samples of each value: 0.1 is more than four standard errors.
    np.testing.assert_allclose(counted.rho_pos, CROWD.rho_pos, atol=0.1)
    np.testing.assert_allclose(counted.rho_neg, CROWD.rho_neg, atol=0.1)
    assert (NOISE.corrupt(labels[:1], ["gold"], random_state=0) != labels[:1]).nnz == 0
    with pytest.raises(ValueError, match="'mob', which has no rates"):
        NOISE.corrupt(labels[:1], ["mob"])


def test_mean_and_json():
    mean = NOISE.mean(GROUPS)
    np.testing.assert_allclose(mean.rho_neg, CROWD.rho_neg / 2)
    description = json.loads(json.dumps(NOISE.to_dict()))
    assert GroupedNoise.from_dict(description) == NOISE
    assert repr(NOISE) == "GroupedNoise(2 groups, 3 labels)"


def test_errors():
    for error, message, call in (
        (ValueError, "which has no rates; known groups: 'crowd', 'gold'", lambda: NOISE.debias(Y, ["import"] * 4)),
        (ValueError, r"one entry per row \(4\); got 3", lambda: NOISE.debias(Y, GROUPS[:3])),
        (ValueError, "the same labels", lambda: GroupedNoise({"a": CROWD, "b": ClassConditionalNoise([0.1], [0.1])})),
        (ValueError, "at least one group", lambda: GroupedNoise({})),
        (TypeError, "got TransitionNoise", lambda: GroupedNoise({"a": TransitionNoise(np.eye(3))})),
        (ValueError, r"GroupedNoise .* got 'partial'", lambda: GroupedNoise.from_dict({"kind": "partial"})),
    ):
        with pytest.raises(error, match=message):
            call()
