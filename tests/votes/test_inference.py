"""Labels and rates inferred from synthetic votes with known rates, difficult annotators, and the queue of votes."""

import itertools
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score

import ccmn
from ccmn.votes import TIE_WEIGHT, VoteTable, expected_gain


class Task(NamedTuple):
    X: np.ndarray
    Y: np.ndarray
    votes: np.ndarray
    rho_pos: np.ndarray
    rho_neg: np.ndarray


def make_votes(n, a, q, votes_per_row, seed):
    """Return a task with a logistic posterior, rates from beta distributions and random assignment of annotators."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8))
    scores = X @ rng.normal(size=(8, q)) * 0.7
    Y = (rng.random((n, q)) < 1 / (1 + np.exp(1.2 - scores))).astype(int)
    rho_pos, rho_neg = rng.beta(2, 6, (a, q)), rng.beta(1.5, 15, (a, q))
    votes = np.where(Y[:, None] == 1, rng.random((n, a, q)) >= rho_pos, rng.random((n, a, q)) < rho_neg).astype(float)
    votes[rng.random((n, a)).argsort(1) >= votes_per_row] = np.nan
    return Task(X, Y, votes, rho_pos, rho_neg)


def counted(events, trials):
    """Return the share of events among the trials of every annotator and label."""
    return (events & trials).sum(0) / trials.sum(0)


def mean_precision(Y, scores):
    return np.mean([average_precision_score(Y[:, j], scores[:, j]) for j in range(Y.shape[1])])


@pytest.mark.parametrize("with_features", [False, True])
def test_rates_are_nearly_as_accurate_as_counting_against_the_truth(with_features):
    errors, by_counting, covered = [], [], []
    for seed in range(3):
        task = make_votes(1200, 16, 4, 4, seed)
        inferred = ccmn.infer_labels(task.votes, task.X if with_features else None, random_state=seed)
        voted, true = ~np.isnan(task.votes), task.Y[:, None] == 1
        for rate, interval, known, events, trials in (
            (inferred.rho_pos, inferred.ci_pos, task.rho_pos, task.votes == 0, voted & true),
            (inferred.rho_neg, inferred.ci_neg, task.rho_neg, task.votes == 1, voted & ~true),
        ):
            errors.append(abs(rate - known).mean())
            by_counting.append(abs(counted(events, trials) - known).mean())
            covered.append(((interval[..., 0] <= known) & (known <= interval[..., 1])).mean())
    assert np.mean(errors) < 1.3 * np.mean(by_counting)
    assert 0.83 < np.mean(covered) < 0.97  # 384 intervals: three standard errors around .85 to .95 would be wider


def test_features_improve_the_labels():
    task = make_votes(800, 10, 3, 2, 0)
    mean = mean_precision(task.Y, np.nanmean(task.votes, 1))
    votes_only = mean_precision(task.Y, ccmn.infer_labels(task.votes).proba)
    with_features = mean_precision(task.Y, ccmn.infer_labels(task.votes, task.X).proba)
    assert mean + 0.02 < votes_only
    assert votes_only + 0.01 < with_features


def test_votes_of_an_adversary_are_inverted():
    task = make_votes(800, 4, 2, 4, 0)
    rng = np.random.default_rng(9)
    flipped = np.where(rng.random((800, 2)) < 0.1, task.Y, 1 - task.Y)[:, None].astype(float)
    inferred = ccmn.infer_labels(np.concatenate([task.votes, flipped], 1))
    assert (inferred.rho_pos[4] + inferred.rho_neg[4] > 1.6).all()
    wrong_without = (ccmn.infer_labels(task.votes).labels != task.Y).mean()
    assert (inferred.labels != task.Y).mean() < wrong_without


def test_annotator_who_never_uses_a_label():
    task = make_votes(800, 5, 2, 4, 0)
    votes = task.votes.copy()
    votes[:, 0, 1] = np.where(np.isnan(votes[:, 0, 1]), np.nan, 0)
    inferred = ccmn.infer_labels(votes)
    assert inferred.rho_pos[0, 1] > 0.95
    assert inferred.rho_neg[0, 1] < 0.05
    assert np.isfinite(inferred.proba).all()


def test_labels_that_nobody_or_everybody_uses_and_a_single_annotator():
    votes = np.zeros((60, 3, 3))
    votes[:, :, 1] = 1
    votes[:20, :, 2] = 1
    inferred = ccmn.infer_labels(votes, np.random.default_rng(0).normal(size=(60, 3)))
    np.testing.assert_array_equal(inferred.labels, votes[:, 0])
    single = ccmn.infer_labels(votes[:, :1])
    np.testing.assert_array_equal(single.labels, votes[:, 0])
    assert (inferred.noise.rho_pos + inferred.noise.rho_neg < 1).all()


@pytest.mark.parametrize("n_annotators", [3, 4, 5])
def test_majority_decides_without_evidence(n_annotators):
    patterns = np.array(list(itertools.product([0.0, 1.0], repeat=n_annotators)))[:, :, None]
    inferred = ccmn.infer_labels(patterns)  # all patterns are equally frequent: annotators are equal and uninformative
    share = patterns[:, :, 0].mean(1)
    decided = share != 0.5
    np.testing.assert_array_equal(inferred.labels[decided, 0], (share > 0.5)[decided])
    np.testing.assert_allclose(inferred.proba[~decided], 0.5, atol=1e-6)
    one_each = np.full((10, 10, 1), np.nan)
    one_each[np.arange(10), np.arange(10), 0] = np.arange(10) % 2
    np.testing.assert_array_equal(ccmn.infer_labels(one_each).labels[:, 0], np.arange(10) % 2)


def test_difficult_rows_are_not_taken_for_true_labels():
    rng = np.random.default_rng(0)
    share = np.repeat([0.02, 0.35, 0.95], [1400, 400, 200])  # votes agree on clear rows and disagree on difficult ones
    votes = (rng.random((2000, 5)) < share[:, None]).astype(float)[:, :, None]
    inferred = ccmn.infer_labels(votes)
    truth = share > 0.5
    assert (inferred.labels[:, 0] != truth).mean() <= ((votes.mean(1)[:, 0] > 0.5) != truth).mean()
    assert inferred.proba.sum() == pytest.approx(truth.sum(), rel=0.35)


def test_noise_of_the_aggregated_labels():
    task = make_votes(3000, 6, 2, 4, 0)
    inferred = ccmn.infer_labels(task.votes, task.X)
    observed = ccmn.ClassConditionalNoise.from_pairs(task.Y, inferred.labels)
    np.testing.assert_allclose(inferred.noise.rho_pos, observed.rho_pos, atol=0.04)
    np.testing.assert_allclose(inferred.noise.rho_neg, observed.rho_neg, atol=0.02)


def test_table_of_annotators_and_rows_by_index():
    task = make_votes(80, 3, 2, 3, 0)
    frame = pd.DataFrame(task.X, index=[f"id{i}" for i in range(80)])
    row, annotator, label = np.nonzero(~np.isnan(task.votes))
    lines = {"row": frame.index[row], "annotator": np.array(["x", "y", "z"])[annotator], "label": label}
    lines["value"] = task.votes[row, annotator, label]
    table = pd.DataFrame(lines).sample(frac=1, random_state=0)
    by_index, by_array = ccmn.infer_labels(table, frame), ccmn.infer_labels(task.votes, task.X)
    np.testing.assert_allclose(by_index.proba, by_array.proba)
    np.testing.assert_array_equal(ccmn.infer_labels(VoteTable.read(task.votes), task.X).ci_neg, by_array.ci_neg)
    with pytest.raises(ValueError, match="79 rows"):
        ccmn.infer_labels(task.votes, task.X[1:])
    listed = by_index.annotators
    assert listed.annotator.tolist() == ["x", "x", "y", "y", "z", "z"]
    assert listed.votes.tolist() == [80] * 6
    agreement = np.where(task.votes == 1, by_index.proba[:, None], 1 - by_index.proba[:, None]).mean(0)
    np.testing.assert_allclose(listed.agreement, agreement.ravel())
    assert (listed.rho_pos_low <= listed.rho_pos).all()
    assert (listed.rho_pos <= listed.rho_pos_high).all()


# -- Queue of further votes


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
