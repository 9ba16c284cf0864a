"""Fits to shards that do not fit in memory: the memory plan, the held-out sample, and the stream of training rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn.data.shards import ShardedData
from ccmn.models.solvers import TrainingConfig, TrainingRows
from ccmn.models.training_data import Scaling
from ccmn.noise import NoiseModel
from ccmn.training import ProcessGroup, Stream, StreamProgress, StreamSettings
from ccmn.training.stream import Source

DEFAULT_STREAM_BATCH_SIZE = 1024
"""Batch size for ``batch_size="auto"``: small batches would take longer than reading."""
MAX_PIECE_ROWS = 8192
"""Maximum number of rows that are read at a time."""
MAX_HOLDOUT_ROWS = 50_000
"""Maximum number of rows of the held-out sample."""
MIN_HOLDOUT_GROUPS = 16
"""The held-out sample is drawn from at least this number of row groups, if there are as many."""
_BUFFER_SHARE, _PIECE_SHARE, _HOLDOUT_SHARE = 0.35, 0.012, 0.04
"""Shares of the memory: the shuffle buffer; one piece that is read (four, each in about three forms at a time); the
held-out sample (several copies of which are needed to estimate rates and criteria)."""
_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


def read_memory(memory: str | float) -> int:
    """Return a number of bytes from a number or a text such as "500MB".

    >>> read_memory("500MB"), read_memory(1e6)
    (524288000, 1000000)
    """
    try:
        text = memory.strip().upper() if isinstance(memory, str) else ""
        size = int(float(text[:-2]) * _UNITS[text[-2:]] if text else memory)
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise ValueError(
            f"Expected memory as a positive number of bytes or a text like '500MB' or '2GB'; got {memory!r}"
        )
    return size


@dataclass(frozen=True)
class StreamPlan:
    """Division of the memory."""

    settings: StreamSettings
    holdout_rows: int
    """Maximum number of rows of the held-out sample."""

    @classmethod
    def of(cls, data: ShardedData, memory: int, batch_size: int, seed: int) -> StreamPlan:
        """Return the plan for a memory limit, which excludes the model, its gradient and the optimizer state."""
        rows_in_memory = memory / data.row_bytes
        batch_size = min(batch_size, data.n)
        buffer = min(int(_BUFFER_SHARE * rows_in_memory), data.n + batch_size)
        if buffer < 4 * batch_size and buffer < data.n:
            least = int(4 * batch_size * data.row_bytes / _BUFFER_SHARE) // 2**20 + 1
            raise ValueError(
                f"memory={memory / 2**20:.3g} MB holds a shuffle buffer of {buffer} rows, too few for batches of "
                f"{batch_size} rows of {data.row_bytes} bytes; use memory='{least}MB' or more, or a smaller batch_size"
            )
        piece = max(1, min(MAX_PIECE_ROWS, int(_PIECE_SHARE * rows_in_memory)))
        settings = StreamSettings(batch_size, buffer, piece, seed)
        return cls(settings, max(1, min(MAX_HOLDOUT_ROWS, int(_HOLDOUT_SHARE * rows_in_memory))))


@dataclass(frozen=True)
class HoldoutSample:
    """Random rows that are not used for training: noise rates and validation criteria are estimated from them."""

    X: NDArray[np.float32]
    Y: Any
    masks: dict[int, NDArray[np.bool_]]
    """Number of a row group -> which of its rows are held out of the training."""


def draw_holdout(data: ShardedData, fraction: float, plan: StreamPlan) -> HoldoutSample:
    """Draw a random sample from some row groups: a fraction of all rows, or as many as fit in memory.

    With ``fraction=1``, the rows of the sample are used for training as well.
    """
    largest = data.n - 1 if fraction < 1 else data.n
    wanted = min(max(1, round(fraction * data.n)), largest, plan.holdout_rows)
    rng = np.random.default_rng([plan.settings.seed, 1])
    groups: list[int] = []
    rows = 0
    for group in rng.permutation(len(data.groups)).tolist():
        if len(groups) >= MIN_HOLDOUT_GROUPS and rows >= 2 * wanted:
            break
        groups.append(group)
        rows += data.groups[group].rows
    taken = np.zeros(rows, dtype=bool)
    taken[rng.permutation(rows)[:wanted]] = True
    ends = np.cumsum([data.groups[group].rows for group in groups])
    masks = dict(zip(groups, np.split(taken, ends[:-1])))
    X_parts, Y_parts = [], []
    for group, mask in masks.items():
        start = 0
        for X, Y in data.read(data.groups[group], plan.settings.piece_rows) if mask.any() else ():
            part = mask[start : start + len(X)]
            start += len(X)
            if part.any():
                X_parts.append(X[part])
                Y_parts.append(Y[part])
    Y = scipy.sparse.vstack(Y_parts, format="csr") if is_sparse(Y_parts[0]) else np.concatenate(Y_parts)
    return HoldoutSample(np.concatenate(X_parts), Y, masks if fraction < 1 else {})


class ScaledSource:
    """Source of streamed rows with scaled features."""

    def __init__(self, source: Source, scaling: Scaling) -> None:
        self._source, self._scaling = source, scaling
        self.d, self.q, self.sparse, self.groups = source.d, source.q, source.sparse, source.groups

    def read(self, group: Any, at_once: int) -> Iterator[tuple[NDArray[np.float32], Any]]:
        """Yield scaled features and labels of a row group, ``at_once`` rows at a time."""
        for X, Y in self._source.read(group, at_once):
            yield self._scaling.transform(X), Y


def streamed_rows(
    config: TrainingConfig,
    data: Source,
    plan: StreamPlan,
    holdout: HoldoutSample,
    noise: NoiseModel,
    on_progress: Callable[[StreamProgress], None] | None,
) -> TrainingRows:
    """Return the stream of the rows that are not held out; labels are debiased batch by batch."""
    group = ProcessGroup.current()
    stream = Stream(
        data,
        plan.settings,
        holdout.masks,
        None if config.loss_models_noise else noise.debiasing(),
        group=group,
        on_progress=on_progress,
        dtype=config.dtype,
        device=config.device,
    )
    return TrainingRows(stream.features, stream.labels, stream, data.q, None, group)
