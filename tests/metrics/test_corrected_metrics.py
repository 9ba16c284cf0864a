"""Corrected metrics: unbiased by enumeration of all noisy label vectors, and equal to the metrics on true labels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from ccmn.metrics import hamming_loss, one_error
from ccmn.metrics.corrected_metrics import (
    corrected_hamming,
    corrected_one_error,
    pooled_ranking_loss,
    wrong_pair_weights,
)
from reference import noisy_vectors
from strategies import SEEDS, noises


def reference_pooled_loss(Y, scores):
    wrong = pairs = 0.0
    for y, f in zip(Y, scores):
        for j, k in itertools.permutations(range(len(y)), 2):
            if y[j] == 1 and y[k] == 0:
                pairs += 1
                wrong += 1.0 if f[j] < f[k] else 0.5 if f[j] == f[k] else 0.0
    return wrong / pairs


def test_clean_labels_give_the_metrics():
    rng = np.random.default_rng(0)
    Y, scores = rng.integers(0, 2, (20, 5)), rng.normal(size=(20, 5)).round(1)
    p, f = torch.tensor(Y), torch.tensor(scores)
    assert corrected_hamming(p.double(), f >= 0).item() == pytest.approx(hamming_loss(Y, (scores >= 0).astype(int)))
    assert corrected_one_error(p.double(), f).item() == pytest.approx(one_error(Y, scores))
    assert pooled_ranking_loss(p.double(), f).item() == pytest.approx(reference_pooled_loss(Y, scores))


@settings(max_examples=30)
@given(noise=noises(largest=4), seed=SEEDS)
def test_unbiased_by_enumeration(noise, seed):
    """Hamming loss and one-error of one row, and the numerator of the pooled ranking loss."""
    torch.manual_seed(seed)
    q = noise.n_labels
    y = torch.randint(0, 2, (q,)).tolist()
    f = torch.randn(1, q, dtype=torch.float64).round(decimals=1)
    clean = torch.tensor([y], dtype=torch.float64)
    for metric in (lambda p: corrected_hamming(p, f >= 0), lambda p: corrected_one_error(p, f)):
        mean = sum(
            w * metric(noise.debias(torch.tensor([v], dtype=torch.float64))).item()
            for v, w in noisy_vectors(y, noise.rho_pos, noise.rho_neg)
        )
        assert mean == pytest.approx(metric(clean).item(), abs=1e-9)
    mean = sum(
        w * wrong_pair_weights(p := noise.debias(torch.tensor([v], dtype=torch.float64)), 1 - p, f).item()
        for v, w in noisy_vectors(y, noise.rho_pos, noise.rho_neg)
    )
    assert mean == pytest.approx(wrong_pair_weights(clean, 1 - clean, f).item(), abs=1e-7)


def test_stacks_nan_and_weights():
    torch.manual_seed(0)
    p, f = torch.rand(8, 4), torch.randn(2, 3, 8, 4)
    weights = torch.tensor([1.0, 2, 0, 1, 1, 3, 1, 1])
    repeated = torch.repeat_interleave(torch.arange(8), weights.long())
    for metric in (lambda p, f, w=None: corrected_hamming(p, f >= 0, w), corrected_one_error, pooled_ranking_loss):
        stacked = metric(p, f)
        assert stacked.shape == (2, 3)
        assert stacked[1, 2].item() == pytest.approx(metric(p, f[1, 2]).item())
        assert metric(p, f[0, 0], weights).item() == pytest.approx(metric(p[repeated], f[0, 0][repeated]).item())
    masked = p.clone()
    masked[:, 3] = torch.nan
    assert corrected_hamming(masked, f >= 0)[0, 0].item() == pytest.approx(
        corrected_hamming(p[:, :3], f[..., :3] >= 0)[0, 0].item()
    )
    assert pooled_ranking_loss(masked, f)[0, 0].item() == pytest.approx(
        pooled_ranking_loss(p[:, :3], f[..., :3])[0, 0].item()
    )


def test_pooled_loss_without_pairs_is_nan():
    assert pooled_ranking_loss(torch.ones(3, 2), torch.randn(3, 2)).isnan()
