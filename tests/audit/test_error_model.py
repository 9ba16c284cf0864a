import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal
from scipy.special import expit, logit
from sklearn.metrics import average_precision_score

from audit import reference
from ccmn import ClassConditionalNoise, find_label_issues


def make_labels(n=2000, q=4, seed=0, strength=2.0):
    """Return true labels and P(true label = 1 | x)."""
    rng = np.random.default_rng(seed)
    clean = 1 / (1 + np.exp(-strength * rng.normal(loc=-1, size=(n, q))))
    return (rng.random((n, q)) < clean).astype(float), clean


@pytest.fixture(scope="module")
def hard_rows():
    """Labels that are wrong only where they are hard to decide."""
    true, clean = make_labels(strength=4.0)
    flipped = np.random.default_rng(2).random(true.shape) < 0.5 * (1 - np.abs(2 * clean - 1))
    return true, np.where(flipped, 1 - true, true), clean


def test_trusted_rows_reveal_labels_that_are_often_wrong(hard_rows):
    true, noisy, P = hard_rows
    true = true.copy()
    added = (noisy[:, 2] == 1) & (np.random.default_rng(3).random(len(true)) < 0.8)
    true[added, 2] = 0
    rows = np.random.default_rng(4).permutation(len(true))[:200]
    others = np.setdiff1d(np.arange(len(true)), rows)
    learned = reference.scores_of(find_label_issues(noisy, P, trusted=(rows, true[rows]), min_p_wrong=0), noisy.shape)
    before = reference.scores_of(find_label_issues(noisy, P), noisy.shape)
    wrong = (noisy != true)[others].ravel()
    precision = [average_precision_score(wrong, s[others].ravel()) for s in (learned, before)]
    assert precision[0] > precision[1] + 0.1
    listed = learned[others].ravel() >= 0.5
    assert abs(learned[others].ravel()[listed].mean() - wrong[listed].mean()) < 0.1


@pytest.mark.parametrize("size", [50, 200])
def test_learned_probabilities_are_calibrated(hard_rows, size):
    """The sum of the error probabilities is close to the number of errors, in samples of verified rows."""
    true, noisy, P = hard_rows
    sums = []
    for seed in range(5):
        rows = np.random.default_rng(seed).permutation(len(true))[:size]
        learned = reference.scores_of(
            find_label_issues(noisy, P, trusted=(rows, true[rows]), min_p_wrong=0), noisy.shape
        )
        sums.append(learned.sum())
    assert 0.8 < np.mean(sums) / (noisy != true).sum() < 1.25


def test_trusted_without_verified_labels_is_ignored(hard_rows):
    _, noisy, P = hard_rows
    nothing = np.full(noisy.shape, np.nan)
    assert_frame_equal(find_label_issues(noisy, P, trusted=nothing), find_label_issues(noisy, P))


def test_verified_labels_are_certain(hard_rows):
    true, noisy, P = hard_rows
    known = np.full(true.shape, np.nan)
    known[5:60, 1] = true[5:60, 1]
    found = reference.scores_of(find_label_issues(noisy, P, trusted=known, min_p_wrong=0), noisy.shape)
    assert_array_equal(found[5:60, 1], noisy[5:60, 1] != true[5:60, 1])
    assert ((found[:, 0] > 0) & (found[:, 0] < 1)).all()
    pair = find_label_issues(noisy, P, trusted=(np.arange(5, 60), known[5:60]), min_p_wrong=0)
    assert_array_equal(reference.scores_of(pair, noisy.shape), found)


class TestAnnotators:
    @pytest.fixture
    def task(self):
        """Labels of three annotators, one of whom adds many false labels."""
        true, clean = make_labels()
        annotator = np.random.default_rng(5).choice(["careful", "usual", "generous"], len(true))
        added = np.where(annotator == "generous", 0.35, 0.02)[:, None]
        noisy = np.where((true == 0) & (np.random.default_rng(6).random(true.shape) < added), 1.0, true)
        return true, noisy, np.clip(clean + 0.09, 0, 1), annotator

    def test_suspicion_adds_the_term_of_the_reference_to_the_log_odds(self, task):
        _, noisy, P, annotator = (part[:60] for part in task)
        noisy = noisy.copy()
        noisy[0, 0] = np.nan
        term = reference.annotator_terms(noisy.tolist(), P.tolist(), annotator.tolist())
        found = reference.scores_of(find_label_issues(noisy, P, groups=annotator), noisy.shape)
        assert_allclose(found, expit(logit(np.abs(noisy - P)) + term))

    @pytest.mark.parametrize("n_trusted", [0, 100])
    def test_annotators_improve_the_order(self, task, n_trusted):
        true, noisy, P, annotator = task
        arguments = {"trusted": (np.arange(n_trusted), true[:n_trusted]), "min_p_wrong": 0} if n_trusted else {}
        wrong = (noisy != true)[n_trusted:].ravel()
        precision = []
        for known in (None, annotator):
            found = reference.scores_of(find_label_issues(noisy, P, groups=known, **arguments), noisy.shape)
            precision.append(average_precision_score(wrong, found[n_trusted:].ravel()))
        assert precision[1] > precision[0] + 0.05

    def test_errors(self, task):
        _, noisy, P, annotator = task
        with pytest.raises(ValueError, match="groups have no effect on the posterior under noise="):
            find_label_issues(noisy, P, ClassConditionalNoise(0.1, 0.1, n_labels=4), groups=annotator)
        with pytest.raises(ValueError, match=r"groups must have one entry per row \(2000\); got 10"):
            find_label_issues(noisy, P, groups=annotator[:10])


class TestVotes:
    @pytest.fixture
    def task(self):
        """Majority labels of three votes, each wrong with probability .25."""
        true, clean = make_labels(strength=1.0)
        wrong = np.random.default_rng(7).random((len(true), 3, 4)) < 0.25
        votes = np.where(wrong, 1 - true[:, None], true[:, None])
        return true, (votes.mean(1) > 0.5).astype(float), clean, votes

    def test_suspicion_adds_the_term_of_the_reference_to_the_log_odds(self, task):
        _, noisy, P, votes = (part[:40].copy() for part in task)
        votes[5:, 0], votes[7, :, 1] = np.nan, np.nan
        mean = np.array([[np.nanmean(own) if np.isfinite(own).any() else np.nan for own in row.T] for row in votes])
        dissent = np.nanmean(np.abs(noisy - mean))
        found = reference.scores_of(find_label_issues(noisy, P, votes=votes), noisy.shape)
        for i, j in np.ndindex(*noisy.shape):
            own = votes[i, ~np.isnan(votes[i, :, j]), j].tolist()
            term = reference.vote_term(noisy[i, j], own, dissent) if own else 0.0
            assert found[i, j] == pytest.approx(expit(logit(abs(noisy[i, j] - P[i, j])) + term))

    def test_errors(self, task):
        _, noisy, P, votes = task
        with pytest.raises(ValueError, match="votes on 2000 rows and 4 labels; got 10 and 4"):
            find_label_issues(noisy, P, votes=votes[:10])
        with pytest.raises(ValueError, match="got both"):
            find_label_issues(noisy, P, votes=votes, groups=["a"] * 2000)
