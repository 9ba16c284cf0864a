"""Fits to shards that do not fit in memory: the division of the memory, the held-out sample, and the stream of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._validation import check_device
from ccmn.models.training_data import MIN_SAMPLES_TO_SPLIT, Scaling, debias, prepare, resolve_noise
from ccmn.training.distributed import ProcessGroup
from ccmn.training.stream import Stream

if TYPE_CHECKING:
    from ccmn.models.ccmn_classifier import CCMNClassifier

DEFAULT_STREAM_BATCH_SIZE = 1024
"""Batch size for ``batch_size="auto"``: small batches would take longer than reading."""
MEMORY = 500 * 2**20
"""Bytes for buffer, reading, held-out sample and criteria, without the model and the state of its optimizer."""
MAX_PIECE_ROWS = 8192
"""Maximum number of rows that are read at a time."""
MAX_HOLDOUT_ROWS = 50_000
"""Maximum number of rows of the held-out sample."""
MIN_HOLDOUT_GROUPS = 16
"""The held-out sample is drawn from at least this number of row groups, if there are as many."""
_BUFFER_SHARE, _PIECE_SHARE, _HOLDOUT_SHARE = 0.35, 0.012, 0.04
"""Shares of the memory: the shuffle buffer; one piece that is read (four, each in about three forms at a time); the
held-out sample (several copies of which are needed to estimate rates and criteria)."""


class StreamSizes(NamedTuple):
    """Numbers of rows that fit in the memory."""

    batch: int
    buffer: int
    piece: int
    holdout: int
    """Maximum number of rows of the held-out sample."""

    @classmethod
    def of(cls, data: Any, batch_size: int) -> StreamSizes:
        """Return the sizes for the memory limit, which excludes the model, its gradient and the optimizer state."""
        rows = MEMORY / data.row_bytes
        batch = min(batch_size, data.n)
        buffer = min(int(_BUFFER_SHARE * rows), data.n + batch)
        if buffer < 4 * batch and buffer < data.n:
            raise ValueError(
                f"memory={MEMORY / 2**20:.3g} MB holds a shuffle buffer of {buffer} rows, too few for batches of "
                f"{batch} rows of {data.row_bytes} bytes; use a smaller batch_size"
            )
        piece, holdout = (
            min(MAX_PIECE_ROWS, int(_PIECE_SHARE * rows)),
            min(MAX_HOLDOUT_ROWS, int(_HOLDOUT_SHARE * rows)),
        )
        return cls(batch, buffer, max(1, piece), max(1, holdout))


def draw_holdout(
    data: Any, fraction: float, sizes: StreamSizes, seed: int
) -> tuple[NDArray[np.float32], Any, dict[int, NDArray[np.bool_]]]:
    """Return features and labels of a random sample from some row groups, and the mask of its rows in each of them.

    The sample is a fraction of all rows, or as many as fit in memory. Noise rates and validation criteria are estimated
    from it. With ``fraction=1``, its rows are used for training as well, and there are no masks.
    """
    largest = data.n - 1 if fraction < 1 else data.n
    wanted = min(max(1, round(fraction * data.n)), largest, sizes.holdout)
    rng = np.random.default_rng([seed, 1])
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
    parts = []
    for group, mask in masks.items():
        start = 0
        for X, Y in data.read(data.groups[group], sizes.piece) if mask.any() else ():
            part = mask[start : start + len(X)]
            start += len(X)
            if part.any():
                parts.append((X[part], Y[part]))
    X_parts, Y_parts = zip(*parts)
    Y = scipy.sparse.vstack(Y_parts, format="csr") if is_sparse(Y_parts[0]) else np.concatenate(Y_parts)
    return np.concatenate(X_parts), Y, masks if fraction < 1 else {}


def fit_shards(
    clf: CCMNClassifier,
    shards: Any,
    seed: int,
    validation: tuple[Any, Any] | None,
    validation_is_clean: bool,
    checkpoint: Any,
) -> CCMNClassifier:
    """Fit a classifier to the stream of the rows of shards, except those of a held-out sample."""
    batch_size = DEFAULT_STREAM_BATCH_SIZE if isinstance(clf.batch_size, str) else int(clf.batch_size)
    sizes = StreamSizes.of(shards, batch_size)
    X, Y, masks = draw_holdout(shards, 1.0 if shards.n < MIN_SAMPLES_TO_SPLIT else clf.validation_fraction, sizes, seed)
    data = prepare(clf, X, Y)
    data = replace(data, targets=replace(data.targets, label_names=shards.label_names))
    clf._set_targets(data.targets, *resolve_noise(clf.noise, data, seed))
    clf.n_features_in_ = shards.d
    clf.__dict__.pop("feature_names_in_", None)
    if shards.feature_names is not None:
        clf.feature_names_in_ = np.array(shards.feature_names, dtype=object)
    valid, noise = debias(data, clf.noise_), clf.noise_
    if validation is not None:
        valid = clf._given_validation(validation, data.targets, validation_is_clean)
    files = [(file.name, file.stat().st_size) for file in shards.files]
    content = (files, shards.groups, sizes, *shards.footers(), X, Y, valid)
    saved = None if checkpoint is None else clf._checkpoint(checkpoint, 1, *content)
    scaling = Scaling.of(X) if clf.scale and isinstance(clf.model, str) else None
    group, device = ProcessGroup.current(), torch.device(check_device(clf.device, torch.cuda.is_available()))
    stream = Stream(
        shards,
        *sizes[:3],
        seed,
        held_out=masks,
        debias=noise.debiasing() if noise.flips_independent else None,
        transform=(lambda X: X) if scaling is None else scaling.transform,
        group=group,
        device=device,
    )
    clf._train(stream.features, stream.labels, stream, None, valid, scaling, seed, saved)
    return clf
