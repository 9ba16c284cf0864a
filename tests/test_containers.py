"""Conversion of label containers, and labels of unusual types at the public entry points."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.utils.data import TensorDataset

import ccmn
from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier, estimate_noise
from ccmn.audit import find_label_issues
from ccmn.data import TablePreprocessor
from ccmn.losses import LOSSES
from ccmn.metrics import METRICS, hamming_loss
from ccmn.paper.baselines import PMLNI

NOISE = ClassConditionalNoise(0.1, 0.1, n_labels=3)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = (X @ RNG.normal(size=(4, 3)) + RNG.normal(size=(60, 3)) > 0).astype(np.float64)


def with_missing(value, *, dataframe=False):
    """Return Y with ``value`` as its first entry."""
    if dataframe:
        frame = pd.DataFrame(Y, columns=["a", "b", "c"]).astype("Int64")
        frame.iloc[0, 0] = value
        return frame
    array = Y.astype(object)
    array[0, 0] = value
    return array


MISSING = {
    "None in an array": with_missing(None),
    "pd.NA in an array": with_missing(pd.NA),
    "pd.NA in a DataFrame": with_missing(pd.NA, dataframe=True),
}


FEATURES, LABELS = torch.tensor(X).bfloat16(), torch.tensor(Y).bfloat16()
PROBABILITIES = torch.sigmoid(FEATURES[:, :3])
VOTES = torch.stack((LABELS, LABELS, 1 - LABELS), 1)
TRUSTED = torch.arange(10), LABELS[:10]
SHORT = {"epochs": 2, "lr": 0.01, "random_state": 0, "device": "cpu"}


def make_linear():
    return torch.nn.Linear(4, 3)


def make_flat(shape, n_outputs):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, n_outputs))


def cross_fit(inputs, labels=None, make_model=make_linear):
    return ccmn.cross_fit_proba(make_model, inputs, labels, n_folds=2, epochs=1)


ENTRY_POINTS = {
    "estimate_noise": lambda: ccmn.estimate_noise(FEATURES, LABELS, trusted=TRUSTED),
    "diagnose_noise": lambda: ccmn.diagnose_noise(Y_noisy=LABELS, pred_proba=PROBABILITIES),
    "cross_fit_proba": lambda: cross_fit(TensorDataset(FEATURES, LABELS)),
    "find_label_issues": lambda: find_label_issues(LABELS, PROBABILITIES, NOISE, trusted=TRUSTED),
    "audit_labels": lambda: ccmn.audit.audit_labels(FEATURES, LABELS, NOISE),
    "infer_labels": lambda: ccmn.infer_labels(VOTES),
    "control_risk": lambda: ccmn.control_risk(LABELS, PROBABILITIES, NOISE, "recall", 0.5),
    "classifier": lambda: CCMNClassifier(NOISE, random_state=0).fit(
        FEATURES, LABELS, torch.ones(len(X)).bfloat16(), trusted=TRUSTED, validation=(FEATURES, LABELS)
    ),
    "classifier, images": lambda: CCMNClassifier(NOISE, model=make_flat, **SHORT).fit(FEATURES[:, None], LABELS),
    "corrected": lambda: CorrectedClassifier(LogisticRegression(), NOISE, random_state=0).fit(FEATURES, LABELS),
    **{
        f"loss {name}": lambda loss=loss: loss(noise=NOISE)(torch.zeros(len(X), loss().n_outputs(3)).bfloat16(), LABELS)
        for name, loss in LOSSES.items()
    },
    **{
        f"metric {name}": lambda metric=metric: metric.function(
            LABELS, PROBABILITIES if metric.needs == "scores" else (PROBABILITIES >= 0.5).bfloat16(), noise=NOISE
        )
        for name, metric in METRICS.items()
    },
}
"""Calls of functions that take features, labels, probabilities or votes, with bfloat16 tensors."""


@pytest.mark.parametrize("name", ENTRY_POINTS)
@pytest.mark.filterwarnings("ignore")
def test_bfloat16_is_accepted(name):
    assert ENTRY_POINTS[name]() is not None


def test_bfloat16_equals_rounded_float32():
    rounded, noisy = FEATURES.float().numpy(), NOISE.corrupt(LABELS, random_state=0)
    assert noisy.dtype == torch.bfloat16
    assert (noisy.float().numpy() == NOISE.corrupt(Y, random_state=0)).all()
    options = {"epochs": 2, "random_state": 0, "device": "cpu"}
    found = CCMNClassifier(NOISE, **options).fit(FEATURES, LABELS).decision_function(FEATURES)
    expected = CCMNClassifier(NOISE, **options).fit(rounded, Y).decision_function(rounded)
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(cross_fit(FEATURES, LABELS).pred_proba, cross_fit(rounded, Y).pred_proba)
    assert PMLNI().fit(FEATURES, LABELS).predict(FEATURES).shape == Y.shape
    assert float(hamming_loss(LABELS, LABELS)) == 0


@pytest.mark.parametrize("labels", MISSING.values(), ids=MISSING)
def test_missing_labels_at_the_entry_points(labels):
    observed = Y.copy()
    observed[0, 0] = np.nan
    np.testing.assert_array_equal(np.asarray(NOISE.debias(labels)), NOISE.debias(observed))
    options = {"epochs": 2, "random_state": 0, "device": "cpu"}
    for clf in (CCMNClassifier(NOISE, **options), CorrectedClassifier(LogisticRegression(), NOISE, random_state=0)):
        found = clf.fit(X, labels).decision_function(X)
        np.testing.assert_allclose(found, clf.fit(X, observed).decision_function(X))
    assert len(find_label_issues(labels, np.full(Y.shape, 0.5), NOISE)) <= Y.size - 1
    with pytest.raises(ValueError, match="contains NaN"):
        hamming_loss(labels, Y)
    with pytest.raises(ValueError, match="contains NaN"):
        PMLNI().fit(X, labels)


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_tables_of_other_libraries(library):
    """Tables of pyarrow and polars give the same model, names, rates and features as those of pandas."""
    module = pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(150, 3)), columns=["a", "b", "c"])
    Y = pd.DataFrame((X[["a", "b"]].to_numpy() > 0).astype(int), columns=["sea", "sky"])
    convert = module.Table.from_pandas if library == "pyarrow" else module.from_pandas
    table_X, table_Y = convert(X), convert(Y)
    expected = CCMNClassifier(noise=None, random_state=0).fit(X, Y)
    found = CCMNClassifier(noise=None, random_state=0).fit(table_X, table_Y)
    assert found.label_names_ == expected.label_names_ == ("sea", "sky")
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(found.predict_proba(table_X), expected.predict_proba(X), rtol=1e-9)
    assert found.set_output(transform="pandas").predict(table_X).columns.tolist() == ["sea", "sky"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # wide intervals
        assert estimate_noise(table_X, table_Y).label_names == ("sea", "sky")
    issues = find_label_issues(table_Y, expected.predict_proba(X))
    assert set(issues.label) == {"sea", "sky"}
    mixed = X.assign(town=["Rome", "Oslo", None] * 50)
    np.testing.assert_array_equal(
        TablePreprocessor().fit_transform(convert(mixed)), TablePreprocessor().fit_transform(mixed)
    )


HUGE = np.full((60, 3), 10**400, dtype=object)


@pytest.mark.parametrize(
    "call",
    [
        lambda: CCMNClassifier(NOISE).fit(HUGE, Y),
        lambda: CCMNClassifier(NOISE).fit(X, HUGE),
        lambda: estimate_noise(HUGE, Y),
        lambda: NOISE.debias(HUGE),
    ],
)
def test_integers_beyond_float64_are_rejected(call):
    with pytest.raises(ValueError, match="range of float64"):
        call()


def test_masked_labels_are_not_observed():
    masked = np.ma.masked_array(Y.astype(int), mask=np.arange(180).reshape(60, 3) % 7 == 0)
    options = {"loss": "hamming", "surrogate": "square", "random_state": 0}
    expected = CCMNClassifier(None, **options).fit(X, masked.astype(float).filled(np.nan)).decision_function(X)
    np.testing.assert_array_equal(CCMNClassifier(None, **options).fit(X, masked).decision_function(X), expected)
