"""Given labels beside their held-out probabilities: checked, and gone through a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ccmn._containers import Labels, is_sparse, label_names_of, unwrap
from ccmn._validation import (
    FloatArray,
    check_label_matrix,
    check_label_width,
    check_matrix_pair,
    check_probabilities,
    check_same_labels,
)
from ccmn.audit.believed import BelievedRates, believed_rates
from ccmn.audit.posterior import p_wrong
from ccmn.estimation import NoiseRates
from ccmn.noise import NoiseModel

_BLOCK = 2**16
"""Entries of a block: what is worked out on the way stays in cache, and large data never meet in memory."""


class Block(NamedTuple):
    """Consecutive rows from ``start``: the labels given (NaN: not observed), and how probably they are wrong."""

    start: int
    given: NDArray[Any]
    p_wrong: FloatArray


class Entries(NamedTuple):
    """Everything that is known of the labels given, in dense arrays or CSR."""

    labels: Any
    pred_proba: NDArray[Any]
    rates: BelievedRates
    label_names: tuple[str, ...] | None

    @classmethod
    def of(cls, Y_noisy: Labels, pred_proba: Any, noise: NoiseModel | NoiseRates) -> Entries:
        """What the user gave, shapes and names checked; values are checked block by block."""
        rates = believed_rates(noise)
        labels, names = checked_labels(Y_noisy, rates)
        probabilities = unwrap(pred_proba)[0]
        check_matrix_pair(labels, probabilities, ("Y_noisy", "pred_proba"))
        check_same_labels(("Y_noisy", names), ("pred_proba", label_names_of(pred_proba)))
        return cls(labels, probabilities, rates, names)

    def blocks(self) -> Iterator[Block]:
        """Blocks of rows, from the first to the last."""
        n, q = self.labels.shape
        size = max(1, _BLOCK // q)
        for start in range(0, n, size):
            rows = slice(start, start + size)
            given = self.labels[rows]
            given = check_label_matrix(given.toarray() if is_sparse(given) else given, "Y_noisy")
            probabilities = check_probabilities(self.pred_proba[rows], "pred_proba")
            yield Block(start, given, p_wrong(given, probabilities, self.rates.rho_pos, self.rates.rho_neg))


def checked_labels(Y_noisy: Labels, rates: BelievedRates) -> tuple[Any, tuple[str, ...] | None]:
    """Labels (n, q), dense or CSR, as wide as the rates and with their names, if either knows them."""
    labels = Y_noisy.tocsr() if is_sparse(Y_noisy) else unwrap(Y_noisy)[0]
    names = label_names_of(Y_noisy)
    check_label_width(labels.shape, rates.rho_pos.size, "Y_noisy")
    check_same_labels(("Y_noisy", names), ("noise", rates.label_names))
    return labels, names or rates.label_names
