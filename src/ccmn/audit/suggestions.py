"""suggest_labels: the label set of every row with the probably wrong ones put right."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ccmn._containers import Labels, is_sparse, unwrap
from ccmn._validation import check_share
from ccmn.audit.entries import Entries
from ccmn.audit.issues import LIKELIER
from ccmn.estimation import NoiseRates
from ccmn.noise import NoiseModel


def suggest_labels(
    Y_noisy: Labels, pred_proba: Any, noise: NoiseModel | NoiseRates, min_p_wrong: float = LIKELIER
) -> Labels:
    """The labels given, with every one turned over whose p_wrong is at least ``min_p_wrong``.

    At 0.5 this is the likeliest value of each label by itself. For training keep the noisy labels and correct the
    loss: suggestions repeat what the model believed, its errors included; they are for people to look at.

    Parameters
    ----------
    Y_noisy, pred_proba, noise
        As for :func:`ccmn.find_label_issues`: ``pred_proba`` is about the NOISY labels, out of fold.
    min_p_wrong : float
        0.5 or above: below it, the value given is the likelier one.

    Returns
    -------
    The same kind of container, shape and dtype; NaN (not observed) stays NaN.

    Examples
    --------
    >>> from ccmn.noise import PartialNoise
    >>> suggest_labels(np.array([[1, 1, 0]]), np.array([[0.9, 0.5, 0.5]]), PartialNoise(0.45, n_labels=3))
    array([[1, 0, 0]])
    """
    least = check_share(min_p_wrong, "min_p_wrong", LIKELIER, "below 0.5 the label given is the likelier one")
    entries = Entries.of(Y_noisy, pred_proba, noise)
    parts = (np.where(block.p_wrong >= least, 1 - block.given, block.given) for block in entries.blocks())
    if is_sparse(Y_noisy):
        labels = scipy.sparse.vstack([scipy.sparse.csr_array(part) for part in parts], format="csr")
        return type(entries.labels)(labels.astype(Y_noisy.dtype))
    array, rewrap = unwrap(Y_noisy)
    return rewrap(np.concatenate([part.astype(array.dtype) for part in parts]))
