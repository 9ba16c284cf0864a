"""Tables as features: compared with the transformers of scikit-learn, stored as JSON, and with clear errors."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ccmn.data import TablePreprocessor


@pytest.fixture
def table():
    """Table with numbers, categories, dates and texts, all with gaps."""
    return pd.DataFrame(
        {
            "age": [20, None, 40, 33],
            "city": ["Rome", None, "Oslo", "Rome"],
            "opened": ["2026-01-31", "2026-02-01", None, "2026-02-03"],
            "body": ["red boat", "blue boat", None, "red sea"],
            "paid": ["yes", "no", "no", ""],
        }
    )


def test_agrees_with_scikit_learn(table):
    data = table[["age", "city", "body"]].assign(body=table.body.fillna(""))
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = OneHotEncoder(min_frequency=2, sparse_output=False, handle_unknown="infrequent_if_exist")
    reference = ColumnTransformer(
        [
            ("age", numbers, ["age"]),
            ("gaps", make_pipeline(SimpleImputer(add_indicator=True)), ["age"]),
            ("city", categories, ["city"]),
            ("body", TfidfVectorizer(sublinear_tf=True), "body"),
        ],
        sparse_threshold=0,
    )
    expected = reference.fit_transform(data)
    X = TablePreprocessor("body").fit(data).transform(data).toarray()
    assert_allclose(X[:, 0], expected[:, 0], rtol=1e-6)  # age
    assert_array_equal(X[:, 1], expected[:, 2])  # indicator of gaps
    assert_array_equal(X[:, 2], expected[:, 3])  # Rome; scikit-learn counts gaps as a rare category
    assert_array_equal(X[:, 3] + X[:, 4], expected[:, 4])
    assert_allclose(X[:, 5:], expected[:, 5:], rtol=1e-6)


def test_parts_of_dates(table):
    preprocessor = TablePreprocessor(ignore=["body", "age", "city", "paid"]).fit(table)
    assert preprocessor.feature_names_out_ == ["opened:days", "opened:month", "opened:weekday", "opened:missing"]
    assert [step.median for step in preprocessor.steps_] == [20485.0, 2.0, 5.0]  # 2026-02-01 is a Sunday; of 5, 6 and 1
    assert preprocessor.transform(table)[:, 3].tolist() == [0, 0, 1, 0]
    timed = pd.DataFrame({"opened": ["2026-01-31T08:00:00Z", "2026-01-31T10:00:00+02:00"]})
    names = TablePreprocessor().fit(timed).feature_names_out_
    assert names == ["opened:days", "opened:month", "opened:weekday", "opened:hour"]
    assert np.ptp(TablePreprocessor().fit(timed).transform(timed)) == 0  # the same time in two zones


def test_json_round_trip(table):
    preprocessor = TablePreprocessor("body").fit(table.assign(paid=table.paid.replace("", None)))
    again = TablePreprocessor.from_dict(json.loads(json.dumps(preprocessor.to_dict())))
    changed = table.assign(city=["Bern", "Oslo", None, "Rome"], paid=None, extra="ignored")
    assert_array_equal(again.transform(changed).toarray(), preprocessor.transform(changed).toarray())
    assert again.get_feature_names_out().tolist() == preprocessor.feature_names_out_


@pytest.mark.parametrize(
    "description",
    [
        None,
        {},
        {"steps": [{"kind": "pickle"}]},
        {"steps": [{"kind": "number", "column": "x", "median": 0, "mean": "nan", "scale": 1, "gaps": False}]},
        {"steps": [{"kind": "category", "column": "x", "categories": ["a", "a"], "rare": False, "gaps": False}]},
        {"steps": [{"kind": "number", "column": "x", "median": 0, "mean": 0, "scale": 1, "gaps": 0, "part": "year"}]},
        {"steps": [{"kind": "text", "column": "x", "terms": ["a"], "idf": [float("nan")]}]},
        {"steps": [{"kind": "text", "column": "x", "terms": ["a"], "idf": [10**400]}]},
    ],
)
def test_damaged_descriptions_are_rejected(description):
    with pytest.raises(ValueError, match="not a description"):
        TablePreprocessor.from_dict(description)


def test_rare_and_unknown_categories_share_a_feature():
    train = pd.DataFrame({"zip": [1, 1, 1, 2, 2, 3]})
    preprocessor = TablePreprocessor(categorical=["zip"], max_categories=1).fit(train)
    assert preprocessor.feature_names_out_ == ["zip=1", "zip:rare"]
    X = preprocessor.transform(pd.DataFrame({"zip": [1.0, 2.0, 9.0, np.nan]}))
    assert X.tolist() == [[1, 0], [0, 1], [0, 1], [0, 0]]


def test_typed_columns():
    frame = pd.DataFrame(
        {
            "when": pd.to_datetime(["2026-01-01", None]),
            "kind": pd.Categorical(["a", "a"]),
            "flag": [True, False],
            "count": pd.array([1, None], dtype="Int64"),
        }
    )
    names = TablePreprocessor().fit(frame).feature_names_out_
    assert names[:4] == ["flag", "count", "count:missing", "kind=a"]
    assert names[4:] == ["when:days", "when:month", "when:weekday", "when:missing"]


def test_errors(table):
    for frame, text, message in (
        (pd.DataFrame({"age": ["1"] * 20 + ["12a"]}), (), r"'12a' in column 'age' is not a number"),
        (pd.DataFrame({"name": [f"n{i}" for i in range(30)]}), (), r"30 different values.*--text name.*--id name"),
        (pd.DataFrame({"age": ["1", "1e308"]}), (), r"row 1 .from 0.: infinite .* value in column 'age'"),
        (pd.DataFrame({"tags": [["a"], ["b"]]}), (), "contains lists"),
        (table, "bodi", "there is no column 'bodi'"),
        (np.ones((2, 2)), (), "Expected a DataFrame"),
    ):
        with pytest.raises(ValueError, match=message):
            TablePreprocessor(text).fit(frame)
    fitted = TablePreprocessor("body").fit(table)
    with pytest.raises(ValueError, match="1 are missing: 'city'"):
        fitted.transform(table.drop(columns="city"))
    with pytest.raises(ValueError, match=r"'soon' in column 'opened'.*not a date"):
        fitted.transform(table.assign(opened="soon"))


def test_many_numbers_stay_dense_and_many_categories_become_sparse():
    """Embeddings have thousands of numeric columns, in which hardly any value is zero."""
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.normal(size=(4, 1200)), columns=[f"e{j}" for j in range(1200)])
    assert isinstance(TablePreprocessor().fit_transform(numbers), np.ndarray)
    words = pd.DataFrame({f"c{j}": ["a", "a", "b", "b"] for j in range(600)})
    assert TablePreprocessor().fit_transform(words.assign(number=1.0)).format == "csr"
