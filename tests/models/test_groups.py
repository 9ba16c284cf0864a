"""fit(..., groups=): every row is corrected with the rates of its group."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn import CCMNClassifier, ClassConditionalNoise, load_model
from ccmn.data import make_noisy_multilabel
from ccmn.noise import GroupedNoise

DATA = make_noisy_multilabel(1500, 5, 3, strength=8.0, random_state=0)
GROUPS = np.array(["site", "gold"])[(np.arange(1500) % 3 == 0).astype(int)].tolist()
NOISE = GroupedNoise(
    {"site": ClassConditionalNoise(0.05, 0.6, n_labels=3), "gold": ClassConditionalNoise(0.0, 0.0, n_labels=3)}
)
NOISY = NOISE.corrupt(DATA.Y, GROUPS, random_state=1)


def square(noise):
    return CCMNClassifier(noise, loss="hamming", lr=0.05, epochs=30, random_state=0)


def right(clf):
    return (clf.predict(DATA.X) == DATA.Y).mean()


def test_rates_per_group_outperform_no_correction(tmp_path):
    known = square(NOISE).fit(DATA.X, NOISY, groups=GROUPS)
    estimated = square("both").fit(DATA.X, NOISY, groups=GROUPS)
    plain = square(None).fit(DATA.X, NOISY)
    assert right(known) > right(plain) + 0.05
    assert right(estimated) > right(plain) + 0.05
    assert known.group_noise_ == NOISE
    np.testing.assert_allclose(known.noise_.rho_neg, 0.4)
    assert estimated.rates_["site"].rho_neg.mean() == pytest.approx(0.6, abs=0.12)
    known.save(tmp_path / "model.ccmn")
    loaded = load_model(tmp_path / "model.ccmn")
    assert loaded.noise == NOISE
    np.testing.assert_array_equal(loaded.predict(DATA.X), known.predict(DATA.X))


def test_error_messages():
    with pytest.raises(ValueError, match="group of every row"):
        square(NOISE).fit(DATA.X, NOISY)
    with pytest.raises(TypeError, match="a GroupedNoise; got None"):
        square(None).fit(DATA.X, NOISY, groups=GROUPS)
    with pytest.raises(ValueError, match="clean validation rows"):
        square(NOISE).fit(DATA.X, NOISY, groups=GROUPS, validation=(DATA.X, NOISY))
