"""``to_torch``: the module computes what ``predict_proba`` computes, also after torch.export and in ONNX."""

import importlib.util
import warnings

import numpy as np
import pytest
import scipy.sparse
import torch

from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier
from ccmn.noise import TransitionNoise

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6)) * [1, 10, 100, 1, 1, 0.01] + [0, 5, 2000, 0, -3, 0]
STANDARD = (X - X.mean(0)) / X.std(0)
Y = (STANDARD @ RNG.normal(size=(6, 3)) + 2 * abs(STANDARD[:, :3]) > 1.5).astype(int)  # partly nonlinear
IMAGES = STANDARD.reshape(-1, 1, 2, 3)
WORDS = scipy.sparse.random(300, 300, 0.1, format="csr", random_state=0)
NOISE = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.2, 0.0])


def make_network(n_features: int, n_outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.BatchNorm1d(n_features), torch.nn.Linear(n_features, 8), torch.nn.Tanh(), torch.nn.Linear(8, n_outputs)
    )


def make_cnn(shape: tuple[int, ...], n_outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(shape[0], 4, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, n_outputs)
    )


SHORT = {"epochs": 3, "lr": 0.01}
CASES = {
    "average": (CorrectedClassifier(noise=NOISE), X, Y),
    "average, f1": (CorrectedClassifier(noise=NOISE, threshold="f1"), X, Y),
    "average, sparse": (CorrectedClassifier(noise=None), WORDS, (WORDS @ RNG.normal(size=(300, 2)) > 0).astype(int)),
    "Hamming square, linear": (CCMNClassifier(NOISE, loss="hamming", **SHORT), X, Y),
    "ranking, linear": (CCMNClassifier(NOISE, **SHORT), X, Y),
    "ranking, mlp": (CCMNClassifier(NOISE, model="mlp", **SHORT), X, Y),
    "Hamming, own network": (CCMNClassifier(NOISE, loss="hamming", model=make_network, **SHORT), X, Y),
    "ranking, images": (CCMNClassifier(NOISE, model=make_cnn, **SHORT), IMAGES, Y),
    "three classes": (CCMNClassifier(TransitionNoise(np.eye(3)), **SHORT), X, Y[:, :2].sum(1)),
}


@pytest.fixture(scope="module")
def fitted():
    """Return fitted classifiers by the name of their case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three epochs overfit or underfit
        return {
            name: clf.set_params(random_state=0).fit(inputs, labels) for name, (clf, inputs, labels) in CASES.items()
        }


def rows_of(name: str) -> np.ndarray:
    """Return dense inputs of a case, in the type that most services send."""
    inputs = CASES[name][1]
    return np.asarray(inputs.toarray() if scipy.sparse.issparse(inputs) else inputs, dtype=np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_module_equals_predict_proba(fitted, name, dtype):
    rows, module = rows_of(name).astype(dtype), fitted[name].to_torch()
    assert not module.training
    with torch.no_grad():
        result = module(torch.tensor(rows))
    np.testing.assert_allclose(result.numpy(), fitted[name].predict_proba(rows), atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_torch_export_with_any_number_of_rows(fitted, name):
    rows, shapes = rows_of(name), {"X": {0: torch.export.Dim("rows", min=2)}}
    program = torch.export.export(fitted[name].to_torch(), (torch.tensor(rows[:7]),), dynamic_shapes=shapes)
    for part in (rows[:3], rows):
        result = program.module()(torch.tensor(part)).detach().numpy()
        np.testing.assert_allclose(result, fitted[name].predict_proba(part), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_onnx_equals_predict_proba(fitted, name, tmp_path):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: run pip install -r requirements/recipes.txt")
    import onnxruntime

    rows, shapes = rows_of(name), {"X": {0: torch.export.Dim("rows", min=2)}}
    module, path = fitted[name].to_torch(), tmp_path / "model.onnx"
    torch.onnx.export(module, (torch.tensor(rows[:7]),), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
    session = onnxruntime.InferenceSession(path)
    for part in (rows[:3], rows):
        (result,) = session.run(None, {session.get_inputs()[0].name: part})
        np.testing.assert_allclose(result, fitted[name].predict_proba(part), atol=1e-5)


@pytest.mark.parametrize("clf", [CCMNClassifier(), CorrectedClassifier()])
def test_unfitted_classifier_is_rejected(clf):
    with pytest.raises(ValueError, match="not fitted"):
        clf.to_torch()
