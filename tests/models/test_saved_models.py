"""Models that ``saved/write.py`` has saved load and predict the same values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccmn import load_model

SAVED = Path(__file__).parent / "saved"


@pytest.mark.parametrize("name", ["ranking_linear", "hamming_mlp"])
def test_saved_models_predict_the_same(name):
    expected = np.load(SAVED / "expected.npz")
    clf = load_model(SAVED / f"{name}.ccmn")
    np.testing.assert_allclose(clf.decision_function(expected["X"]), expected[f"{name}_s"], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(clf.predict_proba(expected["X"]), expected[f"{name}_p"], rtol=1e-12, atol=1e-12)
