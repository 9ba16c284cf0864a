"""Labels that are 1 or NaN and never 0, without noise or under noise that removes true labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression

from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier, MissingNoise, PartialNoise, estimate_noise
from ccmn.data import make_noisy_multilabel
from ccmn.estimation.evidence import MIN_POSITIVES_WITHOUT_ZERO, check_zeros_observed
from ccmn.noise import GroupedNoise

NAMES = ["sea", "sky", "sun"]
MISSING = MissingNoise([0.3, 0.3, 0.3])
NO_ZERO = "have observed positives but no observed 0.*Write 0 for 'not given' and NaN only for 'nobody looked'"


@pytest.fixture(scope="module")
def task():
    return make_noisy_multilabel(300, 4, 3, strength=6, noise=MISSING, random_state=0)


@pytest.fixture(scope="module")
def without_zeros(task):
    return np.where(task.Y_noisy == 1, 1.0, np.nan)


@pytest.fixture(scope="module")
def one_without_zeros(task, without_zeros):
    Y = task.Y_noisy.astype(float)
    Y[:, 1] = without_zeros[:, 1]
    return Y


def fit(noise, X, Y, **options):
    return CCMNClassifier(noise, epochs=2, random_state=0).fit(X, Y, **options)


NOISES = ["missing", "both", MISSING, ClassConditionalNoise([0.3] * 3, [0.0] * 3), None]


@pytest.mark.parametrize("noise", NOISES, ids=["missing", "both", "MissingNoise", "ClassConditionalNoise", "None"])
def test_a_matrix_without_zeros_is_rejected(task, without_zeros, noise):
    Y = pd.DataFrame(without_zeros, columns=NAMES)
    for fit_labels in (fit, lambda noise, X, Y: CorrectedClassifier(LogisticRegression(), noise).fit(X, Y)):
        with pytest.raises(ValueError, match=rf"^Labels 'sea', 'sky', 'sun' \(3 of 3\) {NO_ZERO}"):
            fit_labels(noise, task.X, Y)
        with pytest.raises(ValueError, match=r"^Labels 0, 1, 2 \(3 of 3\)"):
            fit_labels(noise, task.X, without_zeros)


@pytest.mark.parametrize("noise_type", ["missing", "both", ["partial", "missing", "both"]])
def test_estimate_noise_rejects_a_matrix_without_zeros(task, without_zeros, noise_type):
    with pytest.raises(ValueError, match=NO_ZERO):
        estimate_noise(task.X, without_zeros, noise_type=noise_type)


def test_few_rows_are_checked_as_well(task, without_zeros):
    with pytest.raises(ValueError, match=NO_ZERO):
        fit("missing", task.X[:50], without_zeros[:50])


def test_groups_are_checked_as_well(task, without_zeros):
    groups = ["a", "b"] * 150
    with pytest.raises(ValueError, match=NO_ZERO):
        fit(GroupedNoise({"a": MISSING, "b": MISSING}), task.X, without_zeros, groups=groups)
    with pytest.raises(ValueError, match=NO_ZERO):
        fit("missing", task.X, without_zeros, groups=groups)


def test_one_label_without_zeros_is_rejected_if_labels_were_only_removed(task, one_without_zeros):
    Y = pd.DataFrame(one_without_zeros, columns=NAMES)
    for noise in ("missing", MISSING):
        with pytest.raises(ValueError, match=r"^Label 'sky' \(1 of 3\) has observed positives but no observed 0"):
            fit(noise, task.X, Y)
    with pytest.raises(ValueError, match="Label 'sky'"):
        estimate_noise(task.X, Y, noise_type="missing")
    with pytest.raises(ValueError, match="Label 'sky'"):
        CorrectedClassifier(LogisticRegression(), "missing").fit(task.X, Y)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_label_without_zeros_is_accepted_under_other_noise(task, one_without_zeros):
    for noise in ("both", None, PartialNoise([0.1] * 3), ClassConditionalNoise([0.3] * 3, [0.1] * 3)):
        fit(noise, task.X, one_without_zeros)
    estimate_noise(task.X, one_without_zeros)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_valid_labels_are_accepted(task, without_zeros, one_without_zeros):
    always = task.Y_noisy.astype(float)
    always[:, 1] = 1
    fit("missing", task.X, always)  # a label that is always present
    fit("missing", task.X, np.ones_like(always))
    always[:100, 0] = np.nan
    fit("missing", task.X, always)  # the label that is always present has no NaN, another label has
    always[100:150] = np.nan
    fit("missing", task.X, always)  # these rows are not observed
    rare = task.Y_noisy.astype(float)
    rare[:, 1] = np.nan
    rare[: MIN_POSITIVES_WITHOUT_ZERO - 1, 1] = 1
    fit("missing", task.X, rare)  # the few observed labels are positive, which may be chance
    fit("missing", task.X, one_without_zeros, trusted=(np.arange(40), task.Y[:40]))


def test_five_labels_are_named():
    Y = np.full((30, 8), np.nan)
    Y[:20] = 1
    with pytest.raises(ValueError, match=r"^Labels 'a', 'b', 'c', 'd', 'e' and 3 more \(8 of 8\)"):
        check_zeros_observed(Y, np.ones(8, dtype=bool), list("abcdefgh"))


def test_sparse_labels_have_zeros():
    Y = scipy.sparse.csr_matrix(([1.0, np.nan, 1.0], ([0, 1, 0], [0, 0, 1])), shape=(2, 2))
    check_zeros_observed(Y, np.ones(2, dtype=bool), None)
    full = scipy.sparse.csr_matrix(np.where(np.arange(40).reshape(20, 2) % 3, 1.0, np.nan))
    with pytest.raises(ValueError, match="Labels 0, 1"):
        check_zeros_observed(full, np.ones(2, dtype=bool), None)
