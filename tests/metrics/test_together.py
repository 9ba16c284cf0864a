import pytest
import torch
from hypothesis import given

from ccmn.metrics import MetricsTogether, average_precision, hamming_loss, ranking_loss
from ccmn.metrics import batched
from metrics import reference
from metrics.strategies import labels_and_scores, random_case


@given(labels_and_scores)
def test_agrees_with_the_plain_loops(case):
    Y, scores = case
    expected = (
        reference.hamming_loss(Y, scores >= 0),
        reference.ranking_loss(Y, scores),
        reference.average_precision(Y, scores),
    )
    assert MetricsTogether(torch.tensor(Y))(torch.tensor(scores)).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("q", [1, 14, 32, 33])
@pytest.mark.parametrize("entries_at_once", [1, 1000, 1 << 18])
def test_a_stack_of_models_is_measured_one_by_one(q, entries_at_once, monkeypatch):
    monkeypatch.setattr(batched, "_ENTRIES_AT_ONCE", entries_at_once)
    cases = [random_case(30, q, levels, seed=seed) for seed in range(3) for levels in (None, 3)]
    Y = torch.stack([torch.tensor(Y) for Y, _ in cases[::2]]).unsqueeze(1).to(torch.uint8)  # three groups of two runs
    scores = torch.stack([torch.tensor(s) for _, s in cases]).float().sub(0.5).view(3, 2, 30, q)
    measure = MetricsTogether(Y)
    for given_scores in (scores, scores + 0.1, scores[:, :, :, :].transpose(1, 2).contiguous().transpose(1, 2)):
        found = measure(given_scores)
        for group in range(3):
            for run in range(2):
                y, f = Y[group, 0], given_scores[group, run]
                expected = [float(v) for v in (hamming_loss(y, f >= 0), ranking_loss(y, f), average_precision(y, f))]
                assert found[:, group, run].tolist() == pytest.approx(expected, abs=1e-12)


def test_what_is_kept_fits_scores_of_another_kind():
    Y, scores = map(torch.tensor, random_case(20, 6))
    measure = MetricsTogether(Y)
    with torch.inference_mode():
        wide = measure(scores.double())
    torch.testing.assert_close(measure(scores.float()), wide)
    torch.testing.assert_close(measure(torch.stack([scores, scores]).double())[:, 1], wide)
