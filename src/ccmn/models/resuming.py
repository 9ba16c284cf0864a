"""Fits that can be stopped and gone on with: where their state is kept, and what it belongs to."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import numpy as np

from ccmn.models.fitting import Labels, Sample
from ccmn.training import Ranks, SparseLabels
from ccmn.training.checkpoint import Checkpoint

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier


def keeper_at(path: str | os.PathLike[str], fingerprint: str, *, every: int = 5) -> Checkpoint:
    """Where the state of the fit is kept; after every epoch where several processes may be stopped by one."""
    ranks = Ranks.current()
    every = every if ranks.world == 1 else 1
    return Checkpoint(path, fingerprint, every=every, writes=ranks.writes)


def parameters_text(clf: CCMNClassifier) -> str:
    """The parameters that a fit depends on."""
    return repr(sorted((k, repr(v)) for k, v in clf.get_params(deep=False).items() if k != "verbose"))


def fingerprint(parameters: str, training: Sample, labels: Labels) -> str:
    """What a checkpoint belongs to: parameters, shapes and labels."""
    digest = hashlib.sha256(repr((parameters, training.X.shape)).encode())
    matrix = labels.matrix if isinstance(labels, SparseLabels) else None
    for part in (labels,) if matrix is None else (matrix.indptr, matrix.indices, matrix.data):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
