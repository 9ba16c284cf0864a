"""Labels in memory, from which batches of targets are gathered: dense ones, or CSR that is debiased batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn.noise import Debiasing
from ccmn.training.batches import take_rows


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
