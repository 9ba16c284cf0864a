"""Which rows come next, reproducibly from (seed, epoch), and how they are gathered from dense or sparse features.

Labels in memory, from which batches of targets are gathered: dense ones, or CSR that is debiased batch by batch.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn.noise import Debiasing

WIDEST_DENSE_BATCH = 4096
"""Sparse batches of more features than this stay sparse; narrower ones are quicker dense."""
_DENSE_ON_DEVICE = 2 << 30
"""A sparse matrix whose dense form is smaller than this many bytes lies dense in an accelerator's own memory."""


class Features:
    """Features in memory, dense or CSR, from which batches are gathered; the whole of a CSR is never made dense
    in main memory."""

    def __init__(self, X: Any, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> None:
        self.device, self.dtype = torch.device(device), dtype
        self.n, self.d = X.shape
        self._csr: Any = None
        self._dense: Tensor | None = None
        if not is_sparse(X):
            self._dense = _dense_tensor(X).to(self.device, dtype)
        elif self.device.type != "cpu" and self.n * self.d * dtype.itemsize <= _DENSE_ON_DEVICE:
            self._dense = _csr_tensor(X.tocsr(), dtype).to(self.device).to_dense()
        else:
            self._csr = X.tocsr()

    @property
    def is_dense(self) -> bool:
        """Do all batches come from one dense tensor?"""
        return self._dense is not None

    def gather(self, index: Tensor) -> Tensor:
        """Rows (G, B) -> (G, B, d) dense, or one sparse (B, d) for wide CSR."""
        if self._dense is not None:
            return take_rows(self._dense, index)
        if self.d > WIDEST_DENSE_BATCH and index.shape[0] == 1:
            return _csr_tensor(self._csr[index[0].cpu().numpy()], self.dtype).to(self.device)
        flat = torch.from_numpy(self._csr[index.reshape(-1).cpu().numpy()].toarray())
        return flat.to(self.device, self.dtype).view(*index.shape, self.d)


def _dense_tensor(X: Any) -> Tensor:
    if isinstance(X, Tensor):
        return X
    with warnings.catch_warnings():
        # DataFrames and memory maps hand out arrays that cannot be written to, and nothing here writes to them.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.as_tensor(np.asarray(X))


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """values[index]: (n, d) and (G, B) -> (G, B, d), whole rows at a time, which plain indexing does not know of."""
    if len(index) == 1:
        return values.index_select(0, index[0]).unsqueeze(0)
    return values.index_select(0, index.reshape(-1)).view(*index.shape, -1)


def _csr_tensor(matrix: Any, dtype: torch.dtype) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks)")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data).to(dtype),
            size=matrix.shape,
            check_invariants=False,
        )


class Batches(ABC):
    """What rows come next: row numbers into the features and labels that the loop was given."""

    @abstractmethod
    def epoch(self, number: int) -> Iterator[Tensor]:
        """The batches of an epoch, row numbers (G, B); the last one may be smaller."""

    def mean(self, losses: Iterable[Tensor]) -> Tensor:
        """The loss of an epoch, (G, K), from those of its batches, which come one by one as they are worked out."""
        return torch.stack(list(losses)).mean(0)


class Rows(Batches):
    """The training rows of every group, and the order they come in.

    Parameters
    ----------
    groups : G sequences of row numbers, equally long
    batch_size : int
    seeds : G numbers
        The order of epoch e of a group depends on its seed and on e alone, so that a fleet of groups sees what
        single fits with the same seeds would, and a resumed fit what an unbroken one would.
    """

    def __init__(
        self,
        groups: Sequence[Any],
        batch_size: int,
        seeds: Sequence[int],
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.rows = torch.stack([torch.as_tensor(np.asarray(g), dtype=torch.int64) for g in groups]).to(device)
        self.batch_size = min(batch_size, self.rows.shape[1])
        self.seeds = [int(seed) for seed in seeds]

    def epoch(self, number: int) -> Iterator[Tensor]:
        n = self.rows.shape[1]
        if self.batch_size == n:
            # One batch is the same in any order: shuffling it would only change how sums round.
            yield self.rows
            return
        orders = [
            torch.randperm(n, generator=torch.Generator().manual_seed((seed * 100_003 + number) % 2**63))
            for seed in self.seeds
        ]
        shuffled = self.rows.gather(1, torch.stack(orders).to(self.rows.device))
        for start in range(0, n, self.batch_size):
            yield shuffled[:, start : start + self.batch_size]


class LabelRows(ABC):
    """What the loop needs of labels."""

    is_dense: bool
    """Do all batches come from one dense tensor?"""

    @abstractmethod
    def gather(self, index: Tensor) -> Tensor:
        """Rows (G, B) -> labels (G, B, q), NaN where not observed."""


class DenseLabels(LabelRows):
    """Labels (n, q), the same for all groups, or (G, n, q), as when every repeat has its own noise.

    ``debias`` is applied to every batch, where the labels are still as they were given.
    """

    is_dense = True

    def __init__(self, values: Tensor, debias: Debiasing | None = None) -> None:
        self._rows = values.reshape(-1, values.shape[-1])
        self._debias = None if debias is None else debias.to(values.device)
        # A group's own labels follow those of the group before.
        groups = torch.arange(len(values), device=values.device).unsqueeze(1)
        self._first = groups * values.shape[1] if values.ndim == 3 else None

    def gather(self, index: Tensor) -> Tensor:
        found = take_rows(self._rows, index if self._first is None else index + self._first)
        return found if self._debias is None else self._debias(found)


class SparseLabels(LabelRows):
    """CSR labels whose debiased form exists for a batch at a time.

    The debiased label takes two values, one for a stored 1 and one for everything else: two constants per label say
    all of it, and the (n, q) matrix that they would fill is never built.

    Parameters
    ----------
    matrix : CSR (n, q) of 1 (NaN where not observed; a stored 0 is a 0)
    debias : Debiasing, optional
        Applied to every batch; None: the labels stay as they are.
    known : bool array (n,), optional
        Rows whose labels are true, and are not debiased.
    """

    is_dense = False

    def __init__(
        self,
        matrix: Any,
        debias: Debiasing | None = None,
        known: NDArray[np.bool_] | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.matrix, self.known = matrix.tocsr(), known
        self.dtype, self.device = dtype, torch.device(device)
        self.debias = None if debias is None else debias.to(self.device)

    @property
    def shape(self) -> tuple[int, int]:
        n, q = self.matrix.shape
        return int(n), int(q)

    def __getitem__(self, rows: Any) -> SparseLabels:
        """Some of the rows."""
        known = None if self.known is None else self.known[rows]
        return SparseLabels(self.matrix[rows], self.debias, known, dtype=self.dtype, device=self.device)

    def to(self, device: torch.device, dtype: torch.dtype) -> SparseLabels:
        """The same labels for batches on another device, of another floating type."""
        return SparseLabels(self.matrix, self.debias, self.known, dtype=dtype, device=device)

    def columns(self, labels: slice) -> NDArray[np.float32]:
        """Some of the labels of all rows, (n, B), where each label is debiased by itself."""
        part = np.asarray(self.matrix[:, labels].toarray(), dtype=np.float32)
        if self.debias is None:
            return part
        low, high = (self.debias(torch.full((1, self.shape[1]), x))[0, labels].cpu().numpy() for x in (0.0, 1.0))
        targets = low + part * (high - low)
        return targets if self.known is None else np.where(self.known[:, None], part, targets)

    def gather(self, index: Tensor) -> Tensor:
        rows = index.reshape(-1).cpu().numpy()
        given = _scatter(self.matrix[rows], self.dtype, self.device)
        if self.debias is None:
            return given.view(*index.shape, -1)
        targets: Tensor = self.debias(given)
        if self.known is not None and self.known[rows].any():
            true = torch.from_numpy(self.known[rows]).to(self.device)
            targets[true] = given[true]
        return targets.view(*index.shape, -1)


def _scatter(part: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A few rows of a CSR as a dense tensor: its entries alone are copied to the device."""
    row = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
    place = torch.from_numpy(row * part.shape[1] + part.indices.astype(np.int64)).to(device)
    values = torch.from_numpy(np.asarray(part.data, dtype=np.float64)).to(device, dtype)
    return torch.zeros(part.shape, dtype=dtype, device=device).view(-1).index_put_((place,), values).view(part.shape)


def as_labels(labels: Tensor | LabelRows, dtype: torch.dtype) -> LabelRows:
    """A tensor as dense labels; label rows as they are."""
    if not isinstance(labels, Tensor):
        return labels
    # On a CPU once, not batch by batch; the memory of a device may be dearer.
    return DenseLabels(labels.to(dtype) if labels.device.type == "cpu" else labels)
