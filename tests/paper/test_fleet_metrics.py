import pytest
import torch
from hypothesis import given

from ccmn.metrics import average_precision, hamming_loss, ranking_loss
from ccmn.paper import fleet_metrics
from ccmn.paper.fleet_metrics import BatchedMetrics
from metrics import reference
from metrics.strategies import labels_and_scores, random_case


@given(labels_and_scores)
def test_agrees_with_reference(case):
    Y, scores = case
    expected = (
        reference.hamming_loss(Y, scores >= 0),
        reference.ranking_loss(Y, scores),
        reference.average_precision(Y, scores),
    )
    assert BatchedMetrics(torch.tensor(Y))(torch.tensor(scores)).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("q", [1, 14, 32, 33])
@pytest.mark.parametrize("block_size", [1, 1000, 1 << 18])
def test_stack_of_models_agrees_with_single_models(q, block_size, monkeypatch):
    monkeypatch.setattr(fleet_metrics, "MAX_SCORES_PER_BLOCK", block_size)
    cases = [random_case(30, q, levels, seed=seed) for seed in range(3) for levels in (None, 3)]
    Y = torch.stack([torch.tensor(Y) for Y, _ in cases[::2]]).unsqueeze(1).to(torch.uint8)  # three groups of two runs
    scores = torch.stack([torch.tensor(s) for _, s in cases]).float().sub(0.5).view(3, 2, 30, q)
    metrics_of = BatchedMetrics(Y)
    for given_scores in (scores, scores + 0.1, scores.transpose(1, 2).contiguous().transpose(1, 2)):
        found = metrics_of(given_scores)
        for group in range(3):
            for run in range(2):
                y, f = Y[group, 0], given_scores[group, run]
                expected = [float(v) for v in (hamming_loss(y, f >= 0), ranking_loss(y, f), average_precision(y, f))]
                assert found[:, group, run].tolist() == pytest.approx(expected, abs=1e-12)


def test_buffers_are_replaced_for_other_dtypes_and_shapes():
    Y, scores = map(torch.tensor, random_case(20, 6))
    metrics_of = BatchedMetrics(Y)
    with torch.inference_mode():
        wide = metrics_of(scores.double())
    torch.testing.assert_close(metrics_of(scores.float()), wide)
    torch.testing.assert_close(metrics_of(torch.stack([scores, scores]).double())[:, 1], wide)
