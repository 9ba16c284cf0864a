r"""Fingerprint of the training rows, to detect evaluation on rows that the model was trained on.

Metrics on training rows are too optimistic, and estimates from noisy training labels are biased as well: the errors of
the labels and of the predictions are not independent. A model therefore keeps a bottom-k sketch [1]_ of its training
rows: the k smallest distinct 64-bit hashes of feature rows. All training rows whose hash is at most the largest hash of
the sketch are in it, so the share of other rows that were used for training is estimated from their hashes in that
range. The result is exact for training sets of at most k distinct rows.

The hash of a row joins 24 bits of a hash of its first ``KEY_COLUMNS`` features and 40 bits of a hash of all features.
Hashes are ordered by the first part, so the second part is computed only for rows that can be among the k smallest:
this makes the sketch of a dense matrix much cheaper than reading the matrix. Both parts are
:math:`\sum_j c_j\, \mathrm{bits}(x_j) \bmod 2^{64}`, mixed, with fixed odd multipliers :math:`c_j` and the bit
patterns of the features in float32. Features that are 0 add nothing, so a dense row and its sparse form have the same
hash, and so have float64 features and their float32 form. The hash is not cryptographic: anyone with a model file can
test whether a given row was used for training.

References
----------
.. [1] E. Cohen and H. Kaplan, "Summarizing data using bottom-k sketches", PODC 2007.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch.distributed as dist
from numpy.typing import NDArray
from scipy.special import bdtrc

from ccmn._containers import is_sparse
from ccmn.training import ProcessGroup
from ccmn.training.batches import DatasetRows
from ccmn.training.stream import Source

SKETCH_SIZE = 4096
"""Hashes that are kept: 32 KiB in a model file; a share of 50 % has a standard error below 1 % with enough rows."""

MAX_TRAINING_SHARE = 0.05
"""Evaluation warns above this share of training rows: fewer rows change metrics by less than their usual errors."""

TRAINING_ROWS = "training_row_hashes"
"""Name of the sketch among the arrays of a saved model, as int64: safetensors readers do not all have uint64."""

DATASET_BLOCK_ROWS = 1024
"""Rows of a Dataset that are read at once."""
KEY_COLUMNS = 4
"""Features in the first part of the hash: few enough to be cheap. Equal values in them cost time, not accuracy."""

KEY_BITS = 24
"""Bits of the first part of the hash: enough to order 100 million rows, few enough to leave 40 for all features."""

_BLOCK = 1 << 17
"""Features that are hashed at a time, so that temporary arrays stay in the cache."""

_KEY_MASK = np.uint64(2**64 - 2 ** (64 - KEY_BITS))
"""Upper bits of a hash, which come from the first part."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Increment of the SplitMix64 generator."""


class SeenRows(NamedTuple):
    """Comparison of evaluation rows with a sketch of the training rows."""

    share: float
    """Estimated share of rows with the features of a training row; NaN if no hash is in the range of the sketch."""
    compared: int
    """Number of rows whose hash is in the range of the sketch."""
    exact: bool
    """Whether the sketch holds all training rows, so that the share is not an estimate."""

    @property
    def is_large(self) -> bool:
        """Whether the share is above ``MAX_TRAINING_SHARE``, with 90 % confidence if it is an estimate."""
        if self.exact or not self.compared:
            return self.share > MAX_TRAINING_SHARE
        seen = round(self.share * self.compared)
        # Probability of at least this many training rows among the compared ones if their share is at the limit.
        return bool(bdtrc(seen - 1, self.compared, MAX_TRAINING_SHARE) < 0.1)


@dataclass(frozen=True)
class RowSketch:
    """Bottom-k sketch of feature rows.

    Parameters
    ----------
    hashes : array of uint64
        The smallest distinct hashes, in increasing order; all of them if there are fewer than ``SKETCH_SIZE``.

    Examples
    --------
    >>> X = np.arange(20.0).reshape(10, 2)
    >>> RowSketch.of(X[:8]).compare(X)
    SeenRows(share=0.8, compared=10, exact=True)
    """

    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, X: Any) -> RowSketch:
        """Return the sketch of the rows of a matrix (array or CSR), or of a Dataset, which is read in blocks."""
        if isinstance(X, DatasetRows):
            sketch = cls(np.empty(0, dtype=np.uint64))
            for start in range(0, len(X), DATASET_BLOCK_ROWS):
                sketch = sketch.extend(X[start : start + DATASET_BLOCK_ROWS].read())
            return sketch
        X = _as_matrix(X)
        keys = _hash(X, KEY_COLUMNS)
        # With uniform hashes, these are 1.5 times as many rows as needed; fewer than needed are practically impossible.
        limit = min(1.0, 1.5 * SKETCH_SIZE / max(1, X.shape[0]))
        # Rows with the key of the last one are needed as well: the order of equal keys depends on all columns.
        rows = np.flatnonzero((keys & _KEY_MASK) <= np.uint64(limit * (2**64 - 2**12)))
        hashes = _smallest(_join(keys[rows], _hash(X[rows], None)))
        if len(hashes) < SKETCH_SIZE and len(rows) < X.shape[0]:
            hashes = _smallest(_join(keys, _hash(X, None)))
        return cls(hashes)

    @classmethod
    def from_stored(cls, stored: NDArray[Any]) -> RowSketch:
        """Return the sketch that a model file holds; ValueError if the array is not a sketch."""
        if stored.dtype != np.int64 or stored.ndim != 1 or stored.size > SKETCH_SIZE:
            raise ValueError(f"{TRAINING_ROWS} must be at most {SKETCH_SIZE} integers; got {stored.shape}")
        hashes = np.ascontiguousarray(stored).view(np.uint64)
        if not (hashes[1:] > hashes[:-1]).all():
            raise ValueError(f"{TRAINING_ROWS} must be in increasing order")
        return cls(hashes)

    def merge(self, other: RowSketch) -> RowSketch:
        """Return the sketch of the rows of both sketches."""
        return RowSketch(_smallest(np.concatenate((self.hashes, other.hashes))))

    def extend(self, X: Any) -> RowSketch:
        """Return the sketch of these rows and of the rows of a matrix. Rows that cannot enter it are hashed in part."""
        if len(self.hashes) < SKETCH_SIZE:
            return self.merge(RowSketch.of(X))
        X = _as_matrix(X)
        keys = _hash(X, KEY_COLUMNS)
        rows = np.flatnonzero((keys & _KEY_MASK) <= (self.hashes[-1] & _KEY_MASK))
        return self.merge(RowSketch(_join(keys[rows], _hash(X[rows], None)))) if rows.size else self

    def compare(self, X: Any) -> SeenRows:
        """Estimate which share of the rows of X have the features of a training row."""
        exact = len(self.hashes) < SKETCH_SIZE
        hashes = hash_rows(X)
        if not exact:
            hashes = hashes[hashes <= self.hashes[-1]]
        share = float(np.isin(hashes, self.hashes).mean()) if hashes.size else float("nan")
        return SeenRows(share, int(hashes.size), exact)


class SketchedSource:
    """Source of streamed rows that keeps a sketch of all rows that are read.

    Parameters
    ----------
    source : Source
        Where the rows come from, for example ``ShardedData``.

    Attributes
    ----------
    sketch : RowSketch
        Sketch of the rows read so far. Reading a row again does not change it.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.d, self.q, self.sparse, self.groups = source.d, source.q, source.sparse, source.groups
        self.sketch = RowSketch(np.empty(0, dtype=np.uint64))

    def read(self, group: Any, at_once: int) -> Iterator[tuple[NDArray[np.float32], Any]]:
        """Yield features and labels of a row group, ``at_once`` rows at a time."""
        for X, Y in self._source.read(group, at_once):
            self.sketch = self.sketch.extend(X)
            yield X, Y

    def gather(self) -> RowSketch | None:
        """Return the sketch of the rows that were read by all ranks; None if a resumed fit had nothing left to read."""
        merged = self.sketch
        group = ProcessGroup.current()
        if group.is_distributed:
            parts: list[Any] = [None] * group.world_size
            dist.all_gather_object(parts, self.sketch)
            merged = reduce(RowSketch.merge, parts)
        return merged if merged.hashes.size else None


def hash_rows(X: Any) -> NDArray[np.uint64]:
    """Return a 64-bit hash of every row of an array or a CSR matrix; equal rows have equal hashes.

    >>> X = np.array([[0.0, 1.5], [-0.0, 1.5], [2.0, 0.0]])
    >>> hashes = hash_rows(X)
    >>> bool(hashes[0] == hashes[1]), bool((hashes == hash_rows(scipy.sparse.csr_matrix(X))).all())
    (True, True)
    """
    X = _as_matrix(X)
    return _join(_hash(X, KEY_COLUMNS), _hash(X, None))


def _as_matrix(X: Any) -> Any:
    """Return an array, or a CSR matrix in which every entry is stored once."""
    if not is_sparse(X):
        return np.asarray(X)
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _hash(X: Any, columns: int | None) -> NDArray[np.uint64]:
    """Return a hash of the first columns of every row, or of all columns."""
    n, d = X.shape
    multipliers = _mix(np.arange(1, d + 1, dtype=np.uint64) * _GOLDEN) | np.uint64(1)
    if is_sparse(X):
        multipliers[columns if columns is not None else d :] = 0
        bits: Any = scipy.sparse.csr_matrix((_bits(X.data), X.indices, X.indptr), shape=X.shape)
        return _mix(bits @ multipliers)
    X, multipliers = X[:, :columns], multipliers[:columns]
    size = max(1, _BLOCK // max(1, X.shape[1]))
    sums = np.empty(n, dtype=np.uint64)
    for start in range(0, n, size):
        sums[start : start + size] = _bits(X[start : start + size]) @ multipliers
    return _mix(sums)


def _join(keys: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes whose upper bits are keys and whose other bits come from hashes of all columns."""
    return (keys & _KEY_MASK) | (hashes >> np.uint64(KEY_BITS))


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the bit patterns of values in float32; -0 becomes 0."""
    with np.errstate(over="ignore"):
        single = np.array(values, dtype=np.float32, order="C")
    single += np.float32(0)
    return single.view(np.uint32).astype(np.uint64)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output function of SplitMix64, a bijection whose values look uniform."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _smallest(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the smallest distinct hashes, at most ``SKETCH_SIZE``, in increasing order."""
    # np.unique of NumPy 2.4 takes ten times as long for a million hashes.
    ordered = np.sort(hashes)
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first][:SKETCH_SIZE]
