"""Containers, dtypes and error messages, for all members of METRICS."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given

from ccmn.metrics import METRICS
from metrics import reference
from metrics.strategies import labels_and_predictions, labels_and_scores, random_case

every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))


def second_argument(metric, scores):
    return (np.asarray(scores) > 0).astype(int) if metric.needs == "labels" else np.asarray(scores)


@pytest.mark.filterwarnings("ignore:(macro_auc|mean_average_precision) cannot be estimated")
@given(labels_and_scores, labels_and_predictions)
def test_equal_to_the_reference_and_in_range_for_arrays_and_tensors(with_scores, with_predictions):
    for metric in METRICS.values():
        case = with_scores if metric.needs == "scores" else with_predictions
        value, of_tensors = metric.function(*case), metric.function(*map(torch.tensor, case))
        assert type(value) is type(of_tensors) is float
        assert of_tensors == pytest.approx(value, abs=0, nan_ok=True)
        assert value == pytest.approx(getattr(reference, metric.name)(*case), abs=1e-12, nan_ok=True)
        low, high = metric.bounds(case[0].shape[1])
        assert np.isnan(value) or low <= value <= high


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
def test_blocks_of_rows_give_the_same_value(metric, monkeypatch):
    Y, scores = random_case(31, 5, levels=3)
    whole = metric.function(Y, second_argument(metric, scores))
    monkeypatch.setattr("ccmn.metrics.metric.MAX_BLOCK_ENTRIES", 40)
    assert metric.function(Y, second_argument(metric, scores)) == pytest.approx(whole, abs=1e-12)


@every_metric
def test_errors(metric):
    name = "Y_pred" if metric.needs == "labels" else "scores"
    known, unknown = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [float("nan"), 1.0]]
    for Y, other, message in (
        ([1, 0, 1], [1, 0, 1], r"Y must be a matrix of shape \(n, q\).*got shape \(3,\)"),
        ([[1, 0], [0, 1]], [[1, 0]], r"must have the same shape \(n, q\); got \(2, 2\) and \(1, 2\)"),
        (np.zeros((0, 3)), np.zeros((0, 3)), r"at least one row and one label; got shape \(0, 3\)"),
        (np.array(unknown), known, "Y contains NaN, first in row 1, label 0"),
        (torch.tensor(unknown), torch.tensor(known), "Y contains NaN, first in row 1, label 0"),
        (known, np.array(unknown), f"{name} contains NaN, first in row 1, label 0"),
        (torch.tensor(known), torch.tensor(unknown), f"{name} contains NaN, first in row 1, label 0"),
        ([[1, -1]], [[1, 0]], r"Y must be 0 or 1; got -1. For -1/\+1 labels pass \(Y \+ 1\) / 2"),
        (torch.tensor([[1, 0.5]]), torch.tensor([[1, 0]]), r"Y must be 0 or 1; got 0.5. Apply a threshold to scores"),
        *((rows, [[1, 0]], "Y must be a matrix of numbers") for rows in ([[1, 0], [1]], [["a", "b"]], {"a": 1})),
        (np.array([["a", None]], dtype=object), [[1, 0]], "Y must be a matrix of numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            metric.function(Y, other)


def test_predictions_must_be_labels():
    with pytest.raises(ValueError, match=r"Y_pred must be 0 or 1; got 0.7. Apply a threshold to scores: scores >= 0"):
        METRICS["hamming_loss"].function([[1, 0]], [[0.7, 0.1]])


def test_tensors_must_share_a_device():
    with pytest.raises(ValueError, match=r"one device; got meta and cpu"):
        METRICS["coverage"].function(torch.empty(1, 2, device="meta"), torch.zeros(1, 2))
