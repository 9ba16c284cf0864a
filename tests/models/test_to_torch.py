"""``to_torch``: a module with the probabilities of the classifier, for every model and kind of labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from ccmn import CCMNClassifier, ClassConditionalNoise

NOISE = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.2, 0.0])
MODELS = {
    "average": {},
    "linear": {"model": "linear"},
    "f1": {"threshold": "f1"},
    "square": {"loss": "hamming", "surrogate": "square", "model": "linear"},
    "ranking": {"loss": "ranking", "model": "linear", "epochs": 3},
    "mlp": {"loss": "forward", "model": "mlp", "epochs": 3},
    "custom": {"loss": "hamming", "model": lambda d, q: torch.nn.Linear(d, q), "epochs": 3},
}


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) * [1, 10, 100, 1, 1, 0.01] + [0, 5, 2000, 0, -3, 0]
    scaled = (X - X.mean(0)) / X.std(0)
    Y = (scaled @ rng.normal(size=(6, 3)) > 0.3).astype(int)
    return X, NOISE.corrupt(Y, random_state=0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_probabilities_equal_those_of_the_classifier(task, name):
    X, Y = task
    clf = CCMNClassifier(NOISE, random_state=0, **MODELS[name]).fit(X, Y)
    dtype = torch.float32 if name == "custom" else torch.float64
    result = clf.to_torch()(torch.tensor(X, dtype=dtype))
    np.testing.assert_allclose(result.detach().numpy(), clf.predict_proba(X), atol=1e-5)


def test_projected_sparse_features():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(200, 300, 0.1, format="csr", random_state=0)
    Y = (X @ rng.normal(size=(300, 2)) > 0).astype(int)
    clf = CCMNClassifier(None, random_state=0).fit(X, Y)
    assert clf.selected_["linear_share"] < 1
    result = clf.to_torch()(torch.tensor(X.toarray()))
    np.testing.assert_allclose(result.numpy(), clf.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_classes(task, classes):
    X, _ = task
    y = np.digitize(X[:, 0], np.linspace(-0.5, 0.5, classes - 1))
    clf = CCMNClassifier(None, random_state=0).fit(X, y)
    module = clf.to_torch()
    np.testing.assert_allclose(module(torch.tensor(X)).numpy(), clf.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("name", ["average", "linear"])
def test_exported_program(task, name):
    X, Y = task
    clf = CCMNClassifier(NOISE, random_state=0, **MODELS[name]).fit(X, Y)
    rows = torch.tensor(X)
    shapes = ({0: torch.export.Dim("n")},)
    exported = torch.export.export(clf.to_torch(), (rows,), dynamic_shapes=shapes).module()
    np.testing.assert_allclose(exported(rows[:50]).numpy(), clf.predict_proba(X[:50]), atol=1e-5)


def test_a_single_class_is_refused():
    clf = CCMNClassifier(None).fit(np.zeros((5, 2)), np.zeros(5))
    with pytest.raises(ValueError, match="to_torch requires two classes"):
        clf.to_torch()
