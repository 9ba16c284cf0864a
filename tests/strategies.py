"""Hypothesis strategies: noise models, label matrices, and rows of scores with weights."""

import numpy as np
import torch
from hypothesis import strategies as st

from ccmn.noise import ClassConditionalNoise

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def noises(draw: st.DrawFn, q: int | None = None, largest: int = 5) -> ClassConditionalNoise:
    """Generate noise models with rates in [0, 0.9], zero included, and a sum of at most 0.95."""
    q = draw(st.integers(1, largest)) if q is None else q
    rates = [draw(st.tuples(_rate, _rate).filter(lambda pair: sum(pair) <= 0.95)) for _ in range(q)]
    return ClassConditionalNoise([a for a, _ in rates], [b for _, b in rates])


_rate = st.one_of(st.just(0.0), st.floats(0.0, 0.9))


SCORES = (
    lambda f, p: f,
    lambda f, p: f + 8 * (p > 0.5),  # separated
    lambda f, p: 30 * f,
    lambda f, p: f.round(),  # tied
    lambda f, p: np.full_like(f, 0.7),
    lambda f, p: f + 1000,
    lambda f, p: np.where(np.arange(f.shape[1]) == 0, 60, f),  # one outlier
)
"""Functions that change random scores of rows with these weights of the positive labels."""


@st.composite
def pair_rows(draw: st.DrawFn, largest: int = 400) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Generate float32 scores, positive and negative weights (rows, q), with ties, outliers and masked labels."""
    q = draw(st.one_of(st.integers(1, 3), st.integers(4, 60), st.integers(61, largest)))
    rng = np.random.default_rng(draw(SEEDS))
    rows = draw(st.sampled_from((1, 2, 5, 20)))
    p = rng.normal(0.5, 2, size=(rows, q)) if draw(st.booleans()) else rng.integers(0, 2, size=(rows, q)) * 1.0
    n = 1 - p
    f = draw(st.sampled_from(SCORES))(rng.normal(size=(rows, q)), p)
    if draw(st.booleans()):
        masked = rng.random((rows, q)) < 0.3
        p[masked] = n[masked] = 0
    return tuple(torch.tensor(a, dtype=torch.float32) for a in (f, p, n))
