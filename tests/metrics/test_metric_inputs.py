"""Containers, dtypes, error messages and scorers, for all members of METRICS."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ccmn import CCMNClassifier, ClassConditionalNoise
from ccmn.data import make_noisy_multilabel
from ccmn.metrics import METRICS, make_noisy_scorer
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


# -- Scorers in scikit-learn tools

NOISE = ClassConditionalNoise([0.2, 0.1, 0.1], [0.1, 0.2, 0.1])
TASK = make_noisy_multilabel(900, 6, 3, strength=6, noise=NOISE, random_state=0)


def ridge(**settings):
    return CCMNClassifier(noise=NOISE, loss="hamming", surrogate="square", epochs=20, random_state=0, **settings)


def test_all_metrics_in_cross_validate():
    scoring = {name: make_noisy_scorer(name, NOISE) for name in METRICS}
    found = cross_validate(ridge(), TASK.X, TASK.Y_noisy, scoring=scoring, cv=3, return_estimator=True)
    fold = TASK.X[:300], TASK.Y_noisy[:300], TASK.Y[:300]
    for name, metric in METRICS.items():
        scorer, clf = pickle.loads(pickle.dumps(scoring[name])), found["estimator"][0]
        given = clf.predict(fold[0]) if metric.needs == "labels" else clf.decision_function(fold[0])
        sign = 1 if metric.greater_is_better else -1
        estimate = metric.function(fold[1], given, noise=NOISE)
        assert found[f"test_{name}"][0] == sign * estimate == scorer(clf, *fold[:2])
        clean = make_noisy_scorer(name)
        assert clean(clf, fold[0], fold[2]) == sign * metric.function(fold[2], given)


def test_grid_search():
    """The smallest l2 of the path varies; the larger one is far too strong."""
    model = make_pipeline(StandardScaler(), ridge())
    grid = {"ccmnclassifier__weight_decay": [1e-4, 1e4]}
    search = GridSearchCV(model, grid, scoring=make_noisy_scorer("hamming_loss", NOISE), cv=3).fit(TASK.X, TASK.Y_noisy)
    assert search.best_params_ == {"ccmnclassifier__weight_decay": 1e-4}
    wrong = (search.predict(TASK.X) != TASK.Y).mean()
    assert -search.best_score_ == pytest.approx(wrong, abs=0.04)


def test_classifier_with_list_of_probabilities():
    forest = RandomForestClassifier(20, random_state=0).fit(TASK.X, np.column_stack([TASK.Y[:, :2], np.zeros(900)]))
    assert make_noisy_scorer("ranking_loss")(forest, TASK.X, TASK.Y) < 0
    expected = np.column_stack([p[:, 1] for p in forest.predict_proba(TASK.X)[:2]])
    scorer = make_noisy_scorer("macro_auc", ClassConditionalNoise(0.0, 0.0, n_labels=3))
    Y = np.column_stack([TASK.Y[:, :2], np.zeros(900)])
    assert scorer(forest, TASK.X, Y) == pytest.approx(METRICS["macro_auc"].function(TASK.Y[:, :2], expected))


def test_unknown_metric():
    with pytest.raises(ValueError, match="unknown metric 'hamming'; did you mean 'hamming_loss'"):
        make_noisy_scorer("hamming")
