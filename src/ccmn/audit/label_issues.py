"""Error probability of every given label, ranked label issues, and suggested labels.

Labels and probabilities are processed in blocks of rows, so that memory does not grow with the size of sparse data.
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

DEFAULT_MIN_P_WRONG = 0.5
"""From this error probability on, the other value of the label is at least as probable as the given one."""

MAX_BLOCK_ENTRIES = 2**16
"""Maximum number of labels per block of rows. Temporary arrays of this size fit in the CPU cache."""

_TIE_BREAK = 1e-12
"""Weight of the predicted probability in p_wrong. It orders labels whose error probability is clipped to 1."""


def find_label_issues(
    Y_noisy: Labels, pred_proba: Any, noise: NoiseModel | NoiseRates, *, min_p_wrong: float = DEFAULT_MIN_P_WRONG
) -> pd.DataFrame:
    """List the labels that are probably wrong, ranked by estimated error probability.

    The posterior probability that a label is wrong combines the out-of-fold prediction, the noise rates of the label
    and the given value (:func:`ccmn.audit.p_wrong`). It is comparable between labels: if the noise is
    class-conditional with these rates and the predictions are calibrated, nine of ten labels with ``p_wrong = 0.9``
    are wrong. Confident learning [1]_ uses class-wise thresholds of the predicted probabilities instead of noise
    rates.

    Parameters
    ----------
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Given labels in {0, 1}; NaN where not observed. Unobserved labels are not listed.
    pred_proba : array, tensor or DataFrame of shape (n, q)
        Out-of-fold probabilities P(noisy label = 1 | x) of a model trained on the *noisy* labels without noise
        correction, for example from ``cross_val_predict(..., method="predict_proba")`` or
        ``ccmn.estimation.out_of_fold_scores``. Convert probabilities p of true labels, such as
        ``CCMNClassifier(noise=...).predict_proba``, to ``rho_neg + (1 - rho_pos - rho_neg) * p`` first.
    noise : ClassConditionalNoise, PartialNoise, MissingNoise or NoiseRates
        Known noise rates, or the result of ``estimate_noise``. A rate that is only an upper bound b enters as b / 2.
    min_p_wrong : float, default=0.5
        Minimum error probability of listed labels; 0 lists every observed label.

    Returns
    -------
    DataFrame
        Columns ``row`` (position from 0), ``label`` (name if known, else index), ``given`` (0 or 1), ``p_wrong`` and
        ``suggested`` (the other value if ``p_wrong >= 0.5``). Sorted by descending ``p_wrong``, then by row and label.

    Raises
    ------
    TypeError
        If ``noise`` has no class-conditional rates.
    ValueError
        If shapes, label names or values do not match.

    References
    ----------
    .. [1] C. G. Northcutt, L. Jiang and I. L. Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels",
       Journal of Artificial Intelligence Research 70, 2021.

    Examples
    --------
    >>> from ccmn import ClassConditionalNoise, find_label_issues
    >>> noise = ClassConditionalNoise([0.2, 0.2], [0.1, 0.3], label_names=["sea", "sky"])
    >>> find_label_issues([[1, 0], [0, 1]], [[0.15, 0.4], [0.7, 0.6]], noise)
       row label  given   p_wrong  suggested
    0    0   sea      1  0.619...          0
    1    1   sea      0  0.571...          1
    """
    least = check_share(min_p_wrong, "min_p_wrong")
    labels, probabilities, rates, names = _read_inputs(Y_noisy, pred_proba, noise)
    q = labels.shape[1]
    listed = []
    for start, block, error in _blocks(labels, probabilities, rates):
        index = np.flatnonzero(error >= least)  # excludes NaN (not observed)
        listed.append((index + start * q, block.ravel()[index] == 1, error.ravel()[index]))
    position, given, p = (np.concatenate(part) for part in zip(*listed))
    order = np.argsort(-p, kind="stable")
    position, given, p = position[order], given[order], p[order]
    row, label = np.divmod(position, q)
    return pd.DataFrame(
        {
            "row": row,
            # Categories store one code per issue instead of one string.
            "label": label if names is None else pd.Categorical.from_codes(label, categories=pd.Index(list(names))),
            "given": given.view(np.int8),
            "p_wrong": p,
            "suggested": (given ^ (p >= DEFAULT_MIN_P_WRONG)).view(np.int8),
        }
    )


def suggest_labels(
    Y_noisy: Labels, pred_proba: Any, noise: NoiseModel | NoiseRates, *, min_p_wrong: float = DEFAULT_MIN_P_WRONG
) -> Labels:
    """Return the given labels with every label flipped whose error probability is at least ``min_p_wrong``.

    With 0.5, each label gets its most probable value. Suggestions are meant for review. For training, use the noisy
    labels with a corrected loss: suggested labels repeat the errors of the model that made the predictions.

    Parameters
    ----------
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Given labels in {0, 1}; NaN where not observed.
    pred_proba : array, tensor or DataFrame of shape (n, q)
        Out-of-fold probabilities of the *noisy* labels, as for :func:`ccmn.find_label_issues`.
    noise : ClassConditionalNoise, PartialNoise, MissingNoise or NoiseRates
        Known or estimated noise rates.
    min_p_wrong : float, default=0.5
        Minimum error probability of flipped labels, from 0.5 to 1.

    Returns
    -------
    array, tensor, DataFrame or sparse matrix of shape (n, q)
        Suggested labels in the container and dtype of ``Y_noisy``; NaN stays NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.audit import suggest_labels
    >>> from ccmn.noise import PartialNoise
    >>> suggest_labels(np.array([[1, 1, 0]]), np.array([[0.9, 0.5, 0.5]]), PartialNoise(0.45, n_labels=3))
    array([[1, 0, 0]])
    """
    reason = "below 0.5 the given label is more probable than the other value"
    least = check_share(min_p_wrong, "min_p_wrong", DEFAULT_MIN_P_WRONG, reason)
    labels, probabilities, rates, _ = _read_inputs(Y_noisy, pred_proba, noise)
    blocks = (np.where(error >= least, 1 - given, given) for _, given, error in _blocks(labels, probabilities, rates))
    if is_sparse(Y_noisy):
        stacked = scipy.sparse.vstack([scipy.sparse.csr_array(block) for block in blocks], format="csr")
        return type(labels)(stacked.astype(Y_noisy.dtype))
    array, rewrap = unwrap(Y_noisy)
    return rewrap(np.concatenate([block.astype(array.dtype) for block in blocks]))


def p_wrong(noisy: NDArray[Any], pred_proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    r"""Return P(true label differs from the given label | x, given label), by Bayes' rule.

    .. math::
        P(y = 0 \mid \tilde y = 1, x) = \frac{\rho_{neg} (1 - \eta)}{\tilde\eta}, \qquad
        P(y = 1 \mid \tilde y = 0, x) = \frac{\rho_{pos}\, \eta}{1 - \tilde\eta}

    Here :math:`\tilde\eta = P(\tilde y = 1 \mid x)` is the probability of the *noisy* label. The probability of the
    true label is :math:`\eta = (\tilde\eta - \rho_{neg}) / r` with :math:`r = 1 - \rho_{pos} - \rho_{neg}` [1]_. With
    :math:`s = P(\tilde y = \text{given} \mid x)` and :math:`o = P(\tilde y = \text{given} \mid y = \text{other})`
    both cases are one formula:

    .. math:: \frac{o}{r} \left( \frac{o + r}{s} - 1 \right), \qquad o \le s \le o + r

    Under noise with these rates, s cannot leave this range. Predictions outside of it are clipped; the error
    probability is then 1 or 0. Labels with error probability 1 are ordered by s in the twelfth digit.

    Parameters
    ----------
    noisy : array of shape (..., q)
        Given labels in {0, 1}; NaN where not observed.
    pred_proba : array of shape (..., q)
        Out-of-fold probabilities of the noisy labels.
    rho_pos : array of shape (q,)
        False-negative rates P(noisy 0 | true 1).
    rho_neg : array of shape (q,)
        False-positive rates P(noisy 1 | true 0).

    Returns
    -------
    ndarray of float64, shape (..., q)
        Error probabilities; NaN where not observed.

    References
    ----------
    .. [1] A. K. Menon, B. van Rooyen, C. S. Ong and R. C. Williamson, "Learning from Corrupted Binary Labels via
       Class-Probability Estimation", ICML, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.audit import p_wrong
    >>> p_wrong(np.array([1, 0]), np.array([0.5, 0.5]), np.array([0.1, 0.2]), np.array([0.3, 0.0]))
    array([0.4 , 0.25])
    """
    given = noisy == 1
    signal = 1 - rho_pos - rho_neg
    p_flipped = np.where(given, rho_neg, rho_pos)
    p_given = np.where(given, pred_proba, 1 - pred_proba)
    # The lower limit avoids 0 / 0 for a value that has probability 0. Such a label counts as correct.
    clipped = np.clip(p_given, np.maximum(p_flipped, np.finfo(np.float64).tiny), p_flipped + signal)
    error = np.minimum(p_flipped / signal * ((p_flipped + signal) / clipped - 1), 1)
    result: FloatArray = error * (1 - _TIE_BREAK * p_given)
    if np.issubdtype(noisy.dtype, np.floating):
        result[np.isnan(noisy)] = np.nan
    return result


class RatesWithUncertainty(NamedTuple):
    """Noise rates of every label with their standard errors, each of shape (q,)."""

    rho_pos: FloatArray
    rho_neg: FloatArray
    se_pos: FloatArray
    se_neg: FloatArray
    label_names: tuple[str, ...] | None


def rates_with_uncertainty(noise: NoiseModel | NoiseRates) -> RatesWithUncertainty:
    """Return the rates of a noise model or of an estimation, with upper bounds replaced by their expected value.

    If rho_pos is only known to lie in [0, b], it has mean b / 2 and standard deviation b / sqrt(12) under a uniform
    distribution. Using b itself would flag far too many labels as missing. rho_neg is used without change: rows that
    are certainly negative identify it, and nearly every label has such rows.

    Examples
    --------
    >>> rates_with_uncertainty(ClassConditionalNoise([0.1], [0.2])).se_pos
    array([0.])
    """
    if isinstance(noise, NoiseRates):
        bound = np.array([kind == "upper bound" for kind in noise.kind])
        rho_pos = np.where(bound, noise.rho_pos / 2, noise.rho_pos)
        se_pos = np.where(bound, np.sqrt((noise.rho_pos**2 + 4 * noise.se_pos**2) / 12), noise.se_pos)
        return RatesWithUncertainty(rho_pos, noise.rho_neg, se_pos, noise.se_neg, noise.label_names)
    check_rates_known(noise, ClassConditionalNoise)
    assert isinstance(noise, ClassConditionalNoise)
    zero = np.zeros(noise.n_labels)
    return RatesWithUncertainty(noise.rho_pos, noise.rho_neg, zero, zero, noise.label_names)


def check_labels(Y_noisy: Labels, rates: RatesWithUncertainty) -> tuple[Any, tuple[str, ...] | None]:
    """Return labels (n, q), dense or CSR, and label names, after checking that they match the rates."""
    labels = Y_noisy.tocsr() if is_sparse(Y_noisy) else unwrap(Y_noisy)[0]
    names = label_names_of(Y_noisy)
    check_label_width(labels.shape, rates.rho_pos.size, "Y_noisy")
    check_same_labels(("Y_noisy", names), ("noise", rates.label_names))
    return labels, names or rates.label_names


def _read_inputs(
    Y_noisy: Labels, pred_proba: Any, noise: NoiseModel | NoiseRates
) -> tuple[Any, NDArray[Any], RatesWithUncertainty, tuple[str, ...] | None]:
    """Return labels, probabilities, rates and label names with matching shapes; values are checked by ``_blocks``."""
    rates = rates_with_uncertainty(noise)
    labels, names = check_labels(Y_noisy, rates)
    probabilities = unwrap(pred_proba)[0]
    check_matrix_pair(labels, probabilities, ("Y_noisy", "pred_proba"))
    check_same_labels(("Y_noisy", names), ("pred_proba", label_names_of(pred_proba)))
    return labels, probabilities, rates, names


def _blocks(
    labels: Any, pred_proba: NDArray[Any], rates: RatesWithUncertainty
) -> Iterator[tuple[int, NDArray[Any], FloatArray]]:
    """Yield blocks of rows: first row, given labels (NaN: not observed) and their error probabilities."""
    n, q = labels.shape
    size = max(1, MAX_BLOCK_ENTRIES // q)
    for start in range(0, n, size):
        rows = slice(start, start + size)
        given = labels[rows]
        given = check_label_matrix(given.toarray() if is_sparse(given) else given, "Y_noisy")
        probabilities = check_probabilities(pred_proba[rows], "pred_proba")
        yield start, given, p_wrong(given, probabilities, rates.rho_pos, rates.rho_neg)
