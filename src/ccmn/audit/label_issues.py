"""The probability that a given label is wrong, on arrays.

Given labels beside their held-out probabilities: checked, and gone through a block of rows at a time.

The order of many probabilities, the largest first.

suggest_labels: the label set of every row with the probably wrong ones put right.

find_label_issues: the labels that are probably wrong, the most suspicious first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from ccmn._containers import Labels, is_sparse, label_names_of, unwrap
from ccmn._validation import (
    FloatArray,
    check_label_matrix,
    check_label_width,
    check_matrix_pair,
    check_probabilities,
    check_rates_known,
    check_same_labels,
    check_share,
)
from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise, NoiseModel

LIKELIER = 0.5
"""From this p_wrong on, the other value of a label is suggested."""
_ORDER = 1e-12
"""How much of the model's own doubt is let into p_wrong, so that what is sure to be wrong stays in order."""


class BelievedRates(NamedTuple):
    """Rates of every label with their standard deviations, (q,) each."""

    rho_pos: FloatArray
    rho_neg: FloatArray
    se_pos: FloatArray
    se_neg: FloatArray
    label_names: tuple[str, ...] | None


def believed_rates(noise: NoiseModel | NoiseRates) -> BelievedRates:
    """The rates of a noise model as they are; of an estimation, with upper bounds taken for what they are.

    A bound b says that rho_pos lies between 0 and b, and no more: its mean is b / 2, its deviation b / sqrt(12). (Added
    labels show themselves in rows that are surely negative, which nearly every label has: rho_neg is taken as it is.)
    Taken at its word, a bound makes far too many labels look lost.

    Examples
    --------
    >>> believed_rates(ClassConditionalNoise([0.1], [0.2])).se_pos
    array([0.])
    """
    if isinstance(noise, NoiseRates):
        bound = np.array([kind == "upper bound" for kind in noise.kind])
        rho_pos = np.where(bound, noise.rho_pos / 2, noise.rho_pos)
        se_pos = np.where(bound, np.sqrt((noise.rho_pos**2 + 4 * noise.se_pos**2) / 12), noise.se_pos)
        return BelievedRates(rho_pos, noise.rho_neg, se_pos, noise.se_neg, noise.label_names)
    check_rates_known(noise, ClassConditionalNoise)
    assert isinstance(noise, ClassConditionalNoise)
    known = np.zeros(noise.n_labels)
    return BelievedRates(noise.rho_pos, noise.rho_neg, known, known, noise.label_names)


def p_wrong(noisy: NDArray[Any], pred_proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    r"""P(true label differs from the given one | x, given label), by Bayes' rule.

    .. math::
        P(y = 0 \mid \tilde y = 1, x) = \frac{\rho_{neg} (1 - \eta)}{\tilde\eta}, \qquad
        P(y = 1 \mid \tilde y = 0, x) = \frac{\rho_{pos}\, \eta}{1 - \tilde\eta}

    with :math:`\tilde\eta = P(\tilde y = 1 \mid x)`, the probability of the *noisy* label, and
    :math:`\eta = (\tilde\eta - \rho_{neg}) / r`, :math:`r = 1 - \rho_{pos} - \rho_{neg}`, the corrected posterior. Both
    are one formula in :math:`s = P(\tilde y = \text{given} \mid x)` and
    :math:`o = P(\tilde y = \text{given} \mid y = \text{other})`:

    .. math:: \frac{o}{r} \left( \frac{o + r}{s} - 1 \right), \qquad o \le s \le o + r

    Noise of these rates cannot take s out of this range; scores that leave it are brought back to its ends, where a
    label is sure to be wrong, or right. The former are told apart by s, in the twelfth digit.

    Parameters
    ----------
    noisy : (..., q)
        Given labels, 0 or 1; NaN (not observed) comes out as NaN.
    pred_proba : (..., q)
        Held-out probabilities of the noisy labels.
    rho_pos, rho_neg : (q,)

    Examples
    --------
    >>> p_wrong(np.array([1, 0]), np.array([0.5, 0.5]), np.array([0.1, 0.2]), np.array([0.3, 0.0]))
    array([0.4 , 0.25])
    """
    given = noisy == 1
    signal = 1 - rho_pos - rho_neg
    other = np.where(given, rho_neg, rho_pos)
    self = np.where(given, pred_proba, 1 - pred_proba)
    # 0 / 0 where what was given cannot be, neither from the true label nor from a flip: never wrong, by the rates.
    within = np.clip(self, np.maximum(other, np.finfo(np.float64).tiny), other + signal)
    wrong = np.minimum(other / signal * ((other + signal) / within - 1), 1)
    result: FloatArray = wrong * (1 - _ORDER * self)
    if np.issubdtype(noisy.dtype, np.floating):
        result[np.isnan(noisy)] = np.nan
    return result


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


def descending(p: FloatArray) -> NDArray[np.int64]:
    """What ``np.argsort(-p, kind="stable")`` gives for numbers that are not negative, in half the time.

    Bits of such numbers are ordered as they are. Place and leading bits are packed into one integer, and integers are
    sorted, which is quicker than sorting places by what they point to; only those whose leading bits agree are sorted
    once more, in full.

    >>> descending(np.array([0.5, 1.0, 0.5, 0.0]))
    array([1, 0, 2, 3])
    """
    places = np.uint64((1 << max(p.size - 1, 1).bit_length()) - 1)
    packed = (~p.view(np.uint64) & ~places) | np.arange(p.size, dtype=np.uint64)
    packed.sort()
    order = (packed & places).astype(np.int64)
    equal = packed[1:] ^ packed[:-1] <= places
    if equal.any():
        alike = np.append(equal, False) | np.append(False, equal)
        members = np.sort(order[alike])
        order[alike] = members[np.argsort(-p[members], kind="stable")]
    return order


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
