"""Search for confused labels: where the features indicate a label most clearly, another label is given instead.

The test compares the noisy labels with their out-of-fold log-odds and needs no trusted rows. It survives labels that
imply or exclude each other and rows without labels. ``benchmarks/diagnosis.py`` measures false alarms and power.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ccmn._validation import FloatArray
from ccmn.estimation.noise_rates import Flag

MIN_ROWS = 500
"""The test is skipped if fewer rows have all labels observed: its limits were selected on larger data."""
MAX_FLAGS = 5
"""Largest number of flags."""
MIN_CONFUSABLE = 40
"""Positives from which on a label is tested for confusions, and smallest number of its top rows."""
MIN_EXPLAINED = 0.6
"""Smallest share of the absent labels that the other label explains; true labels that exclude each other reach 0.7."""
MIN_MOVED, MIN_Z_CONFUSED = 0.15, 6.0
"""Smallest lower bound of the share of moved labels, and smallest difference of the shares of the other label in
standard errors, for a single pair of labels; they account for q (q - 1) tests."""
MIN_MOVED_OF_MANY, MIN_Z_OF_MANY = 0.07, 3.5
"""The same limits if many labels are confused at once: three, and one of eight labels."""


class Confusion(NamedTuple):
    """Label that is replaced by another one."""

    label: int
    other: int
    moved: float
    """Estimated share of rows in which the other label replaces it."""
    low: float
    """Lower bound of this share: two standard errors below it."""
    z: float
    """Difference of the shares of the other label among rows without and with the label, in standard errors."""


def confused_labels(Y: FloatArray, logits: FloatArray, names: Sequence[str] | None = None) -> list[Flag]:
    """Flag pairs of labels (n, q) if one of them was given instead of the other, from their out-of-fold log-odds.

    Rows with NaN are left out.
    """
    complete = ~np.isnan(Y).any(1)
    if complete.sum() < MIN_ROWS:
        return []
    found = confusions(Y[complete], logits[complete])
    if len({pair.label for pair in found}) < max(3, Y.shape[1] / 8):
        found = [pair for pair in found if pair.z >= MIN_Z_CONFUSED and pair.low >= MIN_MOVED]
    flags = []
    for pair in sorted(found, key=lambda pair: -pair.z)[:MAX_FLAGS]:
        other = pair.other if names is None else repr(names[pair.other])
        note = (
            f"In about {pair.moved:.0%} of the rows that clearly indicate this label, label {other} is given "
            "instead: the two labels seem to be confused. Verify rows in which features and label disagree, or merge "
            "both labels; rates per label do not describe confusions."
        )
        flags.append(Flag("confused_labels", note, pair.label))
    return flags


def confusions(Y: FloatArray, logits: FloatArray) -> list[Confusion]:
    r"""Return the pairs (j, k) for which label k replaces label j where the features indicate j most clearly.

    Let a and c be the shares of label k among the top rows of label j in which j is absent and present. Label k
    explains the share :math:`\kappa = (a - c) / (1 - c)` of the absent labels. Labels that exclude each other have a
    large :math:`\kappa` as well, but the clearer the features are, the fewer of them are absent. The share of moved
    labels is therefore computed in the first of the top rows: with the share m of rows in which j is absent,

    .. math:: \frac{m \kappa}{m \kappa + (1 - m)(1 - c)} .
    """
    n, q = Y.shape
    found = []
    for j in range(q):
        order = np.argsort(-logits[:, j], kind="stable")
        positives = Y[:, j].sum()
        # Added labels are as frequent among the lowest scores as elsewhere, and the features do not indicate them.
        indicated = positives - n * Y[order[-(n // 10) :], j].mean()
        if positives < MIN_CONFUSABLE or indicated < MIN_CONFUSABLE / 2:
            continue
        size = int(min(max(positives / 2, MIN_CONFUSABLE), n / 4))
        top = Y[order[:size]]
        present = top[:, j] == 1
        n_present = present.sum()
        if min(n_present, size - n_present) < 8:
            continue
        given_absent, given_present, pooled = top[~present].mean(0), top[present].mean(0), top.mean(0)
        error = np.sqrt(np.maximum(pooled * (1 - pooled), 1 / size) * (1 / n_present + 1 / (size - n_present)))
        z = (given_absent - given_present) / error
        explained = (given_absent - given_present) / np.maximum(1 - given_present, 1e-9)
        clearest = top[: int(max(min(indicated / 4, size / 2), MIN_CONFUSABLE / 2)), j]
        absent = 1 - clearest.mean()
        for k in np.flatnonzero((z >= MIN_Z_OF_MANY) & (explained >= MIN_EXPLAINED)):
            replaced, kept = absent * explained[k], (1 - absent) * (1 - given_present[k])
            moved = replaced / (replaced + kept)
            low = moved - 2 * np.sqrt(max(moved * (1 - moved), 0.01) / (len(clearest) * (replaced + kept)))
            if k != j and low >= MIN_MOVED_OF_MANY:
                found.append(Confusion(j, int(k), float(moved), float(low), float(z[k])))
    return found
