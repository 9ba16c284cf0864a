"""Criteria of whole stacks against the plain metrics, one model at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccmn.experiments.criteria import HeldOutLabels, clean_metrics, criteria
from ccmn.metrics import METRICS, coverage
from ccmn.metrics.corrected import corrected_hamming, pooled_ranking_loss, wrong_pair_weights
from ccmn.metrics.ranking import Ranking, pooled_wrong_from

FOUR = ("hamming_loss", "ranking_loss", "average_precision", "coverage")


def plain(metric, Y, scores):
    if metric == "coverage":
        return coverage(Y, scores, normalised=True)
    return METRICS[metric].function(Y, (scores >= 0).astype(int) if metric == "hamming_loss" else scores)


def test_criteria_of_both_selections():
    found = criteria(FOUR)
    assert [(c.selection, c.name) for c in found][:4] == [("clean", m) for m in FOUR]
    decided = [m for c in found if c.selection == "noisy" for m in c.decides]
    assert sorted(decided) == sorted(FOUR)
    assert [c.sign for c in found] == [-1, -1, 1, -1, -1, -1]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), q=st.sampled_from([2, 5, 40]))
def test_stacked_criteria_are_those_of_single_models(seed, q):
    rng = np.random.default_rng(seed)
    G, K, n = 2, 3, 7
    Y = rng.integers(0, 2, (G, n, q))
    # Few distinct scores, so that there are ties.
    scores = rng.integers(-3, 4, (G, K, n, q)) / 2.0
    p = rng.normal(0.5, 1, (G, K, n, q))
    wanted = criteria(FOUR)
    labels = HeldOutLabels(torch.from_numpy(Y).unsqueeze(1), torch.from_numpy(p))
    found = labels.measure(wanted, torch.from_numpy(scores))
    for g in range(G):
        for k in range(K):
            for number, criterion in enumerate(wanted):
                if criterion.selection == "clean":
                    expected = plain(criterion.name, Y[g], scores[g, k])
                elif criterion.name == "hamming_loss":
                    expected = corrected_hamming(torch.from_numpy(p[g, k]), torch.from_numpy(scores[g, k] >= 0))
                else:
                    labels, values = torch.from_numpy(p[g, k]), torch.from_numpy(scores[g, k])
                    wrong = wrong_pair_weights(labels, 1 - labels, values).sum()
                    total = pooled_wrong_from(Ranking.of(labels, values))[1].sum()
                    expected = wrong / total
                value = criterion.sign * float(found[number, g, k])
                assert value == pytest.approx(float(expected), rel=1e-6, abs=1e-9), criterion


def test_pooled_is_the_metric_where_there_are_pairs():
    p = torch.rand(20, 6, dtype=torch.float64)
    scores = torch.randn(20, 6, dtype=torch.float64)
    wrong, pairs = pooled_wrong_from(Ranking.of(p, scores))
    assert float(wrong.sum() / pairs.sum()) == pytest.approx(float(pooled_ranking_loss(p, scores)))


def test_clean_metrics_of_one_model():
    Y, scores = torch.tensor([[1, 0, 0], [0, 1, 1]]), torch.tensor([[0.5, 0.5, -0.2], [0.1, 0.2, 0.3]])
    found = clean_metrics(Y, scores, FOUR)
    for metric in FOUR:
        assert float(found[metric]) == pytest.approx(plain(metric, Y.numpy(), scores.numpy()))
