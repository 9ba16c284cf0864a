from dataclasses import replace

import pytest
from numpy.testing import assert_array_equal

from ccmn.data import write_file
from ccmn.data.column_roles import ColumnRoles
from ccmn.data.columns import Columns


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
    assert_array_equal(replace(bare, label_names=["sea", "sky"]).read_rows(tmp_path / "small.csv").X, small.X)


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
