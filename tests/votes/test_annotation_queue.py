"""Expected gain of further votes against enumeration, and the queue of one annotator."""

import itertools

import numpy as np
import pandas as pd
import pytest

import ccmn
from ccmn.votes import TIE_WEIGHT, expected_gain


def test_gain_agrees_with_bayes_rule_over_all_pairs_of_votes():
    rng = np.random.default_rng(0)
    proba, rho_pos, rho_neg = rng.random((6, 3)), rng.uniform(0.05, 0.9, 3), rng.uniform(0.05, 0.4, 3)
    gain = expected_gain(proba, rho_pos, rho_neg)
    for i, j in np.ndindex(*proba.shape):
        mu, error = proba[i, j], 0.0
        for votes in itertools.product([0, 1], repeat=2):
            true = np.prod([1 - rho_pos[j] if vote else rho_pos[j] for vote in votes])
            absent = np.prod([rho_neg[j] if vote else 1 - rho_neg[j] for vote in votes])
            chance = mu * true + (1 - mu) * absent
            after = mu * true / chance
            error += chance * min(after, 1 - after)
        assert gain[i, j] - TIE_WEIGHT * mu * (1 - mu) == pytest.approx(min(mu, 1 - mu) - error)


def test_queue_of_one_annotator_leaves_out_his_votes():
    rng = np.random.default_rng(0)
    shown = rng.integers(0, 2, (100, 5, 3)).astype(float)
    shown[:, 1:][rng.random((100, 4)) < 0.5] = np.nan
    inferred = ccmn.infer_labels(shown)
    queue = ccmn.votes.next_votes(inferred, 50, annotator=2)
    assert np.isnan(shown[queue.row, 2, queue.label]).all()
    assert queue.gain.is_monotonic_decreasing
    assert len(ccmn.votes.next_votes(inferred, 50, annotator=0)) == 0  # has voted on everything
    with pytest.raises(ValueError, match="annotator must be"):
        ccmn.votes.next_votes(inferred, annotator="nobody")


def test_names_of_labels():
    lines = [(0, "a", "sea", 1), (0, "b", "sea", 0), (1, "a", "sky", 1), (1, "b", "sky", 1), (2, "a", "sky", 0)]
    queue = ccmn.votes.next_votes(ccmn.infer_labels(pd.DataFrame(lines)), 2)
    assert list(queue.columns) == ["row", "label", "name", "proba", "gain"]
    assert set(queue.name) <= {"sea", "sky"}
