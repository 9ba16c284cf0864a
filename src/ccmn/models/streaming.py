"""From a folder of shards larger than memory to what the loop takes: a plan of the memory, a sample, a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn.data.shards import ShardedData
from ccmn.models.fitting import Recipe, Training
from ccmn.noise import NoiseModel
from ccmn.training import Passed, Ranks, Stream, StreamSettings
from ccmn.training.stream import Source

BATCH_SIZE = 1024
"""Where ``batch_size`` is "auto": reading is quicker than small batches are."""
_BUFFER, _PIECE, _SAMPLE = 0.35, 0.012, 0.04
"""Parts of the memory: the buffer; one of the pieces being read (four, each in some three forms at a time); the
sample, of which rates and criteria are worked out in several copies."""
_LARGEST_PIECE = 8192
_MOST_SAMPLED = 50_000
_FEWEST_GROUPS = 16
_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


def read_memory(memory: str | float) -> int:
    """Bytes, from a number of them or text.

    >>> read_memory("500MB"), read_memory(1e6)
    (524288000, 1000000)
    """
    try:
        text = memory.strip().upper() if isinstance(memory, str) else ""
        size = int(float(text[:-2]) * _UNITS[text[-2:]] if text else memory)
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise ValueError(f"memory must be a number of bytes, or like '500MB' or '2GB', above 0; got {memory!r}")
    return size


@dataclass(frozen=True)
class Plan:
    """How much of what lies in memory."""

    settings: StreamSettings
    sample_rows: int

    @classmethod
    def of(cls, data: ShardedData, memory: int, batch_size: int, seed: int) -> Plan:
        """Divide a memory ceiling. The model, its gradient and the optimiser's state are not counted."""
        fits = memory / data.row_bytes
        batch_size = min(batch_size, data.n)
        buffer = min(int(_BUFFER * fits), data.n + batch_size)
        if buffer < 4 * batch_size and buffer < data.n:
            least = int(4 * batch_size * data.row_bytes / _BUFFER) // 2**20 + 1
            raise ValueError(
                f"{memory / 2**20:.3g} MB hold {buffer} rows to shuffle, which is too little for batches of "
                f"{batch_size} rows of {data.row_bytes} bytes: give memory='{least}MB' or more, or a smaller batch_size"
            )
        piece = max(1, min(_LARGEST_PIECE, int(_PIECE * fits)))
        settings = StreamSettings(batch_size, buffer, piece, seed)
        return cls(settings, max(1, min(_MOST_SAMPLED, int(_SAMPLE * fits))))


@dataclass(frozen=True)
class Drawn:
    """Rows taken out of the stream: rates are estimated from them, epochs and learning rates chosen by them."""

    X: NDArray[np.float32]
    Y: Any
    masks: dict[int, NDArray[np.bool_]]
    """Number of a row group -> which of its rows these are, and are not trained on."""


def draw_sample(data: ShardedData, fraction: float, plan: Plan) -> Drawn:
    """A seeded sample of rows from some row groups: a fraction of all rows, or as many as there is memory for.

    A fraction of 1 takes nothing out: these rows are trained on as well.
    """
    wanted = min(max(1, round(fraction * data.n)), plan.sample_rows)
    rng = np.random.default_rng([plan.settings.seed, 1])
    chosen: list[int] = []
    rows = 0
    for group in rng.permutation(len(data.groups)).tolist():
        if len(chosen) >= _FEWEST_GROUPS and rows >= 2 * wanted:
            break
        chosen.append(group)
        rows += data.groups[group].rows
    taken = np.zeros(rows, dtype=bool)
    taken[rng.permutation(rows)[:wanted]] = True
    ends = np.cumsum([data.groups[group].rows for group in chosen])
    masks = dict(zip(chosen, np.split(taken, ends[:-1])))
    parts = [part for group, mask in masks.items() for part in _masked(data, group, mask, plan.settings.piece_rows)]
    Y = [y for _, y in parts]
    stacked = scipy.sparse.vstack(Y, format="csr") if is_sparse(Y[0]) else np.concatenate(Y)
    return Drawn(np.concatenate([x for x, _ in parts]), stacked, masks if fraction < 1 else {})


def _masked(data: ShardedData, group: int, mask: NDArray[np.bool_], at_once: int) -> list[tuple[Any, Any]]:
    found, start = [], 0
    if mask.any():
        for X, Y in data.read(data.groups[group], at_once):
            part = mask[start : start + len(X)]
            start += len(X)
            if part.any():
                found.append((X[part], Y[part]))
    return found


def streamed(
    recipe: Recipe,
    data: Source,
    plan: Plan,
    drawn: Drawn,
    noise: NoiseModel,
    tell: Callable[[Passed], None] | None,
) -> Training:
    """The rows that are not in the sample, as they pass by; labels are debiased batch by batch."""
    ranks = Ranks.current()
    stream = Stream(
        data,
        plan.settings,
        drawn.masks,
        None if recipe.raw_labels else noise.debiasing(),
        ranks=ranks,
        tell=tell,
        dtype=recipe.dtype,
        device=recipe.device,
    )
    return Training(stream.features, stream.labels, stream, data.q, None, ranks)
