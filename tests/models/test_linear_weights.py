"""``coef_`` and ``intercept_`` of linear models."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn import CCMNClassifier, ClassConditionalNoise

X = np.random.default_rng(0).normal(size=(200, 5))
NOISE = ClassConditionalNoise([0.2, 0.1, 0.0], [0.1, 0.0, 0.2])
Y = NOISE.corrupt((X[:, :3] > 0).astype(int), random_state=0)


@pytest.mark.parametrize(
    "parameters",
    [
        {"loss": "ranking"},
        {"loss": "ranking", "threshold": "f1"},
        {"loss": "hamming", "surrogate": "square"},
        {"loss": "hamming", "surrogate": "logistic", "threshold": "f1"},
        {"loss": "forward"},
    ],
)
def test_decision_function_is_linear(parameters):
    clf = CCMNClassifier(NOISE, epochs=3, random_state=0, **parameters).fit(X, Y)
    assert clf.coef_.shape == (3, 5)
    assert clf.intercept_.shape == (3,)
    expected = X @ clf.coef_.T + clf.intercept_ - clf.thresholds_
    np.testing.assert_allclose(clf.decision_function(X), expected, rtol=1e-9, atol=1e-9)


def test_one_label_for_two_classes():
    clf = CCMNClassifier(None, loss="ranking", epochs=3, random_state=0).fit(X, np.where(X[:, 0] > 0, "a", "b"))
    assert clf.coef_.shape == (1, 5)
    np.testing.assert_allclose(clf.decision_function(X), (X @ clf.coef_.T + clf.intercept_)[:, 0], atol=1e-9)


@pytest.mark.parametrize("name", ["coef_", "intercept_"])
@pytest.mark.parametrize("parameters", [{"model": "mlp"}, {"loss": "plugin", "model": "linear"}, {}])
def test_other_models_have_no_linear_weights(name, parameters):
    unfitted = CCMNClassifier(NOISE, epochs=1, random_state=0, **parameters)
    assert not hasattr(unfitted, name)
    assert not hasattr(unfitted.fit(X, Y), name)
