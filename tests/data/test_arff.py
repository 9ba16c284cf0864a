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
