"""Label sources: batches of CSR labels equal those of dense labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccmn.noise import ClassConditionalNoise, TransitionNoise
from ccmn.training.batches import DenseLabels, SparseLabels


def random_labels(n: int, q: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random((n, q)) < 0.3).astype(np.float32)


@given(n=st.integers(1, 8), q=st.integers(1, 6), seed=st.integers(0, 99), data=st.data())
def test_batch_equals_that_of_dense_labels(n, q, seed, data):
    Y, noise = random_labels(n, q, seed), ClassConditionalNoise(0.2, np.linspace(0, 0.5, q))
    rows = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=9)))
    known = np.random.default_rng(seed).random(n) < 0.5
    p = np.where(known[:, None], Y, noise.debias(Y))
    sparse = SparseLabels(scipy.sparse.csr_matrix(Y), noise.debiasing(), known)
    index = rows.unsqueeze(0)
    torch.testing.assert_close(sparse.targets(index), DenseLabels(torch.from_numpy(p)).targets(index))
    np.testing.assert_allclose(sparse.columns(slice(0, q)), p, atol=1e-6)
    np.testing.assert_allclose(
        sparse[rows.numpy()].targets(torch.arange(len(rows))[None])[0, 0], p[rows.numpy()], atol=1e-6
    )


def test_several_groups_and_no_noise():
    Y = random_labels(10, 5)
    index = torch.tensor([[0, 3, 3], [9, 1, 0]])
    sparse = SparseLabels(scipy.sparse.csr_array(Y), dtype=torch.float64)
    torch.testing.assert_close(sparse.targets(index)[:, 0], torch.from_numpy(Y).double()[index])
    per_group = torch.stack((torch.from_numpy(Y), 1 - torch.from_numpy(Y)))
    expected = torch.stack((per_group[0, index[0]], per_group[1, index[1]]))
    torch.testing.assert_close(DenseLabels(per_group).targets(index)[:, 0], expected)


def test_unobserved_labels_and_stored_zeros():
    matrix = scipy.sparse.csr_matrix((np.array([1.0, np.nan, 0.0]), ([0, 0, 1], [0, 2, 1])), shape=(2, 3))
    noise = ClassConditionalNoise(0.1, 0.2, n_labels=3)
    batch = SparseLabels(matrix, noise.debiasing()).targets(torch.tensor([[0, 1]]))[0, 0]
    np.testing.assert_allclose(batch, noise.debias(matrix.toarray()), atol=1e-6)


def test_transition_matrix_mixes_labels():
    noise = TransitionNoise(np.full((3, 3), 0.1) + 0.7 * np.eye(3))
    Y = np.eye(3, dtype=np.float32)
    batch = SparseLabels(scipy.sparse.csr_array(Y), noise.debiasing()).targets(torch.tensor([[2, 0]]))[0, 0]
    np.testing.assert_allclose(batch, noise.debias(Y)[[2, 0]], atol=1e-6)


@pytest.mark.parametrize("container", [scipy.sparse.csr_matrix, scipy.sparse.csc_matrix, scipy.sparse.coo_array])
def test_any_sparse_container(container):
    Y = random_labels(6, 4)
    index = torch.tensor([[5, 2]])
    torch.testing.assert_close(SparseLabels(container(Y)).targets(index)[0, 0], torch.from_numpy(Y)[index[0]])
