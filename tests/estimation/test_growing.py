from __future__ import annotations

import warnings

import numpy as np
import pytest

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import GrowingEstimate, estimate_noise, evidence
from ccmn.noise import ClassConditionalNoise

TASK = make_noisy_multilabel(
    300, 4, 3, strength=6, noise=ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.3, 0.1]), random_state=0
)


def some_rows(many):
    rows = np.random.default_rng(many).permutation(300)[:many]
    return rows, TASK.Y[rows]


def test_is_estimate_noise_with_models_fitted_once(monkeypatch):
    fits = []
    fit = evidence.label_surfaces
    monkeypatch.setattr(evidence, "label_surfaces", lambda *given: fits.append(1) or fit(*given))
    growing = GrowingEstimate(TASK.X, TASK.Y_noisy, "both", random_state=4)
    found = [growing.rates(trusted) for trusted in (None, some_rows(20), some_rows(90), None)]
    assert len(fits) == 1
    for trusted, rates in zip((None, some_rows(20), some_rows(90), None), found):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = estimate_noise(TASK.X, TASK.Y_noisy, trusted=trusted, random_state=4)
        assert rates.to_dict() == expected.to_dict()


def test_refuses_trusted_rows_that_are_not_there():
    with pytest.raises(ValueError, match="300"):
        GrowingEstimate(TASK.X, TASK.Y_noisy).rates((np.array([300]), TASK.Y[:1]))
