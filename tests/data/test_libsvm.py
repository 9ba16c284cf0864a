from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ccmn.data import read_file

TEXT = """# two labels, three features
0,1 1:0.5 3:-2
 2:1e-3 1:4 # no label
1
"""


def test_reads(write):
    data = read_file(write("data.txt", TEXT))
    assert_array_equal(data.X.toarray(), np.array([[0.5, 0, -2], [4, 1e-3, 0], [0, 0, 0]], np.float32))
    assert_array_equal(data.Y.toarray(), [[1, 1], [0, 0], [0, 1]])
    assert data.label_names is None


def test_given_counts_and_names(write):
    path = write("data.txt", TEXT)
    data = read_file(path, 5)
    assert (data.d, data.q) == (3, 5)
    assert read_file(path, ["sea", "sky"]).label_names == ("sea", "sky")
    assert read_file(path, write("names.txt", "sea\nsky\nland\n")).q == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1:1\n0 1:x\n", "line 2: '1:x' is not feature:value"),
        ("0 1:1\n0 0:1\n", "line 2: feature 0 is out of range; features are numbered from 1"),
        ("0 -3:1\n", "line 1: feature -3 is out of range"),
        ("0 9999999999:1\n", "line 1: feature 9999999999 is out of range"),
        ("0 1:1 1:2\n", "line 1: feature 1 is given twice"),
        ("0,0 1:1\n", "line 1: a label of '0,0' is given twice"),
        ("-1 1:1\n", "line 1: '-1' is not a label number"),
        ("1.0 1:1\n", "line 1: '1.0' is not a label number"),
        ("0, 1:1\n", "line 1: '' is not a label number"),
        ("99999999999 1:1\n", "line 1: '99999999999' is not a label number"),
        ("0 1:2:3\n", "line 1: '1:2:3' is not feature:value"),
        ("1500 103 14\n0 1:1\n", "line 1: '103' is not feature:value.*is this line a header"),
        ("0 1:1\n\n0 1:1\n", "line 2 is blank"),
        ("0 1:1\n0 2:inf\n", r"line 2: feature 2 is infinite"),
        ("0 2:1e39\n", r"line 1: feature 2 is infinite \(or too large\)"),
        ("", "has no rows"),
        ("# nothing\n", "has no rows"),
    ],
)
def test_malformed(write, text, message):
    path = write("data.txt", text)
    with pytest.raises(ValueError, match=message) as caught:
        read_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (1, "number 1 .from 0., but labels is 1"),
        (["sea"], "but labels is 1"),
        (0, "labels must be an integer of at least 1"),
        ("label_*", "a file of label names ends in .xml"),
        (["a", "a"], "more than once"),
    ],
)
def test_contradictory_counts(write, labels, message):
    with pytest.raises(ValueError, match=message):
        read_file(write("data.txt", TEXT), labels)
