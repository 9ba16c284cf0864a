"""Top k labels and positive labels of each row, read from dense or sparse matrices in blocks of rows.

The metrics of :mod:`ccmn.metrics.top_k` use nothing else of the labels and scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from ccmn._containers import is_sparse, to_dense_array
from ccmn._validation import check_no_nan, check_numeric, check_zero_one
from ccmn.metrics.metric import MAX_BLOCK_ENTRIES, to_tensor
from ccmn.noise.class_conditional import debias_labels


@dataclass(frozen=True)
class TopLabels:
    """Top k labels and positive labels of each row.

    Parameters
    ----------
    index : tensor of shape (n, k)
        Labels in the order of their ranks; ``n_labels`` where a row has fewer than k scores.
    hits : tensor of shape (n, k)
        Labels 0 or 1 at these positions, in float64; 0 for empty positions.
    row, label : tensors of shape (number of positive labels,)
        Positions of the labels that are 1, by ascending row.
    n_labels : int
        Number of labels q.
    """

    index: Tensor
    hits: Tensor
    row: Tensor
    label: Tensor
    n_labels: int

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.index.shape[0]

    @property
    def k(self) -> int:
        """Number of selected labels per row."""
        return self.index.shape[1]

    def row_sum(self, values: Tensor) -> Tensor:
        """Return for each row the sum of ``values``, which has one value per positive label."""
        return values.new_zeros(self.n).index_add(0, self.row, values)

    def counts(self) -> Tensor:
        """Return the number of positive labels of each row, in float64."""
        return torch.bincount(self.row, minlength=self.n).double()

    def label_counts(self) -> Tensor:
        """Return the number of positive rows of each label, in float64."""
        return torch.bincount(self.label, minlength=self.n_labels).double()

    def blocks(self, widths: NDArray[Any]) -> Iterator[TopLabels]:
        """Yield blocks of rows; ``widths`` is the memory per row that ``_row_blocks`` bounds."""
        starts = np.searchsorted(self.row.numpy(), np.arange(self.n + 1))
        for start, stop in _row_blocks(widths):
            entries = slice(starts[start], starts[stop])
            row = self.row[entries] - start
            yield TopLabels(self.index[start:stop], self.hits[start:stop], row, self.label[entries], self.n_labels)


class LabelValues(NamedTuple):
    """Real numbers that replace the labels 0 and 1 of each label, usually debiased labels.

    Both tensors have shape (q + 1,). The last entry is 0: it belongs to the empty positions of ``TopLabels``.
    """

    zero: Tensor
    one: Tensor

    @classmethod
    def debiased(cls, rho_pos: Tensor, rho_neg: Tensor) -> LabelValues:
        """Return the debiased labels for these rates, differentiable."""
        zero, one = torch.zeros_like(rho_pos), torch.ones_like(rho_pos)
        return cls(*(pad(debias_labels(y, rho_pos, rho_neg), (0, 1)) for y in (zero, one)))

    def at_top(self, top: TopLabels) -> Tensor:
        """Return the values of the selected labels (n, k)."""
        return self.zero[top.index] + top.hits * (self.one - self.zero)[top.index]

    def noise_variance(self) -> LabelValues:
        """Return p^2 - p for debiased labels p: its expectation is the variance of p given the true label."""
        return LabelValues(*(value.square() - value for value in self))

    def total(self, top: TopLabels) -> Tensor:
        """Return the sum of the values of all labels of each row (n,)."""
        return self.zero.sum() + top.row_sum((self.one - self.zero)[top.label])


def as_matrix(values: Any, argument: str) -> Any:
    """Return a CSR matrix, a tensor or a numpy array; large arrays are not copied."""
    if isinstance(values, Tensor):
        return values.detach()
    if is_sparse(values):
        csr = values.tocsr()
        check_numeric(csr.data, argument)
        return csr
    try:
        return to_dense_array(values)
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must be a matrix of numbers, with rows of equal length") from None


def read_top_labels(labels: Any, scores: Any, k: int, noisy: bool) -> TopLabels:
    """Return the top k labels and the positive labels of all rows, read in blocks of rows."""
    n, q = labels.shape
    both_sparse = is_sparse(labels) and is_sparse(scores)
    widths = np.maximum(np.diff(scores.indptr), k) if both_sparse else np.full(n, q)
    parts = [_read_block(labels, scores, start, stop, k, noisy) for start, stop in _row_blocks(widths)]
    first_rows = np.cumsum([0, *(part.n for part in parts)]).tolist()
    return TopLabels(
        torch.cat([part.index for part in parts]),
        torch.cat([part.hits for part in parts]),
        torch.cat([part.row + first for part, first in zip(parts, first_rows)]),
        torch.cat([part.label for part in parts]),
        q,
    )


def _row_blocks(widths: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows whose number times the largest width is at most ``MAX_BLOCK_ENTRIES``, or single rows.

    A range that is too large is halved, so that a few wide rows do not make all other blocks small.
    """
    ranges = [(0, len(widths))]
    while ranges:
        start, stop = ranges.pop()
        if stop - start > 1 and (stop - start) * int(widths[start:stop].max()) > MAX_BLOCK_ENTRIES:
            middle = (start + stop) // 2
            ranges += [(middle, stop), (start, middle)]
        elif stop > start:
            yield start, stop


def _read_block(labels: Any, scores: Any, start: int, stop: int, k: int, noisy: bool) -> TopLabels:
    """Return the top k labels and the positive labels of a range of rows, without rows that contain NaN."""
    q = labels.shape[1]
    row, label, complete = _read_positives(labels, start, stop, noisy)
    if is_sparse(scores):
        index = _select_stored(_canonical_rows(scores, start, stop), k, start)
    else:
        real = to_tensor(scores[start:stop], "scores").cpu()
        check_no_nan(real, "scores", start)
        index = _select((real if real.dtype in (torch.float32, torch.float64) else real.double()).numpy(), k)
    # Positions as single numbers, ascending; the label q of empty positions is never found.
    keys, wanted = row * (q + 1) + label, np.arange(stop - start)[:, None] * (q + 1) + index
    found = np.searchsorted(keys, wanted)
    hits = np.append(keys, -1)[found] == wanted
    if not complete.all():
        kept = complete[row]
        row, label = (np.cumsum(complete) - 1)[row[kept]], label[kept]
        index, hits = index[complete], hits[complete]
    integers = [torch.from_numpy(part.astype(np.int64)) for part in (index, row, label)]
    return TopLabels(integers[0], torch.from_numpy(hits).double(), integers[1], integers[2], q)


def _read_positives(labels: Any, start: int, stop: int, noisy: bool) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return row and label of each 1, in row-major order, and for each row whether it contains no NaN."""
    if not is_sparse(labels):
        values = to_tensor(labels[start:stop], "Y").cpu()
        check_zero_one(values.double().nan_to_num(0.0) if noisy else values, "Y", start)
        row, label = np.nonzero((values == 1).numpy())
        return row, label, ~values.isnan().any(1).numpy()
    block = _canonical_rows(labels, start, stop)
    row = np.repeat(np.arange(stop - start), np.diff(block.indptr))
    unknown = np.isnan(block.data.astype(np.float64))
    complete = np.ones(stop - start, dtype=bool)
    complete[row[unknown]] = False
    if not noisy and unknown.any():
        first = row[unknown][0]
        check_no_nan(block[[first]].toarray(), "Y", start + first)
    check_zero_one(block.data[~unknown], "Y")
    positive = block.data == 1
    return row[positive], block.indices[positive], complete


def _canonical_rows(matrix: Any, start: int, stop: int) -> scipy.sparse.csr_array:
    """Return a range of rows of a CSR matrix with sorted labels and without duplicates; the matrix is not changed."""
    first, last = matrix.indptr[start], matrix.indptr[stop]
    parts = matrix.data[first:last], matrix.indices[first:last], matrix.indptr[start : stop + 1] - first
    block = scipy.sparse.csr_array(parts, shape=(stop - start, matrix.shape[1]))
    if not block.has_canonical_format:
        block = block.copy()
        block.sum_duplicates()
    return block


def _select_stored(scores: scipy.sparse.csr_array, k: int, first_row: int) -> NDArray[np.int64]:
    """Return the top k stored labels of each row (n, k); the number of labels where fewer are stored."""
    counts = np.diff(scores.indptr)
    width = max(k, int(counts.max(initial=0)))
    stored = np.arange(width) < counts[:, None]
    dtype = np.float32 if scores.dtype == np.float32 else np.float64
    padded, labels = np.full(stored.shape, -np.inf, dtype=dtype), np.full(stored.shape, scores.shape[1])
    padded[stored], labels[stored] = scores.data, scores.indices
    check_no_nan(padded, "scores", first_row)
    # Padding has the lowest score and the last positions, so that it comes after stored scores of -inf.
    return np.take_along_axis(labels, _select(padded, k), 1)


def _select(scores: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return the positions of the k highest scores of each row, by descending score and ascending position."""
    width = scores.shape[1]
    kth = np.partition(scores, width - k, axis=1)[:, width - k, None]
    above, tied = scores > kth, scores == kth
    room = k - above.sum(1, keepdims=True)
    selected = above | (tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= room))
    position = np.nonzero(selected)[1].reshape(-1, k)
    order = np.argsort(-np.take_along_axis(scores, position, 1), axis=1, kind="stable")
    return np.take_along_axis(position, order, 1)
