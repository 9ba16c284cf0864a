"""Labels that are 1 or NaN and never 0, without noise or under noise that removes true labels."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier, MissingNoise, PartialNoise, estimate_noise
from ccmn.data import make_noisy_multilabel

NAMES = ["sea", "sky", "sun"]
MISSING = MissingNoise([0.3, 0.3, 0.3])
NO_ZERO = "Expected an observed 0.*Write 0 for 'not given' and NaN only for 'nobody looked'"
TASK = make_noisy_multilabel(300, 4, 3, strength=6, noise=MISSING, random_state=0)
WITHOUT_ZEROS = np.where(TASK.Y_noisy == 1, 1.0, np.nan)
ONE_WITHOUT = np.column_stack([TASK.Y_noisy[:, 0], WITHOUT_ZEROS[:, 1], TASK.Y_noisy[:, 2]])


def fit(noise, Y, rows=slice(None), **options):
    return CCMNClassifier(noise, epochs=1, lr=0.05, random_state=0).fit(TASK.X[rows], Y[rows], **options)


def correct(noise, Y):
    return CorrectedClassifier(LogisticRegression(), noise).fit(TASK.X, Y)


@pytest.mark.parametrize("noise", ["missing", "both", MISSING, ClassConditionalNoise([0.3] * 3, [0.0] * 3), None])
def test_a_matrix_without_zeros_is_rejected(noise):
    for call in (fit, correct):
        with pytest.raises(ValueError, match=r"for labels 'sea', 'sky' and 'sun' \(of 3\)"):
            call(noise, pd.DataFrame(WITHOUT_ZEROS, columns=NAMES))
        with pytest.raises(ValueError, match=r"^Expected .* for labels 0, 1 and 2 \(of 3\)"):
            call(noise, WITHOUT_ZEROS)


def test_one_label_without_zeros_is_rejected_if_labels_were_only_removed():
    Y = pd.DataFrame(ONE_WITHOUT, columns=NAMES)
    for call in (fit, correct, lambda noise, Y: estimate_noise(TASK.X, Y, noise_type="missing")):
        with pytest.raises(ValueError, match=r"got only 1 and NaN for label 'sky' \(of 3\)"):
            call("missing", Y)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_valid_labels_are_accepted():
    for noise in ("both", None, PartialNoise([0.1] * 3), ClassConditionalNoise([0.3] * 3, [0.1] * 3)):
        fit(noise, ONE_WITHOUT)
    fit("missing", ONE_WITHOUT, trusted=(np.arange(40), TASK.Y[:40]))
    always = TASK.Y_noisy.astype(float)
    always[:, 1] = 1
    fit("missing", always)  # a label that is always present
    always[:100, 0] = np.nan
    always[100:150] = np.nan
    fit("missing", always)  # it has no NaN in rows in which other labels are observed
    rare = TASK.Y_noisy.astype(float)
    rare[:, 1] = np.where(np.arange(300) < 2, 1, np.nan)
    fit("missing", rare)  # the few observed labels are positive, which may be chance
