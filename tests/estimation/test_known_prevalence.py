"""Known prevalence: the closed forms invert the noise exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.estimation import estimate_noise
from ccmn.estimation.trusted import closed_form


@given(st.floats(0.05, 0.95), st.floats(0.0, 0.9))
def test_the_closed_forms_are_exact(prior, rho):
    added = closed_form(rho * (1 - prior) + prior, 1000, prior, "partial")
    assert added.neg.value == pytest.approx(rho, abs=1e-12)
    assert added.pos.value == 0
    lost = closed_form((1 - rho) * prior, 1000, prior, "missing")
    assert lost.pos.value == pytest.approx(rho, abs=1e-12)
    assert lost.neg.value == 0


def test_what_no_rate_explains_is_flagged():
    assert closed_form(0.2, 1000, 0.5, "partial").notes[0][0] == "side_contradicted"
    assert closed_form(0.5, 1000, 0.2, "missing").notes[0][0] == "side_contradicted"
    assert closed_form(0.5, 1000, 0.0, "missing").notes[0][0] == "unidentified"
    assert closed_form(0.5, 0, 0.5, "partial").notes[0][0] == "unidentified"


def test_labels_alone_are_enough():
    Y = (np.random.default_rng(0).random((2000, 2)) < [0.4, 0.5]).astype(int)
    rates = estimate_noise(Y_noisy=Y, sides="partial", prevalence=[0.1, 0.2])
    np.testing.assert_allclose(rates.rho_neg, (Y.mean(0) - [0.1, 0.2]) / [0.9, 0.8])
    np.testing.assert_allclose(rates.prior, [0.1, 0.2], atol=1e-12)
    assert rates.method == ("known prevalence",) * 2
