from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse

from ccmn.data import read_file, write_file


def test_round_trip_of_sparse_and_candidates(small, same, tmp_path):
    data = dataclasses.replace(
        small,
        X=scipy.sparse.csr_array(small.X),
        Y=scipy.sparse.csr_array(small.Y),
        candidates=np.ones((3, 2)),
        feature_names=None,
    )
    write_file(data, tmp_path / "data.npz")
    back = read_file(tmp_path / "data.npz")
    same(back, data)
    assert scipy.sparse.issparse(back.X)
    assert scipy.sparse.issparse(back.Y)
    assert back.feature_names is None
