"""Equal data give equal predictions: containers, types, orders of rows and labels, scales and names.

Every test runs for every estimator of the package for which the property holds. Tolerances are absolute. Networks and
linear models of ``CCMNClassifier`` start from random weights, so that they depend on the order of labels; what draws
folds or batches depends on the order of the rows to fit.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from ccmn import CCMNClassifier, CorrectedClassifier, PartialNoise
from ccmn.paper.baselines import BASELINES

N, Q = 60, 2
OPTIONS: dict[str, Any] = {"lr": 0.05, "epochs": 3, "random_state": 0}
ESTIMATORS: dict[str, Any] = {
    "hamming": lambda noise: CCMNClassifier(noise, loss="hamming", **OPTIONS),
    "ranking": lambda noise: CCMNClassifier(noise, **OPTIONS),
    "network": lambda noise: CCMNClassifier(noise, model="mlp", **OPTIONS),
    "default": lambda noise: CorrectedClassifier(noise=noise, random_state=0),
    "corrected": lambda noise: CorrectedClassifier(LogisticRegression(), noise=noise, random_state=0),
    **{name: lambda noise, name=name: BASELINES[name].make() for name in BASELINES},
}
every_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def task(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features in steps of 1/8, which are exact in all types, and labels of both values."""
    rng = np.random.default_rng(seed)
    X = np.round(8 * rng.normal(size=(N, 4))) / 8
    Y = (X[:, :Q] + 0.5 * rng.normal(size=(N, Q)) > 0).astype(int)
    return X, Y


def scores(name: str, X: Any, Y: Any, q: int = Q, **options: Any) -> np.ndarray:
    classifier = ESTIMATORS[name](PartialNoise([0.1, 0.2][:q]))
    return np.asarray(classifier.fit(X, Y, **options).decision_function(X))


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def _wide_indices(values: np.ndarray) -> Any:
    matrix = scipy.sparse.csr_array(values)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


LABELS = {
    "object": lambda Y: Y.astype(object),
    "bool": lambda Y: Y.astype(bool),
    "float32": lambda Y: Y.astype(np.float32),
    "lists": lambda Y: Y.tolist(),
    "tensor": _tensor,
    "sparse": scipy.sparse.csr_array,
    "sparse, 64-bit indices": _wide_indices,
    **{
        dtype: lambda Y, dtype=dtype: pd.DataFrame(Y).astype(dtype)
        for dtype in ("int8", "Int8", "boolean", "category", "int8[pyarrow]", "bool[pyarrow]")
    },
}
FEATURES = {
    "float32": lambda X: X.astype(np.float32),
    "Fortran order": np.asfortranarray,
    "every second column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "big endian": lambda X: X.astype(">f8"),
    "object": lambda X: X.astype(object),
    "tensor": _tensor,
    "frame": pd.DataFrame,
    "Float64 frame": lambda X: pd.DataFrame(X).astype("Float64"),
    "pyarrow frame": lambda X: pd.DataFrame(X).astype("double[pyarrow]"),
}


@pytest.mark.parametrize(("name", "q"), [*((name, Q) for name in ESTIMATORS), ("hamming", 1), ("default", 1)])
def test_containers_of_labels(name, q):
    X, Y = task(0)
    expected = scores(name, X, Y[:, :q], q)
    for container in LABELS.values():
        np.testing.assert_array_equal(scores(name, X, container(Y[:, :q]), q), expected)


@every_estimator
def test_containers_of_features(name):
    X, Y = task(0)
    expected = scores(name, X, Y)
    for features, container in FEATURES.items():
        tolerance = 1e-3 if features == "float32" else 1e-9
        np.testing.assert_allclose(scores(name, container(X), Y), expected, atol=tolerance)


@every_estimator
def test_formats_of_sparse_features(name):
    """Sparse features are scaled without centering: formats are compared with each other."""
    X, Y = task(0)
    expected = scores(name, scipy.sparse.csr_array(X), Y)
    for container in (scipy.sparse.csc_array, scipy.sparse.coo_array, scipy.sparse.csr_matrix, _wide_indices):
        np.testing.assert_allclose(scores(name, container(X), Y), expected, atol=1e-9)


@pytest.mark.parametrize("name", ["hamming", "ranking", "network", "default", "corrected"])
@pytest.mark.parametrize("weight", [1e-300, 1e-3, 7.0, 1e99])
def test_constant_weights_change_nothing(name, weight):
    X, Y = task(0)
    np.testing.assert_array_equal(scores(name, X, Y, sample_weight=np.full(N, weight)), scores(name, X, Y))


SCALED = ["hamming", "ranking", "network", "default"]
"""Estimators that scale the features."""
few = settings(max_examples=2)


@every_estimator
@few
@given(seed=st.integers(0, 99), order=st.permutations(range(N)), size=st.integers(1, N))
def test_rows_to_predict_are_independent(name, seed, order, size):
    X, Y = task(seed)
    classifier = ESTIMATORS[name](PartialNoise([0.1, 0.2])).fit(X, Y)
    expected = classifier.decision_function(X)[list(order)][:size]
    np.testing.assert_allclose(classifier.decision_function(X[list(order)][:size]), expected, atol=1e-5)


@pytest.mark.parametrize("name", SCALED)
@few
@given(seed=st.integers(0, 99), scale=st.lists(st.integers(-20, 20), min_size=4, max_size=4))
def test_scale_of_features_has_no_influence(name, seed, scale):
    X, Y = task(seed)
    scaled = X * 2.0 ** np.array(scale)
    np.testing.assert_allclose(scores(name, scaled, Y), scores(name, X, Y), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["default", "corrected", *BASELINES])
@few
@given(seed=st.integers(0, 99))
def test_order_of_labels_has_no_influence(name, seed):
    """The rates of both labels are equal, because noise models do not move with the labels."""
    X, Y = task(seed)
    classifiers = [ESTIMATORS[name](PartialNoise([0.1, 0.1])).fit(X, labels) for labels in (Y, Y[:, ::-1])]
    first, second = (classifier.decision_function(X) for classifier in classifiers)
    np.testing.assert_allclose(second[:, ::-1], first, atol=1e-9)


@pytest.mark.parametrize("name", ["PMLNI", "PMLLRS", "fPML", "ridge", "logistic"])
@few
@given(seed=st.integers(0, 99), order=st.permutations(range(N)))
def test_order_of_rows_to_fit_has_no_influence(name, seed, order):
    X, Y = task(seed)
    fitted = ESTIMATORS[name](None).fit(X[list(order)], Y[list(order)])
    np.testing.assert_allclose(fitted.decision_function(X), scores(name, X, Y), atol=1e-6)


@every_estimator
@few
@given(seed=st.integers(0, 99), names=st.lists(st.text(min_size=1), min_size=4, max_size=4, unique=True))
def test_names_of_columns_have_no_influence(name, seed, names):
    X, Y = task(seed)
    np.testing.assert_allclose(scores(name, pd.DataFrame(X, columns=names), Y), scores(name, X, Y), atol=1e-9)


@pytest.mark.parametrize("name", ["hamming", "ranking", "network", "corrected", *BASELINES])
@few
@given(seed=st.integers(0, 99))
def test_sparse_features_equal_dense_ones(name, seed):
    """Estimators that scale the features center only dense ones; here they do not scale."""
    X, Y = task(seed)
    classifier = ESTIMATORS[name](PartialNoise([0.1, 0.2]))
    classifier.set_params(**({"scale": False} if name in SCALED else {}))
    dense, sparse = (classifier.fit(M, Y).decision_function(M) for M in (X, scipy.sparse.csr_array(X)))
    np.testing.assert_allclose(sparse, dense, atol=1e-3 if name in BASELINES else 1e-9)
