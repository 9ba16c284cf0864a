from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

from ccmn.data import load_dataset, read_file

DENSE = """% a comment
@RELATION 'Weather: -C 2 -split-number 2' %50

@attribute sea {0,1}
@attribute 'it\\'s sky' {0,1} % labels first
@Attribute "wind speed" numeric
@attribute\train\tREAL
@data
1,0,0.5,-1e3
% between the rows
0,?,?,2 % at the end of one

'1',"1",3,4
"""
SPARSE = """@relation weather
@attribute a {0,1}
@attribute b numeric
@attribute sea {0,1}
@attribute sky {0, 1}
@data
{0 1, 3 1}
{}
{ 1 -2.5 ,2 1,3 1}
{1 ?}
"""
XML = '<labels><label name="sky"/><label name="sea"/></labels>'


def test_meka_dense(write):
    data = read_file(write("weather.arff", DENSE))
    assert data.label_names == ("sea", "it's sky")
    assert data.feature_names == ("wind speed", "rain")
    assert_array_equal(data.X, np.array([[0.5, -1000], [np.nan, 2], [3, 4]], np.float32))
    assert_array_equal(data.Y, [[1, 0], [0, np.nan], [1, 1]])


def test_mulan_sparse_labels_keep_the_order_of_the_attributes(write):
    data = read_file(write("weather.arff", SPARSE), write("labels.xml", XML))
    assert scipy.sparse.issparse(data.X)
    assert data.label_names == ("sea", "sky")
    assert_array_equal(data.X.toarray(), [[1, 0], [0, 0], [0, -2.5], [0, np.nan]])
    assert_array_equal(data.Y, [[0, 1], [0, 0], [1, 1], [0, 0]])


@pytest.mark.parametrize(
    ("relation", "labels"),
    [
        ("'Weather: -C 2'", ("sea", "it's sky")),
        ("'Weather: -C -2'", ("wind speed", "rain")),
        ("Weather:-C -2 -R", ("wind speed", "rain")),
        ("'Weather: -C 1 -split 2' %50 -C 3", ("sea",)),
        ("'Weather -CV 3: -C 1'", ("sea",)),
    ],
)
def test_label_count_in_the_relation(write, relation, labels):
    rows = "@data\n1,0,1,0\n"
    text = DENSE.partition("@data")[0].replace("'Weather: -C 2 -split-number 2' %50", relation) + rows
    assert read_file(write("weather.arff", text)).label_names == labels


HEAD = "@relation x\n@attribute a numeric\n@attribute sea {0,1}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "@data\n1,0\nred,0\n", "line 6: 'red' in column 'a' is not a number"),
        (HEAD + "@data\n1,0\n1\n", "line 6: 1 values, but there are 2 columns"),
        (HEAD + "@data\n1,0,\n", "line 5: 3 values, but there are 2 columns"),
        (HEAD + "@data\n1,2\n", r"line 5: 2 in column 'sea'; its values are declared as \{0,1\}"),
        (HEAD.replace("{0,1}", "numeric") + "@data\n1,0\n1,7\n", "line 6: 7 in column 'sea'; a label must be 0, 1"),
        (HEAD.replace("{0,1}", "{-1,1}") + "@data\n1,-1\n", "line 5: -1 in column 'sea'; a label must be 0, 1"),
        (HEAD + "@data\n1e99,0\n", "line 5: infinite"),
        (HEAD + "@data\n1,0\n{0 1}\n", "line 6: a sparse row, in braces, among dense rows"),
        (HEAD + "@data\n{0 1}\n1,0\n", "line 6: a row of a sparse file must be in braces"),
        (HEAD + "@data\n{0 1, 1 1\n", "line 5: .*is the file incomplete"),
        (HEAD + "@data\n{0 1}\n{2 1}\n", "line 6: attribute 2 is out of range: there are 2"),
        (HEAD + "@data\n{-1 1}\n", "line 5: '-1 1' is not an attribute number"),
        (HEAD + "@data\n{0 1, 0 2}\n", r"line 5: column 0 \(from 0\) is given twice"),
        (HEAD + "@data\n{0 1 2, 1 1}\n", "line 5: '0 1 2' is not an attribute number and a value"),
        (HEAD + "@data\n{0 1, }\n", "line 5: '' is not an attribute number and a value"),
        (HEAD + "@data\n{" + "9" * 5000 + " 1}\n", "line 5: attribute 9999.* is out of range"),
        (HEAD + "@data\n{0 x}\n", "line 5: 'x' in column 'a' is not a number"),
        (HEAD + "@data\n{1 2}\n", "line 5: 2 in column 'sea'"),
        (
            HEAD.replace("{0,1}", "{1,0}") + "@data\n{0 1}\n",
            "line 3: in a sparse file an omitted value is the first declared value",
        ),
        (HEAD, "has no @data line: it is incomplete"),
        (HEAD + "@data\n", "has no rows after @data"),
        ("", "has no @data line"),
        ("a,sea\n1,0\n", "line 1: expected @relation"),
        ("@relation x\n@attribute a\n@data\n1\n", "line 2: attribute 'a' is declared as nothing"),
        ("@relation x\n@attribute a string\n@data\n1\n", "line 2: attribute 'a' is declared as string, not as numbers"),
        ("@relation x\n@attribute a {red,blue}\n", r"line 2: attribute 'a' is declared as one of \{red,blue\}"),
        ("@relation x\n@attribute 'a numeric\n", "line 2: expected @relation"),
        ("@relation x\n@attribute a {0,1\n", "line 2: attribute 'a' is declared as"),
        (HEAD + "@attribute a real\n@data\n1,0,1\n", "'a' occurs more than once; column names must be unique"),
        (HEAD.replace("sea", "see") + "@data\n1,0\n", "there is no label column '.*'; did you mean 'see'"),
    ],
)
def test_malformed(write, text, message):
    path = write("data.arff", text)
    with pytest.raises(ValueError, match=message) as caught:
        read_file(path, ["sea"])
    assert str(path) in str(caught.value)


def test_error_without_labels_names_the_xml_file(write):
    path = write("weather.arff", SPARSE)
    with pytest.raises(ValueError, match="specify which attributes are labels"):
        read_file(path)
    beside = write("weather.xml", XML)
    with pytest.raises(ValueError, match=r"weather\.xml may list them") as caught:
        read_file(path)
    assert str(beside) in str(caught.value)


def mulan(original, stem, xml):
    return read_file(original / f"mulan_{stem}.arff.gz", original / f"mulan_{xml}.xml")


def test_mulan_files_equal_the_npz(real_data, original, same):
    found = {
        "yeast": mulan(original, "yeast", "yeast"),
        "enron": mulan(original, "enron", "enron"),
        "tmc": mulan(original, "tmc2007-500-train", "tmc2007-500"),
    }
    for name, data in found.items():
        expected = load_dataset(name, data_dir=real_data)
        same(data, expected)
        assert data.label_names == expected.label_names
        assert data.feature_names == expected.feature_names
        assert scipy.sparse.issparse(data.X) == scipy.sparse.issparse(expected.X)


@pytest.mark.parametrize(
    ("file", "name", "rows"),
    [
        ("meka_Scene.arff.gz", "scene", slice(None)),
        ("meka_Enron.arff.gz", "enron", slice(None)),
        ("meka_Yeast.arff.gz", "yeast", np.r_[1500:2417, 0:1500]),  # Meka: train first; Mulan: test first
        ("meka_SLASHDOT-F.arff.gz", "slashdot", slice(None)),
    ],
)
def test_meka_files_equal_the_npz(real_data, original, same, file, name, rows):
    data = read_file(original / file).take(rows)
    expected = load_dataset(name, data_dir=real_data)
    same(data, expected)
    assert data.feature_names == expected.feature_names
    if name != "scene":  # label names differ: beach, Beach
        assert data.label_names == expected.label_names
