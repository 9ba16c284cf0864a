"""Answers as trusted rows: what a person has decided, as the rest of the library takes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn.review.store import Entry

VALUES = {"yes": 1.0, "no": 0.0}
"""What an answer says about a label; of "unsure" nothing is known."""


class TrustedRows(NamedTuple):
    """Rows with true labels as ``estimate_noise`` and ``CCMNClassifier.fit`` take them; NaN where not known."""

    rows: NDArray[np.int64]
    Y: NDArray[np.float32]


def trusted_rows(entries: Iterable[Entry], n_labels: int) -> TrustedRows:
    """Answers as a matrix, a line for every row with an answer "yes" or "no"."""
    known = [entry for entry in entries if entry.answer in VALUES]
    rows, place = np.unique(np.array([entry.row for entry in known], dtype=np.int64), return_inverse=True)
    Y = np.full((len(rows), n_labels), np.nan, dtype=np.float32)
    for line, entry in zip(place.ravel(), known):
        Y[line, entry.label] = VALUES[entry.answer]
    return TrustedRows(rows, Y)


def corrected_labels(given: NDArray[np.float32], trusted: TrustedRows) -> NDArray[np.float32]:
    """The labels given, with those replaced that a person has decided."""
    Y = given.copy()
    Y[trusted.rows] = np.where(np.isnan(trusted.Y), Y[trusted.rows], trusted.Y)
    return Y
