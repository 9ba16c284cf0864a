from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from ccmn.audit.label_issues import descending

NEAR_TIES = st.sampled_from([0.0, 0.25, 0.5, np.nextafter(0.5, 1), 0.5 + 1e-12, 1 - 1e-12, 1.0, 5e-324])


@given(arrays(np.float64, st.integers(0, 60), elements=st.one_of(NEAR_TIES, st.floats(0, 1))))
def test_is_the_stable_order(p):
    p = np.abs(p)
    assert_array_equal(descending(p), np.argsort(-p, kind="stable"))


def test_many_with_ties_near_ties_and_none():
    rng = np.random.default_rng(0)
    many = rng.random(50_000)
    for p in (many, many.round(3), 1 - 1e-12 * many, np.zeros(50_000)):
        assert_array_equal(descending(p), np.argsort(-p, kind="stable"))
