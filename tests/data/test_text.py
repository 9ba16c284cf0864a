from __future__ import annotations

import json
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_extraction.text import TfidfVectorizer

from ccmn.data.csv_format import read_csv_text
from ccmn.data.formats import read_text_file
from ccmn.data.parquet import read_parquet_text
from ccmn.data.preprocessing import TextFeatures

TEXTS = ["The red boat, the RED boat", "blue sea and blue boat", "", "Straße 7 für Ünïcode"]


def test_agrees_with_scikit_learn():
    text = TextFeatures.fit("review", TEXTS)
    expected = TfidfVectorizer(sublinear_tf=True).fit_transform(TEXTS)
    assert_allclose(text.transform(TEXTS).toarray(), expected.toarray(), rtol=1e-6)
    assert text.transform(TEXTS).dtype == np.float32


def test_json_round_trip_is_exact():
    text = TextFeatures.fit("review", TEXTS)
    again = TextFeatures.from_dict(json.loads(json.dumps(text.to_dict())))
    assert (again.column, again.terms) == (text.column, text.terms)
    assert_array_equal(again.transform(TEXTS).toarray(), text.transform(TEXTS).toarray())


def test_unknown_words_are_ignored():
    assert TextFeatures.fit("review", TEXTS).transform(["zebra crossing"]).nnz == 0


def test_join(small):
    texts = ["red boat", "sea", ""]
    joined = TextFeatures.fit("review", texts).join(small, texts)
    assert joined.feature_names == ("length", "width", "review:boat", "review:red", "review:sea")
    assert_array_equal(joined.X.toarray()[:, :2], small.X)
    assert joined.label_names == small.label_names


def test_no_words():
    with pytest.raises(ValueError, match=r"the text column 'review' has no words .* in its 2 rows"):
        TextFeatures.fit("review", ["", "a b c"])


@pytest.mark.parametrize(
    "description",
    [
        None,
        [],
        {},
        {"column": "a", "terms": [], "idf": []},
        {"column": "a", "terms": ["x", "x"], "idf": [1, 1]},
        {"column": "a", "terms": ["x"], "idf": [1, 2]},
        {"column": "a", "terms": ["x"], "idf": ["y"]},
        {"column": "a", "terms": 3, "idf": [1]},
    ],
)
def test_not_a_description(description):
    with pytest.raises(ValueError, match="not a description of text features"):
        TextFeatures.from_dict(description)


def test_csv_with_a_text_column(write):
    path = write("data.csv", 'age,review,sea\n1,"blue, deep",1\n,,0\n')
    data, texts = read_csv_text(path, "review", ["sea"])
    assert texts == ["blue, deep", ""]
    assert (data.feature_names, data.label_names) == (("age",), ("sea",))
    assert read_csv_text(path, "review", -1)[0].label_names == ("sea",)  # the text column does not count


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,sea,review\n1,0\n", "line 2: 2 values, but there are 3 columns"),
        ("review,age,sea\nred,1,0,9\n", "line 2: 4 values, but there are 3 columns"),
        ("reviews,age,sea\nred,1,0\n", "there is no text column 'review'; did you mean 'reviews'?"),
        ("review,kind,sea\nred,cat,0\n", "'cat' in column 'kind' is not a number"),
    ],
)
def test_csv_rejects(write, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read_csv_text(write("data.csv", text), "review", ["sea"])


def test_parquet_with_a_text_column(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"review": ["red", None], "sea": [0, 1]})
    table.to_parquet(tmp_path / "data.parquet", index=False)
    data, texts = read_parquet_text(tmp_path / "data.parquet", "review", ["sea"])
    assert texts == ["red", ""]
    assert (data.n, data.d, data.label_names) == (2, 0, ("sea",))
    with pytest.raises(ValueError, match="the text column 'sea' contains int64, not text"):
        read_parquet_text(tmp_path / "data.parquet", "sea", [])


def test_formats_without_text(write):
    with pytest.raises(ValueError, match=r"can be read from \.csv, \.parquet, not from LIBSVM"):
        read_text_file(write("data.svm", "0 1:1\n"), "review")
