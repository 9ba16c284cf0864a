"""``coef_`` and ``intercept_`` of linear models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ccmn import CCMNClassifier, ClassConditionalNoise

X = np.random.default_rng(0).normal(size=(200, 5))
NOISE = ClassConditionalNoise([0.2, 0.1, 0.0], [0.1, 0.0, 0.2])
Y = NOISE.corrupt((X[:, :3] > 0).astype(int), random_state=0)


@pytest.mark.parametrize(
    "parameters",
    [
        {"loss": "ranking"},
        {"loss": "hamming", "surrogate": "square"},
        {"loss": "hamming", "surrogate": "logistic", "scale": False},
    ],
)
def test_decision_function_is_linear(parameters):
    clf = CCMNClassifier(NOISE, epochs=3, random_state=0, **parameters).fit(X, Y)
    assert clf.coef_.shape == (3, 5)
    assert clf.intercept_.shape == (3,)
    expected = X @ clf.coef_.T + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(X), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["coef_", "intercept_"])
@pytest.mark.parametrize("parameters", [{"model": "mlp"}, {"model": torch.nn.Linear}])
def test_other_models_have_no_linear_weights(name, parameters):
    unfitted = CCMNClassifier(NOISE, epochs=1, random_state=0, **parameters)
    assert not hasattr(unfitted, name)
    assert not hasattr(unfitted.fit(X, Y), name)
