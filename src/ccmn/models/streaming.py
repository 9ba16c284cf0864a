"""Fits to shards that do not fit in memory: the division of the memory, the held-out sample, and the stream of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._validation import check_device
from ccmn.models.training_data import MIN_SAMPLES_TO_SPLIT, Scaling, debias, given_validation, prepare, resolve_noise
from ccmn.training.batches import ProcessGroup
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


def draw_holdout(
    data: Any, fraction: float, piece: int, limit: int, seed: int
) -> tuple[NDArray[np.float32], Any, dict[int, NDArray[np.bool_]]]:
    """Return features and labels of a random sample from some row groups, and the mask of its rows in each of them.

    The sample is a fraction of all rows, at most ``limit``. Noise rates and validation criteria are estimated from it.
    With ``fraction=1``, its rows are used for training as well, and there are no masks.
    """
    largest = data.n - 1 if fraction < 1 else data.n
    wanted = min(max(1, round(fraction * data.n)), largest, limit)
    rng = np.random.default_rng([seed, 1])
    order = rng.permutation(len(data.groups))
    ends = np.cumsum([data.groups[group].rows for group in order])
    count = min(max(MIN_HOLDOUT_GROUPS, int(np.searchsorted(ends, 2 * wanted)) + 1), len(order))
    taken = np.zeros(ends[count - 1], dtype=bool)
    taken[rng.permutation(len(taken))[:wanted]] = True
    masks = dict(zip(order[:count].tolist(), np.split(taken, ends[: count - 1])))
    parts = []
    for group, mask in masks.items():
        start = 0
        for X, Y in data.read(data.groups[group], piece) if mask.any() else ():
            part = mask[start : start + len(X)]
            start += len(X)
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
    rows = MEMORY / shards.row_bytes
    batch = min(DEFAULT_STREAM_BATCH_SIZE if isinstance(clf.batch_size, str) else int(clf.batch_size), shards.n)
    buffer = min(int(_BUFFER_SHARE * rows), shards.n + batch)
    if buffer < 4 * batch and buffer < shards.n:
        raise ValueError(
            f"memory={MEMORY / 2**20:.3g} MB holds a shuffle buffer of {buffer} rows, too few for batches of "
            f"{batch} rows of {shards.row_bytes} bytes; use a smaller batch_size"
        )
    piece = max(1, min(MAX_PIECE_ROWS, int(_PIECE_SHARE * rows)))
    limit = max(1, min(MAX_HOLDOUT_ROWS, int(_HOLDOUT_SHARE * rows)))
    fraction = 1.0 if shards.n < MIN_SAMPLES_TO_SPLIT else clf.validation_fraction
    X, Y, masks = draw_holdout(shards, fraction, piece, limit, seed)
    data = prepare(clf, X, Y)
    data = replace(data, targets=replace(data.targets, label_names=shards.label_names))
    clf._set_targets(data.targets, *resolve_noise(clf.noise, data, seed))
    clf.n_features_in_ = shards.d
    clf.__dict__.pop("feature_names_in_", None)
    if shards.feature_names is not None:
        clf.feature_names_in_ = np.array(shards.feature_names, dtype=object)
    valid, noise = debias(data, clf.noise_), clf.noise_
    if validation is not None:
        valid = given_validation(clf, validation, data.targets, validation_is_clean)
    files = [(file.name, file.stat().st_size) for file in shards.files]
    content = (files, shards.groups, (batch, buffer, piece, limit), *shards.footers(), X, Y, valid)
    saved = None if checkpoint is None else clf._checkpoint(checkpoint, 1, *content)
    scaling = Scaling.of(X) if clf.scale and isinstance(clf.model, str) else None
    stream = Stream(
        shards,
        batch,
        buffer,
        piece,
        seed,
        held_out=masks,
        debias=noise.debiasing() if noise.flips_independent else None,
        transform=(lambda X: X) if scaling is None else scaling.transform,
        group=ProcessGroup.current(),
        device=torch.device(check_device(clf.device, torch.cuda.is_available())),
    )
    clf._train(stream.features, stream.labels, stream, None, valid, scaling, seed, saved)
    return clf
