"""Proximal steps minimise what they say, and the short ways agree with the long one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines import reference
from ccmn.baselines.proximal import shrink_singular_values, shrink_tall, soft_threshold

SEEDS, WEIGHTS = st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 1.0, 3.0, 100.0, np.inf])


@given(SEEDS, WEIGHTS)
def test_agree_with_the_definitions(seed, t):
    A = 2 * np.random.default_rng(seed).standard_normal((7, 3))
    assert soft_threshold(A, t) == pytest.approx(reference.soft(A, t), abs=1e-14)
    assert shrink_singular_values(A, t) == pytest.approx(reference.svt(A, t), abs=1e-12)
    assert shrink_tall(A, t) == pytest.approx(reference.svt(A, t), abs=1e-11)


def test_nothing_survives_as_exact_zeros():
    A = np.random.default_rng(0).standard_normal((4, 3))
    t = np.linalg.norm(A, 2) * (1 + 1e-12)
    for shrink in (shrink_singular_values, shrink_tall):
        assert not shrink(A, t).any()
        assert not shrink(np.zeros((4, 3)), 0.5).any()
