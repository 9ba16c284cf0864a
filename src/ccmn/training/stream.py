"""Batches of a stream of rows that do not fit in memory.

Rows are shuffled by the order in which row groups are read and within a buffer. Which rows make a batch depends only on
the seed, the epoch and the sizes of the row groups: every rank knows the batches of all ranks without reading their
rows. Batches are therefore the same for any world size, and every rank reads only its own row groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from ccmn._messages import OnProgress
from ccmn.noise.noise_model import Debiasing
from ccmn.training.batches import ALONE, Batch, DenseLabels, Features, LabelSource, ProcessGroup, SparseLabels

OPEN_GROUPS = 4
"""Number of row groups that are read in turn, so that adjacent rows of the buffer come from several row groups."""
_SECONDS_BETWEEN_CALLBACKS = 0.5


class Piece(NamedTuple):
    """Consecutive rows of a row group, those ``used`` and those held out.

    ``turn`` is the position of the row group in the order of the epoch, which determines the rank that reads it.
    """

    group: int
    turn: int
    start: int
    used: NDArray[np.bool_]


class Stream:
    """Batches from a buffer that is filled repeatedly from row groups in random order.

    ``source`` is a ``ShardedData``: ``groups`` have a number of ``rows``, and ``read(group, at_once)`` yields their
    features and labels, ``at_once`` rows at a time. The rows ``held_out`` of row groups are not used. ``transform`` is
    applied to the features that are read, and ``debias`` to every batch of labels. ``features`` and ``labels`` are
    those of the buffer; ``on_progress`` is called about twice a second with the rows that all ranks have processed.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int,
        buffer_rows: int,
        piece_rows: int,
        seed: int,
        *,
        held_out: dict[int, NDArray[np.bool_]],
        debias: Debiasing | None = None,
        transform: Callable[[Any], Any] = lambda X: X,
        group: ProcessGroup = ALONE,
        device: torch.device | str = "cpu",
    ) -> None:
        self.source, self.batch_size, self.buffer_rows, self.piece_rows = source, batch_size, buffer_rows, piece_rows
        self.seed, self.held_out, self.transform, self.group = seed, held_out, transform, group
        self.on_progress: OnProgress | None = None
        # The buffer has room for the rows of all ranks. Memory that is never written is not allocated.
        self._X = torch.zeros(buffer_rows, source.d, device=device)
        self.features = Features(self._X, device=device)
        self.labels: LabelSource
        if source.sparse:
            self.labels = SparseLabels(scipy.sparse.csr_matrix((1, source.q)), debias, device=device)
        else:
            self._Y = torch.zeros(buffer_rows, source.q, device=device)
            self.labels = DenseLabels(self._Y, debias)

    @property
    def rows(self) -> int:
        """Number of rows of an epoch."""
        return sum(int(g.rows) for g in self.source.groups) - sum(int(mask.sum()) for mask in self.held_out.values())

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield this rank's share of the batches of an epoch."""
        rng = np.random.default_rng([self.seed, number])
        order = rng.permutation(len(self.source.groups)).tolist()
        total, done, last_call, start_time = self.rows, 0, 0.0, time.perf_counter()
        # Position of each row of the buffer in the memory of this rank; -1 if another rank holds it.
        places = np.empty(0, dtype=np.int64)
        readers: dict[int, Iterator[Any]] = {}
        for pieces, is_last in self._fills(order):
            places = self._fill(places, pieces, readers)
            places = places[rng.permutation(len(places))]
            whole = len(places) if is_last else len(places) // self.batch_size * self.batch_size
            for start in range(0, whole, self.batch_size):
                batch = places[start : min(start + self.batch_size, whole)]
                own = batch[batch >= 0]
                # A rank that holds no row of the batch works on one row with a weight of 0.
                rows = own if len(own) else np.zeros(1, dtype=np.int64)
                yield Batch(torch.from_numpy(rows).to(self._X.device).unsqueeze(0), len(own) / len(batch))
                done += len(batch)
                now = time.perf_counter() - start_time
                if self.on_progress is not None and (now - last_call > _SECONDS_BETWEEN_CALLBACKS or done == total):
                    self.on_progress(f"epoch {number + 1}", done, total, f"{done / max(now, 1e-9):,.0f} rows/s")
                    last_call = now
            places = places[whole:]

    def _fills(self, order: list[int]) -> Iterator[tuple[list[Piece], bool]]:
        """Yield the pieces of each fill of the buffer, and whether it is the last one."""
        room = self.buffer_rows - self.batch_size  # fewer rows than a batch remain from the last fill
        pieces: list[Piece] = []
        filled = 0
        for first in range(0, len(order), OPEN_GROUPS):
            turns = range(first, min(first + OPEN_GROUPS, len(order)))
            for piece in filter(None, chain(*zip_longest(*(self._pieces(order[turn], turn) for turn in turns)))):
                rows = int(piece.used.sum())
                if pieces and filled + rows > room:
                    yield pieces, False
                    pieces, filled = [], 0
                pieces.append(piece)
                filled += rows
        yield pieces, True

    def _pieces(self, group: int, turn: int) -> Iterator[Piece]:
        rows = int(self.source.groups[group].rows)
        used = ~self.held_out.get(group, np.zeros(rows, dtype=bool))
        for start in range(0, rows, self.piece_rows):
            yield Piece(group, turn, start, used[start : start + self.piece_rows])

    def _fill(self, left: NDArray[np.int64], pieces: list[Piece], readers: dict[int, Iterator[Any]]) -> NDArray[Any]:
        """Keep the rows that are left in the buffer, read the pieces behind them and return the places of all rows."""
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
            m = int(piece.used.sum())
            if piece.turn % self.group.world_size != self.group.rank:
                places.append(np.full(m, -1))
                continue
            group = self.source.groups[piece.group]
            if piece.start == 0:
                readers[piece.group] = self.source.read(group, self.piece_rows)
            X, Y = next(readers[piece.group])
            if len(X) != len(piece.used):
                raise ValueError(f"row group {group} has fewer rows than its file declares; the file is damaged")
            if piece.start + len(X) == group.rows:
                del readers[piece.group]
            self._X[at : at + m] = torch.from_numpy(self.transform(X)[piece.used])
            if self.source.sparse:
                sparse.append(Y[piece.used])
            else:
                self._Y[at : at + m] = torch.from_numpy(Y[piece.used])
            places.append(np.arange(at, at + m))
            at += m
        if isinstance(self.labels, SparseLabels):
            # At least one row, for a rank that holds no row of a batch.
            self.labels.matrix = scipy.sparse.vstack(sparse, format="csr") if at else self.labels.matrix[:1]
        return np.concatenate(places)
