"""Batches of a stream of rows that do not fit in memory.

Rows are shuffled by the order in which row groups are read and within a buffer. Which rows make a batch depends only on
the seed, the epoch and the sizes of the row groups: every rank knows the batches of all ranks without reading their
rows. Batches are therefore the same for any world size, and every rank reads only its own row groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from ccmn.noise.noise_model import Debiasing
from ccmn.training.batches import Batch, Batches, DenseLabels, Features, LabelSource, SparseLabels
from ccmn.training.distributed import ProcessGroup

OPEN_GROUPS = 4
"""Number of row groups that are read in turn, so that adjacent rows of the buffer come from several row groups."""
_SECONDS_BETWEEN_CALLBACKS = 0.5


class RowGroup(Protocol):
    """Rows that are read one after another."""

    @property
    def rows(self) -> int:
        """Number of rows."""


class Source(Protocol):
    """Source of rows, such as :class:`ccmn.data.ShardedData`."""

    d: int
    q: int
    sparse: bool

    @property
    def groups(self) -> Sequence[Any]:
        """Row groups."""

    def read(self, group: Any, at_once: int) -> Iterator[tuple[NDArray[np.float32], Any]]:
        """Yield features and labels of a row group, ``at_once`` rows at a time."""


class StreamProgress(NamedTuple):
    """Argument of the progress callback while rows are read."""

    epoch: int
    """Number of the epoch, starting at 0."""
    rows: int
    """Rows of this epoch that all ranks have processed so far."""
    total: int
    """Rows of an epoch."""
    seconds: float
    """Time since the beginning of the epoch."""


class Piece(NamedTuple):
    """Consecutive rows of a row group."""

    group: int
    turn: int
    """Position of the row group in the order of the epoch; it determines which rank reads the row group."""
    start: int
    stop: int


@dataclass(frozen=True)
class StreamSettings:
    """Sizes of a stream.

    Parameters
    ----------
    batch_size : int
        Rows per batch.
    buffer_rows : int
        Rows in memory, over all ranks, within which rows are shuffled.
    piece_rows : int
        Rows that are read at a time.
    seed : int
        Seed of the order.
    """

    batch_size: int
    buffer_rows: int
    piece_rows: int
    seed: int


class Stream(Batches):
    """Batches from a buffer that is filled repeatedly from row groups in random order.

    Parameters
    ----------
    source : Source
        Source of the rows.
    settings : StreamSettings
        Sizes of batches, buffer and reads.
    held_out : dict of int to array of bool
        Rows of row groups that are not used, by the number of the row group.
    debias : Debiasing, optional
        Map applied to every batch of labels. Without it, the noisy labels are the targets.
    group : ProcessGroup, optional
        Ranks that train together; by default this process alone.
    on_progress : callable, optional
        Called with a ``StreamProgress`` about twice a second.
    dtype : torch.dtype, default=torch.float32
        Floating-point type of features and targets.
    device : torch.device or str, default="cpu"
        Device of the buffer.

    Attributes
    ----------
    features : Features
        Features of the rows in the buffer.
    labels : LabelSource
        Training targets of the rows in the buffer.
    """

    def __init__(
        self,
        source: Source,
        settings: StreamSettings,
        held_out: dict[int, NDArray[np.bool_]],
        debias: Debiasing | None = None,
        *,
        group: ProcessGroup | None = None,
        on_progress: Callable[[StreamProgress], None] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.source, self.settings, self.held_out = source, settings, held_out
        self.group, self.on_progress = group or ProcessGroup(), on_progress
        # The buffer has room for the rows of all ranks. Memory that is never written is not allocated.
        self._X = torch.zeros(settings.buffer_rows, source.d, dtype=dtype, device=device)
        self.features = Features(self._X, dtype=dtype, device=device)
        self.labels: LabelSource
        if source.sparse:
            self.labels = SparseLabels(scipy.sparse.csr_matrix((1, source.q)), debias, dtype=dtype, device=device)
        else:
            self._Y = torch.zeros(settings.buffer_rows, source.q, dtype=dtype, device=device)
            self.labels = DenseLabels(self._Y, debias)

    @property
    def rows(self) -> int:
        """Number of rows of an epoch."""
        return sum(int(g.rows) for g in self.source.groups) - sum(int(mask.sum()) for mask in self.held_out.values())

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield this rank's share of the batches of an epoch."""
        rng = np.random.default_rng([self.settings.seed, number])
        order = rng.permutation(len(self.source.groups))
        total, done, last_call, start_time = self.rows, 0, 0.0, time.perf_counter()
        # Position of each row of the buffer in the memory of this rank; -1 if another rank holds it.
        places = np.empty(0, dtype=np.int64)
        readers = _Readers(self.source, self.settings.piece_rows)
        for pieces, is_last in self._fills(order):
            places = self._fill(places, pieces, readers)
            places = places[rng.permutation(len(places))]
            size = self.settings.batch_size
            whole = len(places) if is_last else len(places) // size * size
            for start in range(0, whole, size):
                batch = places[start : start + size]
                own_places = batch[batch >= 0]
                # A rank that holds no row of the batch works on one row with a weight of 0.
                rows = own_places if len(own_places) else np.zeros(1, dtype=np.int64)
                yield Batch(torch.from_numpy(rows).to(self._X.device).unsqueeze(0), len(own_places) / len(batch))
                done += len(batch)
                now = time.perf_counter() - start_time
                if self.on_progress is not None and (now - last_call > _SECONDS_BETWEEN_CALLBACKS or done == total):
                    self.on_progress(StreamProgress(number, done, total, now))
                    last_call = now
            places = places[whole:]

    def _fills(self, order: NDArray[np.int64]) -> Iterator[tuple[list[Piece], bool]]:
        """Yield the pieces of each fill of the buffer, and whether it is the last one."""
        room = self.settings.buffer_rows - self.settings.batch_size  # fewer rows than a batch remain from the last fill
        sizes = [self.source.groups[g].rows for g in order]
        pieces: list[Piece] = []
        filled = 0
        for piece in _pieces(order.tolist(), sizes, self.settings.piece_rows):
            rows = int(self._used(piece).sum())
            if pieces and filled + rows > room:
                yield pieces, False
                pieces, filled = [], 0
            pieces.append(piece)
            filled += rows
        yield pieces, True

    def _used(self, piece: Piece) -> NDArray[np.bool_]:
        """Return which rows of a piece are used."""
        mask = self.held_out.get(piece.group)
        if mask is None:
            return np.ones(piece.stop - piece.start, dtype=bool)
        return ~mask[piece.start : piece.stop]

    def _fill(self, left: NDArray[np.int64], pieces: list[Piece], readers: _Readers) -> NDArray[np.int64]:
        """Keep the rows that are left in the buffer, read the pieces behind them and return the places of all rows."""
        own_places = left[left >= 0]
        at = len(own_places)
        kept = torch.from_numpy(own_places).to(self._X.device)
        self._X[:at] = self._X.index_select(0, kept)
        if not self.source.sparse:
            self._Y[:at] = self._Y.index_select(0, kept)
        sparse = [self.labels.matrix[own_places]] if isinstance(self.labels, SparseLabels) else []
        left = left.copy()
        left[left >= 0] = np.arange(at)
        places = [left]
        for piece in pieces:
            mask = self._used(piece)
            m = int(mask.sum())
            if piece.turn % self.group.world_size != self.group.rank:
                places.append(np.full(m, -1))
                continue
            X, Y = readers.next(piece)
            self._X[at : at + m] = torch.from_numpy(X[mask])
            if self.source.sparse:
                sparse.append(Y[mask])
            else:
                self._Y[at : at + m] = torch.from_numpy(Y[mask])
            places.append(np.arange(at, at + m))
            at += m
        if isinstance(self.labels, SparseLabels):
            # At least one row, for a rank that holds no row of a batch.
            self.labels.matrix = scipy.sparse.vstack(sparse, format="csr") if at else self.labels.matrix[:1]
        return np.concatenate(places)


class _Readers:
    """Open readers of row groups, which are read piece by piece."""

    def __init__(self, source: Source, piece_rows: int) -> None:
        self._source, self._piece_rows = source, piece_rows
        self._open: dict[int, Iterator[tuple[NDArray[np.float32], Any]]] = {}

    def next(self, piece: Piece) -> tuple[NDArray[np.float32], Any]:
        """Return the rows of a piece. The pieces of a row group are read in order."""
        group = self._source.groups[piece.group]
        if piece.group not in self._open:
            self._open[piece.group] = self._source.read(group, self._piece_rows)
        X, Y = next(self._open[piece.group])
        if len(X) != piece.stop - piece.start:
            raise ValueError(f"row group {group} has fewer rows than its file declares; the file is damaged")
        if piece.stop == group.rows:
            del self._open[piece.group]
        return X, Y


def _pieces(groups: Sequence[int], sizes: Sequence[int], piece_rows: int) -> Iterator[Piece]:
    """Yield pieces of a few row groups in turn; the next row group replaces one that has ended."""
    waiting = iter(range(len(groups)))
    running = [[turn, 0] for _, turn in zip(range(OPEN_GROUPS), waiting)]
    while running:
        for slot in list(running):
            turn, start = slot
            stop = min(start + piece_rows, sizes[turn])
            yield Piece(groups[turn], turn, start, stop)
            slot[1] = stop
            if stop == sizes[turn]:
                following = next(waiting, None)
                if following is None:
                    running.remove(slot)
                else:
                    slot[:] = [following, 0]
