from __future__ import annotations

import numpy as np
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
