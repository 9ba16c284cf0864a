"""Diagnosis of noise that is not class-conditional, and of confused labels."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from ccmn import diagnose_noise, estimate_noise
from ccmn.data import make_noisy_multilabel
from ccmn.estimation import resolve_uncertain
from ccmn.estimation.diagnosis import mixture_share
from ccmn.noise import ClassConditionalNoise

DATA = make_noisy_multilabel(2000, 4, 3, strength=4.0, random_state=0)
ROWS = np.random.default_rng(0).permutation(2000)[:500]
TRUSTED = (ROWS, DATA.Y[ROWS])


def flipped_by_posterior():
    """Return labels that were added only where the posterior is high."""
    rng = np.random.default_rng(1)
    likely = np.where(DATA.posterior > 0.15, 0.8, 0.02)
    return np.where((DATA.Y == 0) & (rng.random(DATA.Y.shape) < likely), 1, DATA.Y)


def test_feature_dependent_noise_is_flagged():
    found = diagnose_noise(DATA.X, flipped_by_posterior(), TRUSTED)
    assert found.pooled.low > 0.6
    assert all(each.value > 0.7 for each in found.added)
    assert all(each.pairs == 0 and (each.low, each.high) == (0, 1) for each in found.removed)
    labels = {flag.label for flag in found.flags if flag.code == "not_class_conditional"}
    assert labels == {None, 0, 1, 2}
    assert "do not describe the noise" in found.flags[0].note


def test_class_conditional_noise_is_not_flagged():
    noise = ClassConditionalNoise([0.3, 0.2, 0.1], [0.1, 0.2, 0.3])
    found = diagnose_noise(DATA.X, noise.corrupt(DATA.Y, random_state=0), TRUSTED)
    assert found.pooled.low < 0.5 < found.pooled.high + 0.05
    assert not found.flags
    free = diagnose_noise(DATA.X, noise.corrupt(DATA.Y, random_state=0))
    assert free.pooled.pairs == 0
    assert not free.flags


def mark_uncertain(rate_pos, rate_neg, seed=0):
    """Return true labels in which some positives and negatives are replaced by -1, independently of the features."""
    drawn = np.random.default_rng(seed).random(DATA.Y.shape)
    return np.where(drawn < np.where(DATA.Y == 1, rate_pos, rate_neg), -1, DATA.Y.astype(int))


@pytest.mark.parametrize("rates", [(0.5, 0.05), (0.1, 0.3)])
def test_share_of_positives_among_uncertain_entries(rates):
    Y = mark_uncertain(*rates)
    found = resolve_uncertain(DATA.X, Y)
    unclear = Y == -1
    for j in range(Y.shape[1]):
        true = DATA.Y[unclear[:, j], j]
        assert found.counts[j] == true.size
        assert found.share[j] == pytest.approx(true.mean(), abs=0.1)
        assert found.ci[j, 0] <= found.share[j] <= found.ci[j, 1]
        assert found.proba[unclear[:, j], j].mean() == pytest.approx(found.share[j], abs=1e-3)
    np.testing.assert_array_equal(found.Y[~unclear], DATA.Y[~unclear])
    resolved = unclear & ~np.isnan(found.Y)
    assert (found.Y[resolved] == DATA.Y[resolved]).mean() > 0.85
    assert np.isin(found.Y[resolved], (0, 1)).all()


def test_intervals_of_uncertain_shares_cover():
    """The scores are the true posteriors of a known mixture."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        true = rng.random(150) < 0.3
        ratio = np.exp(2 * (rng.normal(size=150) + 2 * true) - 2)  # normal scores with means 0 and 2
        low, high = mixture_share(ratio)[1]
        covered.append(low <= 0.3 <= high)
    assert 0.84 < np.mean(covered) < 0.96


def test_resolve_uncertain_keeps_unobserved_entries_and_other_codes():
    Y = np.array([[1, np.nan], [0, 9], [1, 1], [0, 1]])
    found = resolve_uncertain(Y=Y, pred_proba=np.full((4, 2), 0.5), uncertain=9)
    assert np.isnan(found.Y[0, 1])
    assert np.isnan(found.share[0])
    assert found.share[1] == 0.5  # the given labels are all equal and carry no information
    assert found.counts.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"Y": [[1]]}, "either features X or"),
        ({"X": [[1.0]], "Y": [[1]], "pred_proba": [[0.5]]}, "either features X or"),
        ({"Y": [[1]], "pred_proba": [[0.5]], "confidence": 0.5}, "confidence"),
        ({"Y": [[1]], "pred_proba": [[0.5]], "uncertain": 1}, "uncertain must be"),
        ({"Y": [[1, 0]], "pred_proba": [[0.5]]}, "pred_proba"),
    ],
)
def test_resolve_uncertain_rejects_invalid_arguments(arguments, match):
    with pytest.raises(ValueError, match=match):
        resolve_uncertain(**arguments)


def test_label_that_a_group_never_uses_is_flagged():
    Y = DATA.Y[:400].copy()
    Y[:200, 1] = 0
    rates = estimate_noise(DATA.X[:400], Y, groups=np.repeat(["a", "b"], 200)).rates
    assert rates["a"].labels_with("unused_label") == [1]
    assert rates["a"].ci_pos[1].tolist() == [0, 1]
    assert not rates["b"].labels_with("unused_label")


# -- Search for confused labels: power, false alarms, and data that it must not accuse

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
