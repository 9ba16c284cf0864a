"""Conversion of ``random_state`` arguments."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn._random import as_generator


def test_generator_is_returned_unchanged():
    rng = np.random.default_rng(0)
    assert as_generator(rng) is rng


def test_accepted_types():
    for seed in (0, np.int64(3), np.random.SeedSequence(5)):
        assert as_generator(seed).random() == as_generator(seed).random()
    assert as_generator(np.random.RandomState(0)).random() == as_generator(np.random.RandomState(0)).random()
    assert as_generator(None).random() != as_generator(None).random()


@pytest.mark.parametrize(("bad", "error"), [(-1, ValueError), ("0", TypeError), (1.5, TypeError), (True, TypeError)])
def test_invalid_random_states(bad, error):
    with pytest.raises(error, match="random_state must"):
        as_generator(bad)
