"""What the readers of tables make of valid files, and comparisons with other readers and other copies of real data."""

import dataclasses
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ccmn.data import load_dataset, read_file, write_file
from ccmn.data.column_roles import ColumnRoles
from ccmn.data.columns import Columns

pa = pytest.importorskip("pyarrow")
nan = np.nan

MEKA = """% a comment
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
MULAN = """@relation weather
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
CSV = """length,"wide, very",label_sea,label_sky
0.5,,1,0
-1e3,2,0,

"7",3.5,1,1
"""
LIBSVM = """# two labels, three features
0,1 1:0.5 3:-2
 2:1e-3 1:4 # no label
1
"""
XML = '<labels><label name="sky"/><label name="sea"/></labels>'
PARQUET = {
    "length": pa.array([0.5, None, 1.5]),
    "count": pa.array([1, 2, 2**40], pa.int64()),
    "flag": pa.array([True, False, True]),
    "label_sea": pa.array([1, 0, None], pa.int8()),
    "label_sky": pa.array([True, False, True]),
}
SEA = (("a",), ("sea",))


@pytest.mark.parametrize(
    ("name", "content", "labels", "names", "X", "Y"),
    [
        (
            "data.csv",
            CSV,
            "label_*",
            (("length", "wide, very"), ("label_sea", "label_sky")),
            [[0.5, nan], [-1000, 2], [7, 3.5]],
            [[1, 0], [0, nan], [1, 1]],
        ),
        ("data.csv", "a,sea\nTrue,no\nfalse, Yes \nyes,\n", ["sea"], SEA, [[1], [0], [1]], [[0], [1], [nan]]),
        ("index.csv", ",a,sea\n0,2,0\n1,3,1\n", ["sea"], SEA, [[2], [3]], [[0], [1]]),
        ("semicolon.csv", '"a, b";c;sea\n1.5;2;0\n', ["sea"], (("a, b", "c"), ("sea",)), [[1.5, 2]], [[0]]),
        ("tab.csv", "a\tsea\n1,5\t0\n".replace("1,5", "1.5"), ["sea"], SEA, [[1.5]], [[0]]),
        ("data.txt", LIBSVM, None, (None, None), [[0.5, 0, -2], [4, 1e-3, 0], [0, 0, 0]], [[1, 1], [0, 0], [0, 1]]),
        ("data.txt", "1 1:2\n", 3, (None, None), [[2]], [[0, 1, 0]]),
        ("data.txt", "1 1:2\n", ["sea", "sky"], (None, ("sea", "sky")), [[2]], [[0, 1]]),
        (
            "data.parquet",
            PARQUET,
            "label_*",
            (("length", "count", "flag"), ("label_sea", "label_sky")),
            [[0.5, 1, 1], [nan, 2, 0], [1.5, 2**40, 1]],
            [[1, 1], [0, 0], [nan, 1]],
        ),
        (
            "weather.arff",
            MEKA,
            None,
            (("wind speed", "rain"), ("sea", "it's sky")),
            [[0.5, -1000], [nan, 2], [3, 4]],
            [[1, 0], [0, nan], [1, 1]],
        ),
        (
            "weather.arff",
            MULAN,
            XML,
            (("a", "b"), ("sea", "sky")),  # the order of the attributes
            [[1, 0], [0, 0], [0, -2.5], [0, nan]],
            [[0, 1], [0, 0], [1, 1], [0, 0]],
        ),
    ],
)
def test_reads(write, name, content, labels, names, X, Y):
    data = read_file(write(name, content), write("labels.xml", XML) if labels is XML else labels)
    assert scipy.sparse.issparse(data.X) == (content in (MULAN, LIBSVM) or name == "data.txt")
    found = (M.toarray() if scipy.sparse.issparse(M) else M for M in (data.X, data.Y))
    for matrix, expected in zip(found, (X, Y)):
        assert_array_equal(matrix, np.array(expected, np.float32))
    assert (data.feature_names, data.label_names) == names


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_round_trip_of_sparse_unnamed_unobserved(small, same, tmp_path, suffix):
    changes = {"Y": [[1, nan], [0, 0], [nan, 1]]} if suffix == ".csv" else {"candidates": np.ones((3, 2))}
    changes |= {"X": scipy.sparse.csr_array(small.X), "feature_names": None, "label_names": None}
    data = dataclasses.replace(small, **changes)
    write_file(data, tmp_path / f"data{suffix}")
    back = read_file(tmp_path / f"data{suffix}", "label_*" if suffix == ".csv" else None)
    same(back, data)
    assert back.feature_names == (("x0", "x1") if suffix == ".csv" else None)


NUMBERS = "a,b,sea\n0.5,1,0\n-1e3,,1\n7,3.25,0\n"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(NUMBERS)), st.integers(0, 3), st.text('015,\n\r"-.eE+ tTrueinfa_#;', max_size=4))
def test_both_readers_of_csv_agree(write, same, monkeypatch, at, cut, insert):
    """Files of plain numbers are read by pandas, all others row by row; both give the same data or error."""
    path = write("data.csv", NUMBERS[:at] + insert + NUMBERS[at + cut :])

    def outcome():
        try:
            return read_file(path, -1)
        except ValueError as error:
            return str(error)

    def fail(*_, **__):
        raise ValueError

    found = outcome()
    with monkeypatch.context() as patch:
        patch.setattr(pd, "read_csv", fail)
        expected = outcome()
    if isinstance(expected, str):
        assert found == expected
    else:
        same(found, expected)


def test_damaged_levels_of_parquet_do_not_end_the_process(write):
    """Pyarrow ends the process if metadata of columns are inspected that do not fit the schema."""
    path = write("data.parquet", {"a": [1.0], "sea": [0]})
    content = path.read_bytes()
    optional, required = b"\x25\x02\x18\x01a", b"\x25\x00\x18\x01a"  # whether column a has empty cells, in Thrift
    assert content.count(optional) == 1
    path.write_bytes(content.replace(optional, required))
    code = "import sys; from ccmn.data import read_file; read_file(sys.argv[1], -1)"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ValueError" in done.stderr
    assert "data.parquet: the file is not a complete Parquet file" in done.stderr


@pytest.mark.parametrize(
    ("relation", "labels"),
    [
        ("'Weather: -C -2'", ("wind speed", "rain")),
        ("Weather:-C -2 -R", ("wind speed", "rain")),
        ("'Weather: -C 1 -split 2' %50 -C 3", ("sea",)),
        ("'Weather -CV 3: -C 1'", ("sea",)),
    ],
)
def test_label_count_in_the_relation_of_arff(write, relation, labels):
    rows = "@data\n1,0,1,0\n"
    text = MEKA.partition("@data")[0].replace("'Weather: -C 2 -split-number 2' %50", relation) + rows
    assert read_file(write("weather.arff", text)).label_names == labels


def test_error_without_labels_names_the_xml_file(write):
    path = write("weather.arff", MULAN)
    with pytest.raises(ValueError, match="specify which attributes are labels"):
        read_file(path)
    beside = write("weather.xml", XML)
    with pytest.raises(ValueError, match=r"weather\.xml may list them") as caught:
        read_file(path)
    assert str(beside) in str(caught.value)


@pytest.mark.parametrize(
    ("file", "name", "rows"),
    [
        ("mulan_yeast.arff.gz", "yeast", slice(None)),
        ("mulan_enron.arff.gz", "enron", slice(None)),
        ("meka_Scene.arff.gz", "scene", slice(None)),
        ("meka_Enron.arff.gz", "enron", slice(None)),
        ("meka_Yeast.arff.gz", "yeast", np.r_[1500:2417, 0:1500]),  # Meka: train first; Mulan: test first
        ("meka_SLASHDOT-F.arff.gz", "slashdot", slice(None)),
        ("yeast.mat", "yeast", slice(None)),
        ("enron.mat", "enron", slice(None)),
        ("mirflickr_5000.mat", "mirflickr", slice(None)),
    ],
)
def test_public_files_equal_the_npz(real_data, original, same, file, name, rows):
    data = read_file(original / file, original / f"mulan_{name}.xml" if "mulan" in file else None).take(rows)
    expected = load_dataset(name, data_dir=real_data)
    same(data, expected)
    if not file.endswith(".mat"):
        assert data.feature_names == expected.feature_names
        assert data.label_names == expected.label_names or name == "scene"  # beach, Beach


# -- Columns of a model


@pytest.fixture
def columns():
    """Columns of the small dataset in reverse order."""
    return Columns(2, 2, ["width", "length"], ["sky", "sea"])


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_features_and_labels_have_the_order_of_the_model(columns, small, tmp_path, suffix):
    path = tmp_path / f"small{suffix}"
    write_file(small, path)
    rows, data = columns.read_rows(path), columns.read_labeled(path)
    assert_array_equal(rows.X, small.X[:, ::-1])
    assert rows.q == 0
    assert_array_equal(data.X, rows.X)
    assert_array_equal(data.Y, small.Y[:, ::-1])
    assert (data.feature_names, data.label_names) == (("width", "length"), ("sky", "sea"))


def test_columns_without_names_are_matched_by_position(small, tmp_path):
    write_file(small, tmp_path / "small.npz")
    write_file(small, tmp_path / "small.csv")
    bare = Columns(2, 2)
    assert_array_equal(bare.read_labeled(tmp_path / "small.npz").X, small.X)
    with pytest.raises(ValueError, match="fitted on 2 features; got 4"):
        bare.read_rows(tmp_path / "small.csv")  # labels cannot be told from features
    assert_array_equal(
        dataclasses.replace(bare, label_names=["sea", "sky"]).read_rows(tmp_path / "small.csv").X, small.X
    )


def test_meka_declares_its_labels(write):
    path = write("data.arff", "@relation 'x: -C 1'\n@attribute a {0,1}\n@attribute f numeric\n@data\n1,0.5\n")
    assert_array_equal(Columns(1, 1).read_labeled(path).Y, [[1]])
    assert_array_equal(Columns(1, 1, ["f"], ["a"]).read_rows(path).X, [[0.5]])


def test_libsvm_files_may_lack_the_last_columns(write):
    path = write("part.svm", "0 1:1\n")
    data = Columns(3, 2).read_labeled(path)
    assert (data.d, data.q) == (3, 2)
    assert Columns(3, 2, label_names=["a", "b"]).read_labeled(path).label_names == ("a", "b")
    with pytest.raises(ValueError, match="the file contains number 1"):
        Columns(3, 1).read_labeled(write("more.svm", "1 1:1\n"))


def test_data_without_features_or_labels(write):
    with pytest.raises(ValueError, match="there are no features in these data"):
        Columns.from_training_data(write("train.csv", "sea\n1\n0\n"), roles=ColumnRoles(["sea"]))
    with pytest.raises(ValueError, match="there are no labels"):
        Columns.from_training_data(write("train.csv", "x\n1\n"), roles=ColumnRoles([]))
