from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ccmn.data.dataset import split


@given(st.integers(10, 5000), st.integers(0, 2**32))
def test_parts_are_disjoint_and_complete(n, seed):
    parts = split(n, random_state=seed)
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_sizes_of_the_paper():
    assert [len(part) for part in split(2417, random_state=0)] == [1208, 484, 725]
    assert [len(part) for part in split(10, (0.8, 0.2), random_state=0)] == [8, 2]


@pytest.mark.parametrize(
    ("n", "fractions", "message"),
    [
        (10, (0.5, 0.6), r"fractions must be positive numbers with sum 1.*got \(0.5, 0.6\)"),
        (10, (1.5, -0.5), "positive"),
        (10, (), "fractions must be positive"),
        (10, ("a", "b"), "must be numbers"),
        (2, (0.5, 0.2, 0.3), "n=2 rows are too few"),
        (0, (1.0,), "n must be an integer"),
        (2.5, (1.0,), "n must be an integer"),
    ],
)
def test_rejected(n, fractions, message):
    with pytest.raises(ValueError, match=message):
        split(n, fractions)
