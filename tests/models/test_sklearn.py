"""The checks of scikit-learn, searches, metadata routing, representations, joblib and skops."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier, PartialNoise
from ccmn.data import load_digit_scenes, make_noisy_multilabel
from ccmn.noise import GroupedNoise
from helpers import LABELS_ONLY, sklearn_checks


@pytest.mark.filterwarnings("ignore")
@sklearn_checks(
    [
        CCMNClassifier(epochs=20, random_state=0),
        CCMNClassifier(None, loss="hamming", epochs=20, random_state=0),
        CCMNClassifier(None, model="mlp", epochs=20, random_state=0),
    ],
    {name: reason for name, reason in LABELS_ONLY.items() if "weight_equivalence" not in name},
)
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def scenes():
    data = load_digit_scenes(600)
    noise = PartialNoise(0.3, n_labels=10)
    return data.X, data.Y, noise.corrupt(data.Y, random_state=0), noise


def test_pipeline_grid_search_and_cross_validation(scenes):
    X, Y, Z, noise = scenes
    base = CCMNClassifier(noise=noise, loss="hamming", epochs=10, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), base),
        {"ccmnclassifier__weight_decay": [1e-4, 1.0]},
        cv=KFold(2, shuffle=True, random_state=0),
        scoring="f1_micro",
    ).fit(X, Z)
    assert search.predict(X).shape == Y.shape
    out_of_fold = cross_val_predict(base, X, Z, cv=3, method="decision_function")
    assert out_of_fold.shape == Y.shape


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


NOISE = ClassConditionalNoise([0.2, 0.1, 0.0], [0.1, 0.0, 0.2], label_names=["sea", "sky", "tree"])
TASK = make_noisy_multilabel(300, 5, 3, strength=6, noise=NOISE, random_state=0)
FRAME = pd.DataFrame(TASK.Y_noisy, columns=NOISE.label_names)

SAVED = {
    "default": CorrectedClassifier(random_state=0),
    "linear": CCMNClassifier(NOISE, loss="hamming", epochs=5, random_state=0),
    "network": CCMNClassifier(NOISE, model="mlp", epochs=2, random_state=0),
    "corrected": CorrectedClassifier(LogisticRegression(), NOISE),
    "corrected, estimated": CorrectedClassifier(LogisticRegression(), random_state=0),
}


@pytest.mark.parametrize("clf", SAVED.values(), ids=list(SAVED))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_joblib_and_skops_round_trips(clf, tmp_path):
    fitted = clone(clf).fit(TASK.X, FRAME)
    expected = fitted.predict_proba(TASK.X)
    joblib.dump(fitted, tmp_path / "model.joblib")
    assert np.array_equal(joblib.load(tmp_path / "model.joblib").predict_proba(TASK.X), expected)
    skops = pytest.importorskip("skops.io", reason="skops is not installed: run pip install skops")
    skops.dump(fitted, tmp_path / "model.skops")
    types = skops.get_untrusted_types(file=tmp_path / "model.skops")
    assert all(name.startswith("ccmn.") for name in types)
    with pytest.raises(TypeError, match="ccmn"):
        skops.load(tmp_path / "model.skops")
    twin = skops.load(tmp_path / "model.skops", trusted=types)
    assert np.array_equal(twin.predict_proba(TASK.X), expected)
    assert twin.classes_.tolist() == ["sea", "sky", "tree"]


class Recorder(CCMNClassifier):
    """Classifier that compares the metadata of each fit with its features, whose first column is the row number."""

    def fit(self, X, y, *, trusted=None, groups=None):
        rows = X[:, 0].astype(int)
        assert np.array_equal(trusted, TRUSTED[rows], equal_nan=True)
        assert np.array_equal(groups, SOURCES[rows])
        calls.append(len(rows))
        return super().fit(X, y, trusted=trusted, groups=groups)


TRUSTED = np.where(np.arange(300)[:, None] % 3 == 0, TASK.Y, np.nan)
UNNAMED = ClassConditionalNoise(NOISE.rho_pos, NOISE.rho_neg)
SOURCES = np.where(np.arange(300) % 2 == 0, "web", "archive")
calls: list[int] = []


def through_grid_search(clf, X):
    pipe = make_pipeline(FunctionTransformer(), clf)
    search = GridSearchCV(
        pipe, {"recorder__weight_decay": [0.01]}, cv=3, scoring="f1_micro", error_score="raise", refit=False
    )
    search.fit(X, TASK.Y_noisy, trusted=TRUSTED, groups=SOURCES)


def through_cross_validation(clf, X):
    params = {"trusted": TRUSTED, "groups": SOURCES}
    cross_validate(clf, X, TASK.Y_noisy, params=params, cv=3, scoring="f1_micro", error_score="raise")


@pytest.mark.parametrize(
    ("route", "rows"),
    [(through_grid_search, [200] * 3), (through_cross_validation, [200] * 3)],
    ids=["grid search", "cross-validation"],
)
def test_metadata_routing_slices_trusted_rows_and_groups(route, rows):
    calls.clear()
    X = np.column_stack([np.arange(300), TASK.X])
    noise = GroupedNoise({"web": UNNAMED, "archive": UNNAMED})
    clf = Recorder(noise, loss="hamming", epochs=5, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        route(clf.set_fit_request(trusted=True, groups=True), X)
    assert calls == rows


WITH_FRAMES = {
    "ccmn": SAVED["linear"],
    "corrected": SAVED["corrected"],
}


@pytest.mark.parametrize("clf", WITH_FRAMES.values(), ids=list(WITH_FRAMES))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_predictions_as_frames(clf):
    X = pd.DataFrame(TASK.X, index=[f"row {i}" for i in range(300)]).add_prefix("x")
    fitted = clone(clf).fit(X, FRAME)
    assert fitted.classes_.tolist() == ["sea", "sky", "tree"]
    assert fitted.feature_names_in_.tolist() == X.columns.tolist()
    arrays = fitted.predict(X[:5]), fitted.predict_proba(X[:5])
    assert fitted.set_output(transform="pandas") is fitted
    for method, array in zip((fitted.predict, fitted.predict_proba), arrays):
        frame = method(X[:5])
        assert frame.columns.tolist() == ["sea", "sky", "tree"]
        assert frame.index.tolist() == X.index[:5].tolist()
        assert np.array_equal(frame, array)
    with pytest.raises(ValueError, match="transform must be 'default' or 'pandas'; got 'table'"):
        fitted.set_output(transform="table")
