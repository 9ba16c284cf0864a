from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ccmn.data import read_file, write_file

TEXT = """length,"wide, very",label_sea,label_sky
0.5,,1,0
-1e3,2,0,

"7",3.5,1,1
"""


def test_reads_missing_features_and_unobserved_labels(write):
    data = read_file(write("data.csv", TEXT), "label_*")
    assert data.feature_names == ("length", "wide, very")
    assert data.label_names == ("label_sea", "label_sky")
    assert data.name == "data"
    assert_array_equal(data.X, np.array([[0.5, np.nan], [-1000, 2], [7, 3.5]], dtype=np.float32))
    assert_array_equal(data.Y, [[1, 0], [0, np.nan], [1, 1]])


def test_row_numbers_of_a_frame_are_left_out(write):
    data = read_file(write("data.csv", ",a,sea\n0,2,0\n1,3,1\n"), ["sea"])
    assert data.feature_names == ("a",)


def test_true_false_yes_no(write):
    data = read_file(write("data.csv", "old,sea,sky\nTrue,True,no\nfalse, FALSE ,Yes\nyes,,1\n"), ["sea", "sky"])
    assert_array_equal(data.Y, [[1, 0], [0, 1], [np.nan, 1]])
    assert_array_equal(data.X, [[1], [0], [1]])


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_of_columns(write, separator):
    text = '"a, b",c,sea\n1.5,2,0\n'.replace(",c,", f"{separator}c{separator}").replace(
        ",2,", f"{separator}2{separator}"
    )
    data = read_file(write("data.csv", text), ["sea"])
    assert data.feature_names == ("a, b", "c")
    assert_array_equal(data.X, [[1.5, 2]])


def test_round_trip_of_sparse_unnamed_unobserved(small, same, tmp_path):
    data = dataclasses.replace(
        small,
        X=scipy.sparse.csr_array(small.X),
        Y=[[1, np.nan], [0, 0], [np.nan, 1]],
        feature_names=None,
        label_names=None,
    )
    write_file(data, tmp_path / "data.csv")
    back = read_file(tmp_path / "data.csv", "label_*")
    same(back, data)
    assert back.feature_names == ("x0", "x1")


NUMBERS = "a,b,sea\n0.5,1,0\n-1e3,,1\n7,3.25,0\n"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(NUMBERS)), st.integers(0, 3), st.text('015,\n\r"-.eE+ tTrueinfa_#;', max_size=4))
def test_both_readers_agree(write, same, monkeypatch, at, cut, insert):
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
