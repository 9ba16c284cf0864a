"""Containers, dtypes and error messages, for all members of METRICS."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given

from ccmn.metrics import METRICS
from ccmn.metrics.ranking_metrics import average_precision_rows, coverage_rows, ranking_loss_rows
from metrics.strategies import labels_and_predictions, labels_and_scores, random_case

ROWS = [ranking_loss_rows, average_precision_rows, coverage_rows]
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
every_rows = pytest.mark.parametrize("rows", ROWS, ids=lambda rows: rows.__name__)


def second_argument(metric, scores):
    return (np.asarray(scores) > 0).astype(int) if metric.needs == "labels" else np.asarray(scores)


@given(labels_and_scores, labels_and_predictions)
def test_tensors_and_arrays_give_the_same_value(with_scores, with_predictions):
    for metric in METRICS.values():
        case = with_scores if metric.needs == "scores" else with_predictions
        value, of_tensors = metric.function(*case), metric.function(*map(torch.tensor, case))
        assert type(value) is type(of_tensors) is float
        assert of_tensors == pytest.approx(value, abs=0, nan_ok=True)


@every_metric
def test_any_container(metric):
    Y, scores = random_case(12, 5, levels=4)
    other = second_argument(metric, scores)
    expected = metric.function(Y, other)
    mixed = pd.DataFrame(Y).astype({0: bool, 1: object})
    for labels in (Y.tolist(), Y.astype(bool), mixed, scipy.sparse.csr_array(Y), Y[::-1].copy()[::-1]):
        assert metric.function(labels, other) == expected
    for values in (other.tolist(), pd.DataFrame(other), other.astype(other.dtype.newbyteorder())):
        assert metric.function(Y, values) == expected


@every_metric
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32])
def test_any_dtype(metric, dtype):
    Y, scores = random_case(12, 5)
    other = torch.tensor(second_argument(metric, 4 * scores)).to(dtype)
    value = metric.function(torch.tensor(Y), other)
    assert value == pytest.approx(metric.function(Y, other.double().numpy()), abs=1e-12)


@every_metric
def test_invariant_to_permutation_of_rows_and_labels(metric):
    Y, scores = random_case(12, 5, levels=3)
    other, rng = second_argument(metric, scores), np.random.default_rng(1)
    rows, labels = rng.permutation(12), rng.permutation(5)
    expected = pytest.approx(metric.function(Y, other), abs=1e-12)
    assert metric.function(Y[rows][:, labels], other[rows][:, labels]) == expected


@every_metric
def test_perfect_predictions_are_better_than_random(metric):
    Y, scores = random_case(40, 6)
    sign = 1 if metric.greater_is_better else -1
    assert sign * metric.function(Y, Y) > sign * metric.function(Y, second_argument(metric, scores))


@every_metric
def test_blocks_of_rows_give_the_same_value(metric, monkeypatch):
    Y, scores = random_case(31, 5, levels=3)
    whole = metric.function(Y, second_argument(metric, scores))
    monkeypatch.setattr("ccmn.metrics.metric.MAX_BLOCK_ENTRIES", 40)
    assert metric.function(Y, second_argument(metric, scores)) == pytest.approx(whole, abs=1e-12)


@every_rows
def test_rows_broadcast_over_leading_dimensions(rows):
    Y, scores = map(torch.tensor, random_case(10, 6, levels=4))
    generator = torch.Generator().manual_seed(0)
    stack = torch.stack([scores, -scores, scores.flip(-1)])
    targets = torch.stack([Y, Y[torch.randperm(10, generator=generator)], Y])
    for given_Y, given_other in ((Y, stack), (targets, stack), (targets, stack[0]), (targets[:, :1], stack)):
        one_by_one = [rows(y, o) for y, o in zip(*torch.broadcast_tensors(given_Y, given_other))]
        torch.testing.assert_close(rows(given_Y, given_other), torch.stack(one_by_one), equal_nan=True)
    torch.testing.assert_close(rows(Y[0], stack[0, 0]), rows(Y[:1], stack[0, :1])[0], equal_nan=True)


@every_rows
def test_rows_do_not_synchronize_with_the_device(rows):
    # Tensors on "meta" have no values, so reading one fails.
    Y, other = torch.empty(3, 4, 5, dtype=torch.bool, device="meta"), torch.empty(3, 4, 5, device="meta")
    assert rows(Y, other).shape == (3, 4)


@every_metric
def test_vectors_are_rejected(metric):
    with pytest.raises(ValueError, match=r"Y must be a matrix of shape \(n, q\).*got shape \(3,\)"):
        metric.function([1, 0, 1], [1, 0, 1])


@every_metric
def test_different_shapes_are_rejected(metric):
    with pytest.raises(ValueError, match=r"must have the same shape \(n, q\); got \(2, 2\) and \(1, 2\)"):
        metric.function([[1, 0], [0, 1]], [[1, 0]])


@every_metric
def test_empty_matrices_are_rejected(metric):
    with pytest.raises(ValueError, match=r"at least one row and one label; got shape \(0, 3\)"):
        metric.function(np.zeros((0, 3)), np.zeros((0, 3)))


@every_metric
def test_nan_is_rejected(metric):
    name = "Y_pred" if metric.needs == "labels" else "scores"
    known, unknown = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [float("nan"), 1.0]]
    for make in (np.array, torch.tensor):
        with pytest.raises(ValueError, match="Y contains NaN, first in row 1, label 0"):
            metric.function(make(unknown), make(known))
        with pytest.raises(ValueError, match=f"{name} contains NaN, first in row 1, label 0"):
            metric.function(make(known), make(unknown))


@every_metric
def test_labels_must_be_zero_or_one(metric):
    with pytest.raises(ValueError, match=r"Y must be 0 or 1; got -1. For -1/\+1 labels pass \(Y \+ 1\) / 2"):
        metric.function([[1, -1]], [[1, 0]])
    with pytest.raises(ValueError, match=r"Y must be 0 or 1; got 0.5. Apply a threshold to scores"):
        metric.function(torch.tensor([[1, 0.5]]), torch.tensor([[1, 0]]))


@every_metric
def test_other_objects_are_rejected(metric):
    for rows in ([[1, 0], [1]], [["a", "b"]], np.array([["a", None]], dtype=object), {"a": 1}):
        with pytest.raises(ValueError, match="Y must be a matrix of numbers"):
            metric.function(rows, [[1, 0]])


def test_predictions_must_be_labels():
    with pytest.raises(ValueError, match=r"Y_pred must be 0 or 1; got 0.7. Apply a threshold to scores: scores >= 0"):
        METRICS["hamming_loss"].function([[1, 0]], [[0.7, 0.1]])


def test_tensors_must_share_a_device():
    with pytest.raises(ValueError, match=r"one device; got meta and cpu"):
        METRICS["coverage"].function(torch.empty(1, 2, device="meta"), torch.zeros(1, 2))
