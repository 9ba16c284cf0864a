"""Batches of training rows, the features they are gathered from, and the sources of their training targets.

A batch is a matrix of row numbers (G, B) for G groups of runs. The order of an epoch depends only on the seed and the
number of the epoch, so that a resumed training sees the same batches as an uninterrupted one.

A label source is the only place where labels become training targets. It returns debiased labels; if the loss itself
models the noise (forward loss, plug-in, transition matrix), it is constructed without a debiasing map and returns the
noisy labels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from ccmn._containers import is_sparse, to_dense_array
from ccmn.noise.class_conditional import ClassConditionalDebiasing
from ccmn.noise.noise_model import Debiasing

LABEL_KEYS = ("labels", "label")
"""Keys of the labels in the items of a ``Dataset``; they are not passed to the network."""
MAX_DENSE_FEATURES = 4096
"""Batches of sparse features are made dense up to this number of features, because dense products are faster there."""
MAX_DENSE_DEVICE_BYTES = 2 << 30
"""A sparse matrix is stored dense in the memory of an accelerator if its dense form has at most this size."""


def split_item(item: Any) -> tuple[Any, Any]:
    """Return the input and the labels (or None) of an item of a Dataset."""
    if isinstance(item, Mapping):
        labels = next((item[key] for key in LABEL_KEYS if key in item), None)
        return {key: value for key, value in item.items() if key not in LABEL_KEYS}, labels
    if isinstance(item, (tuple, list)) and len(item) in (1, 2):
        return item[0], item[1] if len(item) == 2 else None
    return item, None


class DatasetRows:
    """Inputs of a map-style Dataset as rows (n, d) of flat float32 arrays, which are read when they are needed.

    Items are inputs of one shape, or pairs of inputs and labels; ``items`` are the numbers of some of them.
    """

    def __init__(self, dataset: Any, items: NDArray[Any] | None = None) -> None:
        self._dataset = dataset
        self._items = np.arange(len(dataset)) if items is None else items
        if not len(dataset):
            raise ValueError("Expected a Dataset with at least one item; got none")
        self.input_shape = tuple(np.shape(to_dense_array(split_item(dataset[0])[0])))
        self.shape = len(self._items), math.prod(self.input_shape)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        """Return the type and length of the dataset and the item numbers, which identify the rows in a checkpoint."""
        return f"DatasetRows({type(self._dataset).__name__}, {len(self._dataset)}, {self._items.tolist()})"

    def __getitem__(self, rows: Any) -> Any:
        """Return one row, or the rows of a slice or an array of row numbers, which are not read yet."""
        if isinstance(rows, (int, np.integer)):
            row = np.asarray(to_dense_array(split_item(self._dataset[int(self._items[rows])])[0]), dtype=np.float32)
            if row.shape != self.input_shape:
                raise ValueError(f"Expected inputs of shape {self.input_shape}, as in the first item; got {row.shape}")
            return row.reshape(-1)
        return DatasetRows(self._dataset, self._items[rows])

    def read(self) -> NDArray[np.float32]:
        """Return all rows."""
        return np.stack([self[row] for row in range(len(self))])


class Features:
    """Features in memory, dense or CSR, or of a Dataset, from which batches are gathered.

    A sparse matrix is never converted to a dense one as a whole in main memory, and the rows of a Dataset are read
    batch by batch. ``is_dense`` tells whether all batches come from one dense tensor.
    """

    def __init__(self, X: Any, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> None:
        self.device, self.dtype = torch.device(device), dtype
        self.n, self.d = X.shape
        self._dense: Tensor | None = None
        self._source = X.tocsr() if is_sparse(X) else X
        if is_sparse(X):
            if self.device.type != "cpu" and self.n * self.d * dtype.itemsize <= MAX_DENSE_DEVICE_BYTES:
                self._dense = _csr_tensor(self._source, dtype).to(self.device).to_dense()
        elif not isinstance(X, DatasetRows):
            with warnings.catch_warnings():
                # DataFrames and memory maps return read-only arrays. They are not modified here.
                warnings.filterwarnings("ignore", "The given NumPy array is not writable")
                self._dense = torch.as_tensor(X if isinstance(X, Tensor) else np.asarray(X)).to(self.device, dtype)
        self.is_dense = self._dense is not None

    def gather(self, index: Tensor) -> Tensor:
        """Return the rows ``index`` (G, B): a dense tensor (G, B, d), or a sparse one (B, d) for many features."""
        if self._dense is not None:
            return take_rows(self._dense, index)
        part = self._source[index.reshape(-1).cpu().numpy()]
        if is_sparse(part) and self.d > MAX_DENSE_FEATURES and index.shape[0] == 1:
            return _csr_tensor(part, self.dtype).to(self.device)
        flat = torch.from_numpy(part.toarray() if is_sparse(part) else part.read())
        return flat.to(self.device, self.dtype).view(*index.shape, self.d)


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """Return ``values[index]``, (n, d) and (G, B) to (G, B, d); ``index_select`` is faster than indexing here."""
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


# -- Batches


@dataclass(frozen=True)
class ProcessGroup:
    """Processes of ``torch.distributed`` that train one network together, and the number of this process among them.

    Losses and gradients are means over a whole batch: the sum over ranks of the rank's mean times its share.

    >>> ProcessGroup.current()
    ProcessGroup(rank=0, world_size=1)
    """

    rank: int = 0
    world_size: int = 1

    @classmethod
    def current(cls) -> ProcessGroup:
        """Return the default process group of ``torch.distributed``, or a group of this process alone."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0. Only rank 0 writes files, prints progress and warns."""
        return self.rank == 0

    @property
    def is_distributed(self) -> bool:
        """Whether losses and gradients have to be summed over ranks."""
        return self.world_size > 1

    def sum_over_ranks(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks, in place, and return it."""
        if self.is_distributed:
            contiguous = tensor.contiguous()  # required by NCCL
            dist.all_reduce(contiguous)
            if contiguous is not tensor:
                tensor.copy_(contiguous)
        return tensor


ALONE = ProcessGroup()
"""This process alone."""


class Batch(NamedTuple):
    """Numbers (G, B) of the rows of one training step, and the share of the batch that this rank works on."""

    index: Tensor  # type: ignore[assignment]
    weight: float = 1.0


class Rows:
    """Shuffled batches of rows in memory.

    ``groups`` are the training rows of every group, equally many. The order of epoch e of a group depends only on its
    seed and on e: groups that are trained together see the same batches as single fits with the same seeds. Each of the
    ``ranks`` works on every ``world_size``-th row of a batch.
    """

    def __init__(
        self,
        groups: Sequence[Any],
        batch_size: int,
        seeds: Sequence[int],
        *,
        device: torch.device | str = "cpu",
        ranks: ProcessGroup = ALONE,
    ) -> None:
        self.rows = torch.stack([torch.as_tensor(np.asarray(g), dtype=torch.int64) for g in groups]).to(device)
        self.batch_size = min(batch_size, self.rows.shape[1])
        self.seeds, self.ranks = [int(seed) for seed in seeds], ranks

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield this rank's share of the batches of an epoch. The last batch may be smaller.

        A rank that gets no row of a small batch works on its first row with a weight of 0.
        """
        n, rows = self.rows.shape[1], self.rows
        if self.batch_size < n:  # the order of a full batch has no effect other than different rounding
            orders = [
                torch.randperm(n, generator=torch.Generator().manual_seed((seed * 100_003 + number) % 2**63))
                for seed in self.seeds
            ]
            rows = rows.gather(1, torch.stack(orders).to(rows.device))
        for index in torch.split(rows, self.batch_size, 1):
            share = index[:, self.ranks.rank :: self.ranks.world_size]
            yield Batch(share if share.shape[1] else index[:, :1], share.shape[1] / index.shape[1])


# -- Label sources: ``targets(index, run_dim)`` returns the training targets of rows (G, B), of shape (G, R, B, q) for
# ``run_dim=1`` or (G, B, R, q) for ``run_dim=2``, NaN where a label is not observed. R is 1 if all runs have the same
# targets, else the number of runs.


class DenseLabels:
    """Labels in a dense tensor (n, q), or (G, n, q) with separate labels of every group.

    ``debias`` is a map that is applied to every batch. Without it, the labels themselves are the targets.
    """

    def __init__(self, values: Tensor, debias: Debiasing | None = None, *, dtype: torch.dtype | None = None) -> None:
        self.dtype = values.dtype if dtype is None else dtype
        if values.device.type == "cpu":
            values = values.to(self.dtype)  # once; on a device, where memory is scarce, every batch is converted
        self._values = values.reshape(-1, values.shape[-1])
        self._debias = None if debias is None else debias.to(values.device)
        # The labels of a group follow the labels of the previous group.
        groups = torch.arange(len(values), device=values.device).unsqueeze(1)
        self._first = groups * values.shape[1] if values.ndim == 3 else None

    def targets(self, index: Tensor, run_dim: int = 1) -> Tensor:
        """Return the training targets of some rows."""
        labels = take_rows(self._values, index if self._first is None else index + self._first).unsqueeze(run_dim)
        if labels.dtype != self.dtype:
            labels = labels.to(self.dtype)
        return labels if self._debias is None else self._debias(labels)


class RunLabels(DenseLabels):
    """Noisy labels in a dense tensor that every run debiases with its own rates, ``rho_pos`` and ``rho_neg`` (G, K, q).

    Rates of zero make a run without noise correction.
    """

    def __init__(self, values: Tensor, rho_pos: Tensor, rho_neg: Tensor, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(values, dtype=dtype)
        debias = ClassConditionalDebiasing(rho_pos.cpu().numpy(), rho_neg.cpu().numpy()).to(values.device)
        scale, offset = debias.affine(dtype)
        self._coefficients = {dim: (scale.unsqueeze(3 - dim), -offset.unsqueeze(3 - dim)) for dim in (1, 2)}

    def targets(self, index: Tensor, run_dim: int = 1) -> Tensor:
        """Return the training targets of some rows for every run."""
        scale, shift = self._coefficients[run_dim]
        return torch.addcmul(shift, super().targets(index, run_dim), scale)


class SparseLabels:
    """Labels in a CSR matrix (1, 0 or NaN), which are debiased one batch at a time: the dense matrix is never built.

    ``trusted`` (n,) marks rows whose labels are true and are not debiased.
    """

    def __init__(
        self,
        matrix: Any,
        debias: Debiasing | None = None,
        trusted: NDArray[np.bool_] | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.matrix, self.trusted, self.shape = matrix.tocsr(), trusted, matrix.shape
        self.dtype, self.device = dtype, torch.device(device)
        self.debias = None if debias is None else debias.to(self.device)

    def __getitem__(self, rows: Any) -> SparseLabels:
        trusted = None if self.trusted is None else self.trusted[rows]
        return SparseLabels(self.matrix[rows], self.debias, trusted, dtype=self.dtype, device=self.device)

    def targets(self, index: Tensor, run_dim: int = 1) -> Tensor:
        """Return the training targets of some rows; only the stored entries are copied to the device."""
        rows = index.reshape(-1).cpu().numpy()
        targets = labels = _csr_tensor(self.matrix[rows], self.dtype).to(self.device).to_dense()
        if self.debias is not None:
            targets = self.debias(labels)
            if self.trusted is not None:
                trusted = torch.from_numpy(self.trusted[rows]).to(self.device)
                targets = torch.where(trusted[:, None], labels, targets)
        return targets.view(*index.shape, -1).unsqueeze(run_dim)


LabelSource = DenseLabels | SparseLabels


def label_source(labels: Any, device: torch.device, dtype: torch.dtype) -> LabelSource:
    """Return labels in memory, an array or ``SparseLabels``, as a source of training targets."""
    if isinstance(labels, SparseLabels):
        return SparseLabels(labels.matrix, labels.debias, labels.trusted, dtype=dtype, device=device)
    return DenseLabels(torch.from_numpy(labels).to(device, dtype))
