"""The warning about features that Adam trains poorly on."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler, normalize

from ccmn import CCMNClassifier
from ccmn.data import load_digit_scenes
from ccmn.models.training_data import scale_warning

BAD = "Features are badly scaled"


@pytest.fixture(scope="module")
def people():
    """Return age, income and height in raw units, and labels that depend on all of them."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(400, 3))
    X = pd.DataFrame(Z * [12, 20_000, 0.1] + [40, 50_000, 1.7], columns=["age", "income", "height"])
    return X, (Z @ rng.normal(size=(3, 4)) > 0).astype(int)


def small(**options):
    return CCMNClassifier(None, epochs=2, random_state=0, **options)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_raw_units_are_reported_with_a_remedy(people, model):
    with pytest.warns(UserWarning, match=rf"{BAD}.*2 of 3 columns.*'income'.*make_pipeline\(StandardScaler\(\), CCMN"):
        small(model=model).fit(*people)
    with pytest.warns(UserWarning, match=rf"{BAD}.*column 1:.*MaxAbsScaler"):
        small(model=model).fit(scipy.sparse.csr_matrix(people[0].to_numpy()), people[1])


def test_no_warning_after_scaling(people):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=BAD)
        make_pipeline(StandardScaler(), small()).fit(*people)
        make_pipeline(MaxAbsScaler(), small()).fit(scipy.sparse.csr_matrix(people[0].to_numpy()), people[1])


@pytest.mark.parametrize("surrogate", ["square", "logistic"])
def test_no_warning_for_closed_form_and_newton(people, surrogate):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=BAD)
        small(loss="hamming", surrogate=surrogate).fit(*people)


def test_no_warning_for_custom_networks(people):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=BAD)
        small(model=lambda d, q: torch.nn.Sequential(torch.nn.BatchNorm1d(d), torch.nn.Linear(d, q))).fit(*people)


def test_streams_are_checked_on_the_sample(people, tmp_path):
    pytest.importorskip("pyarrow")
    X, Y = people
    table = X.assign(**{f"tag_{j}": Y[:, j] for j in range(4)})
    table.to_parquet(tmp_path / "part-0.parquet")
    with pytest.warns(UserWarning, match=rf"{BAD}.*'income'"):
        small(batch_size=50).fit_stream(tmp_path, labels="tag_*")


def words(n=500, d=300):
    rng = np.random.default_rng(0)
    topics, of_rows = rng.dirichlet(np.full(d, 0.05), 5), rng.dirichlet(np.full(5, 0.2), n)
    return np.stack([rng.multinomial(40, row @ topics) for row in of_rows]).astype(float)


def normal(mean=0.0, std=1.0):
    return np.random.default_rng(0).normal(mean, std, (500, 10))


WELL = {
    "standardized": normal,
    "unit-norm rows": lambda: normalize(normal(0.3)),
    "unit-norm rows, many columns": lambda: normalize(np.random.default_rng(0).normal(size=(50, 5000))),
    "word counts": words,
    "0/1 words": lambda: (words() > 0).astype(float),
    "TF-IDF": lambda: TfidfTransformer().fit_transform(words()),
    "pixels in [0, 1]": lambda: load_digit_scenes(500).X,
    "digits in 0..16": lambda: load_digits().data,
    "a constant column": lambda: np.column_stack((np.ones(500), normal())),
    "std 100": lambda: normal(0, 100),
    "mean 3": lambda: normal(3),
    "all zero": lambda: np.zeros((20, 3)),
}
BADLY = {
    "mean 10": lambda: normal(10),
    "mean 30, std 10": lambda: normal(30, 10),
    "pixels in 0..255": lambda: 255 * load_digit_scenes(500).X,
    "one year": lambda: np.column_stack((normal(2015, 5)[:, 0], normal())),
    "std .01": lambda: normal(0, 0.01),
    "huge": lambda: normal(0, 1e200),
}


@pytest.mark.parametrize("make", WELL.values(), ids=WELL)
def test_common_features_are_not_reported(make):
    X = make()
    for each in (X, X.astype(np.float32), scipy.sparse.csr_matrix(X)):
        assert scale_warning(each) is None


@pytest.mark.parametrize("make", BADLY.values(), ids=BADLY)
def test_features_that_train_poorly_are_reported(make):
    X = make()
    for each in (X, scipy.sparse.csr_matrix(X)):
        assert BAD in scale_warning(each)


def test_scale_is_measured_on_a_sample_of_rows():
    assert BAD in scale_warning(np.tile(normal(10), (50, 1)))
