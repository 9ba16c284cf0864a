"""Rows that pass by: more of them than memory holds, shuffled by the order they are read in and within a buffer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn.noise import Debiasing
from ccmn.training.batches import Batches, DenseLabels, Features, LabelRows, SparseLabels
from ccmn.training.distributed import Ranks

GROUPS_AT_ONCE = 4
"""So many row groups are read in turn: neighbours in the buffer come from several."""
_SECONDS_BETWEEN_TELLINGS = 0.5


class Group(Protocol):
    """Rows that are read one after another."""

    @property
    def rows(self) -> int: ...


class Source(Protocol):
    """Where rows come from (``ccmn.data.ShardedData``)."""

    d: int
    q: int
    sparse: bool

    @property
    def groups(self) -> Sequence[Any]: ...
    def read(self, group: Any, at_once: int) -> Iterator[tuple[NDArray[np.float32], Any]]: ...


class Passed(NamedTuple):
    """Told while rows pass by."""

    epoch: int
    rows: int
    """Of this epoch, so far, over all processes."""
    total: int
    seconds: float


class Piece(NamedTuple):
    """Some neighbouring rows of a row group."""

    group: int
    turn: int
    """The place of the group in the order of the epoch: which process reads it."""
    start: int
    stop: int


@dataclass(frozen=True)
class StreamSettings:
    """How rows are passed on.

    Parameters
    ----------
    buffer_rows : rows in memory, over all processes, within which they are shuffled
    piece_rows : rows read at a time
    """

    batch_size: int
    buffer_rows: int
    piece_rows: int
    seed: int


class Stream(Batches):
    """Batches out of a buffer that is filled again and again from row groups in shuffled order.

    What is read when, and which rows make a batch, follows from the seed, the epoch and the sizes of the row groups
    alone: every process knows it of all rows without reading more than its own. So batches are the same whatever the
    number of processes, and each process reads its own row groups and works on what they hold of every batch.

    Parameters
    ----------
    source : Source
    settings : StreamSettings
    held_out : number of a row group -> mask of rows that are left out
    debias : Debiasing, optional
        Applied to every batch of labels.
    ranks : Ranks
    tell : called every half second or so
    """

    def __init__(
        self,
        source: Source,
        settings: StreamSettings,
        held_out: dict[int, NDArray[np.bool_]],
        debias: Debiasing | None = None,
        *,
        ranks: Ranks | None = None,
        tell: Callable[[Passed], None] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.source, self.settings, self.held_out = source, settings, held_out
        self.ranks, self._tell = ranks or Ranks(), tell
        # Room for all rows, though other processes' never come here: memory that is not touched costs nothing.
        own = settings.buffer_rows
        self._X = torch.zeros(own, source.d, dtype=dtype, device=device)
        self.features = Features(self._X, dtype=dtype, device=device)
        self.labels: LabelRows
        if source.sparse:
            self.labels = SparseLabels(scipy.sparse.csr_matrix((1, source.q)), debias, dtype=dtype, device=device)
        else:
            self._Y = torch.zeros(own, source.q, dtype=dtype, device=device)
            self.labels = DenseLabels(self._Y, debias)

    @property
    def rows(self) -> int:
        """Rows of an epoch."""
        return sum(int(g.rows) for g in self.source.groups) - sum(int(mask.sum()) for mask in self.held_out.values())

    def epoch(self, number: int) -> Iterator[Tensor]:
        rng = np.random.default_rng([self.settings.seed, number])
        order = rng.permutation(len(self.source.groups))
        total, passed, told, began = self.rows, 0, 0.0, time.perf_counter()
        # Where each row of the buffer lies in this process' memory; -1: in that of another.
        places = np.empty(0, dtype=np.int64)
        readers = _Readers(self.source, self.settings.piece_rows)
        for pieces, last in self._fills(order):
            places = self._fill(places, pieces, readers)
            places = places[rng.permutation(len(places))]
            size = self.settings.batch_size
            whole = len(places) if last else len(places) // size * size
            for start in range(0, whole, size):
                batch = places[start : start + size]
                yield self._own(batch)
                passed += len(batch)
                now = time.perf_counter() - began
                if self._tell is not None and (now - told > _SECONDS_BETWEEN_TELLINGS or passed == total):
                    self._tell(Passed(number, passed, total, now))
                    told = now
            places = places[whole:]

    def mean(self, losses: Iterable[Tensor]) -> Tensor:
        return self.ranks.mean(losses)

    def _own(self, batch: NDArray[np.int64]) -> Tensor:
        """What this process has of a batch; one row with a share of 0 where that is nothing."""
        own = batch[batch >= 0]
        self.ranks.share = len(own) / len(batch)
        rows = own if len(own) else np.zeros(1, dtype=np.int64)
        return torch.from_numpy(rows).to(self._X.device).unsqueeze(0)

    def _fills(self, order: NDArray[np.int64]) -> Iterator[tuple[list[Piece], bool]]:
        """The pieces that fill the buffer, time after time; and whether these are the last."""
        room = self.settings.buffer_rows - self.settings.batch_size  # less than a batch is left over each time
        sizes = [self.source.groups[g].rows for g in order]
        pieces: list[Piece] = []
        filled = 0
        for piece in _pieces(order.tolist(), sizes, self.settings.piece_rows):
            rows = int(self._kept(piece).sum())
            if pieces and filled + rows > room:
                yield pieces, False
                pieces, filled = [], 0
            pieces.append(piece)
            filled += rows
        yield pieces, True

    def _kept(self, piece: Piece) -> NDArray[np.bool_]:
        """Which rows of a piece are trained on."""
        mask = self.held_out.get(piece.group)
        if mask is None:
            return np.ones(piece.stop - piece.start, dtype=bool)
        return ~mask[piece.start : piece.stop]

    def _fill(self, left: NDArray[np.int64], pieces: list[Piece], readers: _Readers) -> NDArray[np.int64]:
        """Keep the rows that are left over, read the pieces behind them: the places of all."""
        own = left[left >= 0]
        at = len(own)
        kept = torch.from_numpy(own).to(self._X.device)
        self._X[:at] = self._X.index_select(0, kept)
        if not self.source.sparse:
            self._Y[:at] = self._Y.index_select(0, kept)
        sparse = [self.labels.matrix[own]] if isinstance(self.labels, SparseLabels) else []
        left = left.copy()
        left[left >= 0] = np.arange(at)
        places = [left]
        for piece in pieces:
            mask = self._kept(piece)
            m = int(mask.sum())
            if piece.turn % self.ranks.world != self.ranks.rank:
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
            # One row at least, for a process that has nothing to show.
            self.labels.matrix = scipy.sparse.vstack(sparse, format="csr") if at else self.labels.matrix[:1]
        return np.concatenate(places)


class _Readers:
    """Row groups that are being read, a piece now and then."""

    def __init__(self, source: Source, piece_rows: int) -> None:
        self._source, self._piece_rows = source, piece_rows
        self._open: dict[int, Iterator[tuple[NDArray[np.float32], Any]]] = {}

    def next(self, piece: Piece) -> tuple[NDArray[np.float32], Any]:
        """The rows of a piece; those of a row group come in order."""
        group = self._source.groups[piece.group]
        if piece.group not in self._open:
            self._open[piece.group] = self._source.read(group, self._piece_rows)
        X, Y = next(self._open[piece.group])
        if len(X) != piece.stop - piece.start:
            raise ValueError(f"row group {group} has fewer rows than its file says: the file is damaged")
        if piece.stop == group.rows:
            del self._open[piece.group]
        return X, Y


def _pieces(groups: Sequence[int], sizes: Sequence[int], piece_rows: int) -> Iterator[Piece]:
    """A few row groups at once, a piece of each in turn; the next takes the place of one that has ended."""
    waiting = iter(range(len(groups)))
    running = [[turn, 0] for _, turn in zip(range(GROUPS_AT_ONCE), waiting)]
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
