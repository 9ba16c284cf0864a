"""The checks of scikit-learn without exceptions, and pipelines, grid search and cross-validation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ccmn import CCMNClassifier, PartialNoise
from ccmn.data import load_digit_scenes


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [
        CCMNClassifier(random_state=0),
        CCMNClassifier(noise=None, loss="hamming", surrogate="square", random_state=0),
        CCMNClassifier(noise=None, loss="plugin", epochs=100, random_state=0),
        CCMNClassifier(noise=None, loss="forward", model="mlp", epochs=100, random_state=0),
    ]
)
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def scenes():
    data = load_digit_scenes(600)
    noise = PartialNoise(0.3, n_labels=10)
    return data.X, data.Y, noise.corrupt(data.Y, random_state=0), noise


def test_clone_and_parameters(scenes):
    clf = CCMNClassifier(noise=scenes[3], lr=0.01, epochs=7)
    twin = clone(clf)
    assert twin.get_params()["epochs"] == 7
    assert twin.noise == scenes[3]
    assert not hasattr(twin, "classes_")


def test_pipeline_grid_search_and_cross_validation(scenes):
    X, Y, Z, noise = scenes
    base = CCMNClassifier(noise=noise, loss="hamming", surrogate="square", random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), base),
        {"ccmnclassifier__weight_decay": [1e-4, 1.0]},
        cv=KFold(2, shuffle=True, random_state=0),
        scoring="f1_micro",
    ).fit(X, Z)
    assert search.predict(X).shape == Y.shape
    out_of_fold = cross_val_predict(base, X, Z, cv=3, method="decision_function")
    assert out_of_fold.shape == Y.shape


def test_text_pipeline():
    texts = [f"sea {'wave' * (i % 3)} boat" if i % 2 else f"sky {'cloud' * (i % 5)} bird" for i in range(120)]
    Y = np.array([[i % 2, 1 - i % 2] for i in range(120)])
    clf = make_pipeline(TfidfVectorizer(), CCMNClassifier(noise=PartialNoise([0.2, 0.2]), epochs=40, random_state=0))
    noisy = PartialNoise([0.2, 0.2]).corrupt(Y, random_state=0)
    assert (clf.fit(texts, noisy).predict(texts) == Y).mean() > 0.95


def test_dataframes_keep_names(scenes):
    X, _, Z, noise = scenes
    frame = pd.DataFrame(X[:, :30]).add_prefix("pixel")
    labels = pd.DataFrame(Z, columns=[f"digit {j}" for j in range(10)])
    clf = CCMNClassifier(noise=noise, epochs=2).fit(frame, labels)
    assert clf.feature_names_in_[0] == "pixel0"
    assert clf.label_names_[3] == "digit 3"
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[frame.columns[::-1]])
    frame["kind"] = pd.Categorical(["a", "b"] * 300)
    with pytest.raises(ValueError, match=r"non-numeric columns kind\..*TablePreprocessor"):
        clf.fit(frame, labels)


def test_score_is_accuracy_of_classes():
    X, y = load_iris(return_X_y=True)
    clf = CCMNClassifier(noise=None, random_state=0).fit(X, y)
    assert clf.score(X, y) > 0.9
    assert clf.predict_proba(X).sum(1) == pytest.approx(np.ones(150))
