"""``to_torch``: the module computes what ``predict_proba`` computes, also after torch.export and in ONNX."""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import pytest
import torch

from ccmn import CCMNClassifier, ClassConditionalNoise

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(400, 5)) * [1, 10, 0.1, 1, 1] + [0, 5, 0, 0, 0]).astype(np.float32)
Y = ((X - X.mean(0))[:, :3] > 0).astype(int)
NOISE = ClassConditionalNoise([0.1, 0.2, 0.1], [0.2, 0.1, 0.1])
FIT = {"noise": NOISE, "random_state": 0, "epochs": 3, "lr": 0.01}


def make_network(n_features: int, n_outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.BatchNorm1d(n_features), torch.nn.Linear(n_features, 8), torch.nn.Tanh(), torch.nn.Linear(8, n_outputs)
    )


CASES = {
    "default": ({"noise": NOISE, "random_state": 0}, Y),
    "Hamming, linear": ({**FIT, "loss": "hamming", "surrogate": "square", "model": "linear"}, Y),
    "ranking, linear": ({**FIT, "loss": "ranking", "surrogate": "sigmoid", "model": "linear"}, Y),
    "ranking, mlp": ({**FIT, "loss": "ranking", "surrogate": "sigmoid", "model": "mlp"}, Y),
    "plugin": ({**FIT, "loss": "plugin", "model": "linear"}, Y),
    "own network": ({**FIT, "loss": "hamming", "surrogate": "logistic", "model": make_network}, Y),
    "two classes": ({**FIT, "noise": None, "model": "linear"}, Y[:, 0]),
    "three classes": ({**FIT, "noise": None, "model": "linear"}, Y[:, :2].sum(1)),
}


@pytest.fixture(scope="module")
def fitted():
    """Return fitted classifiers by the name of their case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three epochs overfit or underfit
        return {name: CCMNClassifier(**settings).fit(X, y) for name, (settings, y) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_module_equals_predict_proba(fitted, name):
    module = fitted[name].to_torch()
    assert not module.training
    with torch.no_grad():
        result = module(torch.tensor(X))
    np.testing.assert_allclose(result.numpy(), fitted[name].predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_torch_export_with_any_number_of_rows(fitted, name):
    rows = {"X": {0: torch.export.Dim("rows", min=2)}}
    program = torch.export.export(fitted[name].to_torch(), (torch.tensor(X[:7]),), dynamic_shapes=rows)
    for part in (X[:3], X):
        result = program.module()(torch.tensor(part)).detach().numpy()
        np.testing.assert_allclose(result, fitted[name].predict_proba(part), atol=1e-5)


def test_exported_program_is_saved_and_loaded(fitted, tmp_path):
    torch.export.save(torch.export.export(fitted["default"].to_torch(), (torch.tensor(X),)), tmp_path / "model.pt2")
    result = torch.export.load(tmp_path / "model.pt2").module()(torch.tensor(X))
    np.testing.assert_allclose(result.detach().numpy(), fitted["default"].predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_onnx_equals_predict_proba(fitted, name, tmp_path):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'ccmn[export]'")
    import onnxruntime

    rows = {"X": {0: torch.export.Dim("rows", min=2)}}
    module, path = fitted[name].to_torch(), tmp_path / "model.onnx"
    torch.onnx.export(module, (torch.tensor(X[:7]),), path, dynamo=True, dynamic_shapes=rows, verbose=False)
    session = onnxruntime.InferenceSession(path)
    for part in (X[:3], X):
        (result,) = session.run(None, {session.get_inputs()[0].name: part})
        np.testing.assert_allclose(result, fitted[name].predict_proba(part), atol=1e-5)


def test_unfitted_classifier_and_single_class_are_rejected():
    with pytest.raises(ValueError, match="not fitted"):
        CCMNClassifier().to_torch()
