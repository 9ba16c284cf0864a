"""Fits that can be stopped and gone on with: where their state is kept, and what it belongs to.

A fingerprint takes in every value that is in memory: parameters, rates, features, labels and weights of the rows to
train on and of those to choose by. That is one look at each, which is less than an epoch takes, however many there
are. Of shards larger than memory it takes in the footers, which give the place, size and range of every column, and
every value of the rows that were drawn from them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn.data.shards import ShardedData
from ccmn.models.streaming import Drawn, Plan
from ccmn.models.training_data import Labels, Sample
from ccmn.training import Ranks, SparseLabels
from ccmn.training.checkpoint import Checkpoint

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier

_BYTES_AT_ONCE = 1 << 24


def keeper_at(path: str | os.PathLike[str], fingerprint: str, *, every: int = 5) -> Checkpoint:
    """Where the state of the fit is kept; after every epoch where several processes may be stopped by one."""
    ranks = Ranks.current()
    every = every if ranks.world == 1 else 1
    return Checkpoint(path, fingerprint, every=every, writes=ranks.writes)


def fingerprint(clf: CCMNClassifier, training: Sample, labels: Labels, held_out: Sample) -> str:
    """What the checkpoint of a fit to rows in memory belongs to; ``labels`` are what the loss takes."""
    digest = _Digest(_settings(clf))
    digest.add_sample(training)
    digest.add_labels(labels)
    digest.add_sample(held_out)
    return digest.text()


def stream_fingerprint(clf: CCMNClassifier, data: ShardedData, plan: Plan, drawn: Drawn, held_out: Sample) -> str:
    """What the checkpoint of a fit to shards belongs to."""
    shards = [(file.name, file.stat().st_size) for file in data.files]
    digest = _Digest((_settings(clf), shards, data.groups, plan))
    for footer in data.footers():
        digest.add_bytes(footer)
    digest.add_matrix(drawn.X)
    digest.add_matrix(drawn.Y)
    digest.add_sample(held_out)
    return digest.text()


def _settings(clf: CCMNClassifier) -> tuple[Any, ...]:
    """The parameters, but for what only tells; rates with all their digits."""
    parameters = {k: v for k, v in clf.get_params(deep=False).items() if k not in ("noise", "verbose")}
    # A function's address is another one in the next process, which is to go on with this fit.
    named = [(name, re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))) for name, value in sorted(parameters.items())]
    return *named, json.dumps(clf.noise_.to_dict())


class _Digest:
    """SHA-256 of arrays, with their shapes and types."""

    def __init__(self, head: object) -> None:
        self._hash = hashlib.sha256(repr(head).encode())

    def add_sample(self, sample: Sample) -> None:
        self.add_matrix(sample.X)
        self.add_labels(sample.p)
        if sample.weights is not None:
            self.add_array(sample.weights)

    def add_labels(self, labels: Labels) -> None:
        if not isinstance(labels, SparseLabels):
            self.add_array(labels)
            return
        self.add_matrix(labels.matrix)
        if labels.known is not None:
            self.add_array(labels.known)

    def add_matrix(self, matrix: Any) -> None:
        parts = (matrix.indptr, matrix.indices, matrix.data) if is_sparse(matrix) else (matrix,)
        for part in parts:
            self.add_array(part)

    def add_array(self, array: NDArray[Any]) -> None:
        """A part at a time, so that no whole copy is made of rows that do not lie one after the other."""
        self.add_bytes(repr((array.dtype.str, array.shape)).encode())
        rows = max(1, _BYTES_AT_ONCE * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), rows):
            self.add_bytes(array[start : start + rows].tobytes())

    def add_bytes(self, data: bytes) -> None:
        self._hash.update(data)

    def text(self) -> str:
        return self._hash.hexdigest()
