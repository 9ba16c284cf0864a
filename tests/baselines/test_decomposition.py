"""One decomposition solves for every shift, whatever the shape."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from ccmn.baselines.decomposition import ShiftedGram, with_ones


@pytest.mark.parametrize("shape", [(30, 5), (5, 30), (6, 6)])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_solves(shape, container):
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal(shape)
    Phi[:, -1] = Phi[:, 0]  # not of full rank
    M = rng.standard_normal((3, shape[1]))
    gram = ShiftedGram(container(Phi))
    for shift in (1e-3, 1.0, 50.0):
        wanted = M @ np.linalg.inv(Phi.T @ Phi + shift * np.eye(shape[1]))
        assert gram.solve(M, shift) == pytest.approx(wanted, rel=1e-8, abs=1e-8)
        assert gram.solver(shift)(M) == pytest.approx(wanted, rel=1e-8, abs=1e-8)
    assert gram.solve(M, 0.0) == pytest.approx(M @ np.linalg.pinv(Phi.T @ Phi, rcond=1e-10), abs=1e-8)
    assert gram.largest == pytest.approx(np.linalg.norm(Phi, 2) ** 2)


def test_ones_come_last_and_sparse_stays_sparse():
    X = np.arange(6.0).reshape(3, 2)
    assert with_ones(X)[:, -1].tolist() == [1, 1, 1]
    sparse = with_ones(scipy.sparse.csr_array(X))
    assert scipy.sparse.issparse(sparse)
    assert (sparse.toarray() == with_ones(X)).all()
