"""The multilinear forms against their slow twin, for labels that are any real numbers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from ccmn.metrics.corrected_metrics import corrected_average_precision, corrected_coverage
from metrics import reference
from strategies import SEEDS

FORMS = [
    (corrected_average_precision, reference.average_precision),
    (corrected_coverage, reference.coverage),
    (partial(corrected_coverage, normalised=True), partial(reference.coverage, normalised=True)),
]


@settings(max_examples=60)
@given(seed=SEEDS)
def test_agrees_with_the_sum_over_all_label_vectors(seed):
    rng = np.random.default_rng(seed)
    q = rng.integers(1, 7)
    p, f = rng.normal(0.5, 1, q), rng.normal(size=q).round(1) if rng.random() < 0.5 else rng.integers(3, size=q) * 1.0
    p[rng.random(q) < 0.3] = rng.integers(2)
    for fast, slow in FORMS:
        found = fast(torch.tensor(p)[None], torch.tensor(f)[None]).item()
        assert found == pytest.approx(reference.multilinear(slow, p, f), abs=1e-9)


@pytest.mark.parametrize("fast", [form[0] for form in FORMS])
def test_stacks_masks_and_weights(fast):
    torch.manual_seed(0)
    p, f = torch.rand(8, 4, dtype=torch.float64) * 2 - 0.5, torch.randn(2, 3, 8, 4).round(decimals=1)
    weights = torch.tensor([1.0, 2, 0, 1, 1, 3, 1, 1])
    repeated = torch.repeat_interleave(torch.arange(8), weights.long())
    together = fast(p, f)
    assert together.shape == (2, 3)
    assert together[1, 2].item() == pytest.approx(fast(p, f[1, 2]).item())
    assert fast(p, f[0, 0], weights).item() == pytest.approx(fast(p[repeated], f[0, 0][repeated]).item())
    p[3, 1] = torch.nan
    kept = [i for i in range(8) if i != 3]
    assert fast(p, f[0, 0]).item() == pytest.approx(fast(p[kept], f[0, 0][kept]).item())


def test_a_factor_of_zero_is_no_division_by_zero():
    """p = 1 / (1 - z) at a node z of the integral: the whole product is 0 there, the parts of it are not."""
    z = 0.5 - 0.5 / 3**0.5  # a node for two labels
    p, f = [1 / (1 - z), 0.3], [0.2, 0.7]
    found = corrected_average_precision(torch.tensor([p], dtype=torch.float64), torch.tensor([f])).item()
    assert found == pytest.approx(reference.multilinear(reference.average_precision, p, f), abs=1e-12)


def test_half_of_the_labels_lost():
    """p = 2, for which the node in the middle would not do."""
    p, f = [2.0, 0.0, 2.0, 2.0], [0.2, 0.7, 0.1, 0.7]
    found = corrected_average_precision(torch.tensor([p], dtype=torch.float64), torch.tensor([f])).item()
    assert found == pytest.approx(reference.multilinear(reference.average_precision, p, f), abs=1e-12)
