"""Hypothesis strategies: small label and score matrices with ties, empty rows, full rows and single labels."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ccmn.noise import NoiseModel

shapes = st.tuples(st.integers(1, 6), st.integers(1, 7))

# Few values, so that ties are frequent. Both zeros are equal; both infinities have a rank.
tied_values = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1e-300, 0.5, np.inf])
any_values = st.floats(-1e6, 1e6)


def labels_of(shape):
    """Return 0/1 matrices with frequent empty and full rows."""
    rows = st.sampled_from(["empty", "full", "mixed", "mixed"])

    def fill(parts):
        Y, kinds = parts
        for i, kind in enumerate(kinds):
            if kind != "mixed":
                Y[i] = kind == "full"
        return Y

    return st.tuples(arrays(np.int64, shape, elements=st.integers(0, 1)), st.tuples(*[rows] * shape[0])).map(fill)


def scores_of(shape):
    """Return real matrices with and without ties."""
    return st.one_of(arrays(np.float64, shape, elements=values) for values in (tied_values, any_values))


labels_and_scores = shapes.flatmap(lambda shape: st.tuples(labels_of(shape), scores_of(shape)))
labels_and_predictions = shapes.flatmap(lambda shape: st.tuples(labels_of(shape), labels_of(shape)))


def random_case(n, q, levels=None, density=0.3, seed=0):
    """Return a larger random pair of matrices; with ``levels``, only that many different scores."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < density).astype(int)
    Y[0], Y[1 % n] = 0, 1
    scores = rng.normal(size=(n, q)) if levels is None else rng.integers(levels, size=(n, q)) / levels
    return Y, scores


def make_task(n=400, q=4, seed=0, threshold=0.5):
    """Return labels and scores that predict them, with ties."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, q)).round(1)
    return (scores + rng.normal(size=(n, q)) > threshold).astype(int), scores


@dataclass
class Estimated:
    """Noise rates with standard errors, like ``NoiseRates``."""

    noise: NoiseModel
    se_pos: np.ndarray
    se_neg: np.ndarray


def central_difference(function, noise, step=1e-5):
    """Return the derivatives (2, q) of a function of a noise model by rho_pos and rho_neg, one-sided at 0."""
    slopes = np.zeros((2, noise.n_labels))
    for kind, j in np.ndindex(*slopes.shape):
        ends = np.tile([noise.rho_pos, noise.rho_neg], (2, 1, 1))
        ends[:, kind, j] += -step, step
        ends = ends.clip(0)
        values = [function(type(noise)(*rates)) for rates in ends]
        slopes[kind, j] = (values[1] - values[0]) / (ends[1] - ends[0])[kind, j]
    return slopes
