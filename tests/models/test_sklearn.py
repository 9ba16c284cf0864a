"""The checks of scikit-learn, searches, metadata routing, representations, joblib and skops."""

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier
from ccmn.data import make_noisy_multilabel
from ccmn.noise import GroupedNoise
from helpers import LABELS_ONLY, sklearn_checks


@pytest.mark.filterwarnings("ignore")
@sklearn_checks(
    [
        CCMNClassifier(epochs=10, random_state=0),
        CCMNClassifier(None, loss="hamming", epochs=10, random_state=0),
        CCMNClassifier(None, model="mlp", epochs=10, random_state=0),
    ],
    {name: reason for name, reason in LABELS_ONLY.items() if "weight_equivalence" not in name},
)
def test_check_estimator(estimator, check):
    check(estimator)


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


def test_metadata_routing_slices_trusted_rows_and_groups():
    X = np.column_stack([np.arange(300), TASK.X])
    noise = GroupedNoise({"web": UNNAMED, "archive": UNNAMED})
    clf = Recorder(noise, loss="hamming", epochs=5, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(FunctionTransformer(), clf.set_fit_request(trusted=True, groups=True))
        grid = {"recorder__weight_decay": [0.01]}
        search = GridSearchCV(pipe, grid, cv=3, scoring="f1_micro", error_score="raise", refit=False)
        search.fit(X, TASK.Y_noisy, trusted=TRUSTED, groups=SOURCES)
    assert calls == [200] * 3


@pytest.mark.parametrize("name", ["linear", "corrected"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_frames_keep_names(name):
    X = pd.DataFrame(TASK.X, index=[f"row {i}" for i in range(300)]).add_prefix("x")
    fitted = clone(SAVED[name]).fit(X, FRAME)
    assert fitted.classes_.tolist() == ["sea", "sky", "tree"]
    assert fitted.feature_names_in_.tolist() == X.columns.tolist()
    arrays = fitted.predict(X[:5]), fitted.predict_proba(X[:5])
    assert fitted.set_output(transform="pandas") is fitted
    for method, array in zip((fitted.predict, fitted.predict_proba), arrays):
        frame = method(X[:5])
        assert frame.columns.tolist() == ["sea", "sky", "tree"]
        assert frame.index.tolist() == X.index[:5].tolist()
        assert np.array_equal(frame, array)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(X[X.columns[::-1]])
    with pytest.raises(ValueError, match=r"non-numeric columns kind\..*TablePreprocessor"):
        CCMNClassifier(None).fit(X.assign(kind=pd.Categorical(["a", "b"] * 150)), FRAME)
    with pytest.raises(ValueError, match="transform must be 'default' or 'pandas'; got 'table'"):
        fitted.set_output(transform="table")
