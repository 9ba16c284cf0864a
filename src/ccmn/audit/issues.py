"""find_label_issues: the labels that are probably wrong, the most suspicious first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccmn._containers import Labels
from ccmn._validation import FloatArray, check_share
from ccmn.audit.entries import Entries
from ccmn.audit.order import descending
from ccmn.estimation import NoiseRates
from ccmn.noise import NoiseModel

LIKELIER = 0.5
"""From this p_wrong on, the other value of a label is suggested."""


def find_label_issues(
    Y_noisy: Labels, pred_proba: Any, noise: NoiseModel | NoiseRates, min_p_wrong: float = 0.5
) -> pd.DataFrame:
    """Labels that are probably wrong, the most suspicious first.

    For every label of every row the posterior that the given value is wrong, from three things: what a model makes
    of the row, how often labels of this kind go wrong, and which value was given (:func:`ccmn.audit.p_wrong`). It is a
    probability, comparable between labels: of the entries listed with 0.9, nine in ten are wrong, if the noise is
    class-conditional with these rates and the probabilities are calibrated (docs/audit.md has figures).

    Parameters
    ----------
    Y_noisy : array, tensor, DataFrame or CSR (n, q) in {0, 1}
        The labels given. NaN where not observed: such entries are not listed.
    pred_proba : (n, q)
        P(noisy label = 1 | x): probabilities of the NOISY labels, **out of fold**, by a model that was trained on noisy
        labels, uncorrected, and never on the row itself, such as ``cross_val_predict(..., method="predict_proba")`` or
        ``ccmn.estimation.out_of_fold_scores``. The correction is made here; probabilities of the clean labels, as
        ``CCMNClassifier(noise=...).predict_proba`` gives them, would be corrected twice: turn them into noisy ones
        first, ``rho_neg + (1 - rho_pos - rho_neg) * p``.
    noise : ClassConditionalNoise, PartialNoise, MissingNoise, or NoiseRates
        The rates, known or from ``estimate_noise``; of a ``NoiseRates`` the upper bounds are known to be bounds
        (:func:`ccmn.audit.believed_rates`).
    min_p_wrong : float
        List entries whose p_wrong is at least this; 0: every observed entry.

    Returns
    -------
    DataFrame
        ``row`` (number from 0), ``label`` (name where known, else number), ``given`` (0 or 1), ``p_wrong``,
        ``suggested`` (the likelier value: the other one from p_wrong = 0.5 on). Sorted by p_wrong, downwards; of equals
        the first row comes first, then the first label.

    Examples
    --------
    >>> from ccmn.noise import ClassConditionalNoise
    >>> noise = ClassConditionalNoise([0.2, 0.2], [0.1, 0.3], label_names=["sea", "sky"])
    >>> find_label_issues([[1, 0], [0, 1]], [[0.15, 0.4], [0.7, 0.6]], noise)
       row label  given   p_wrong  suggested
    0    0   sea      1  0.619...          0
    1    1   sea      0  0.571...          1
    """
    least = check_share(min_p_wrong, "min_p_wrong")
    entries = Entries.of(Y_noisy, pred_proba, noise)
    place, given, p = _suspects(entries, least)
    order = descending(p)
    place, given, p = place[order], given[order], p[order]
    row, label = np.divmod(place, entries.labels.shape[1])
    other = p >= LIKELIER
    columns = {"row": row, "label": _named(label, entries.label_names)}
    return pd.DataFrame(
        {**columns, "given": given.view(np.int8), "p_wrong": p, "suggested": (given ^ other).view(np.int8)}
    )


def _suspects(entries: Entries, least: float) -> tuple[NDArray[np.int64], NDArray[np.bool_], FloatArray]:
    """Places (row * q + label), given values and p_wrong of the entries with p_wrong >= least, in order of place."""
    q = entries.labels.shape[1]
    found = []
    for block in entries.blocks():
        inside = np.flatnonzero(block.p_wrong >= least)  # NaN, not observed, is not
        found.append((inside + block.start * q, block.given.ravel()[inside] == 1, block.p_wrong.ravel()[inside]))
    place, given, p = (np.concatenate(part) for part in zip(*found))
    return place, given, p


def _named(label: NDArray[np.int64], names: tuple[str, ...] | None) -> Any:
    """Label numbers, or the names as categories: a code for each entry instead of a string."""
    return label if names is None else pd.Categorical.from_codes(label, categories=pd.Index(list(names)))
