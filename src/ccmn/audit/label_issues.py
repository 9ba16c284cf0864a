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
    check_groups,
    check_label_matrix,
    check_label_width,
    check_matrix_pair,
    check_probabilities,
    check_rates_known,
    check_same_labels,
    check_share,
)
from ccmn.audit.error_model import (
    AnnotatorSurplus,
    ErrorScore,
    RateRange,
    fit_error_model,
    p_wrong,
    sample_rows,
    unsupervised_score,
)
from ccmn.estimation import NoiseRates
from ccmn.estimation.evidence import read_trusted
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.vote_table import VoteTable

Noise = NoiseModel | NoiseRates
"""Type of the parameter ``noise``: known rates, or the result of ``estimate_noise``."""

DEFAULT_MIN_P_WRONG = 0.5
"""From this error probability on, the other value of the label is at least as probable as the given one."""

MAX_BLOCK_ENTRIES = 2**16
"""Maximum number of labels per block of rows. Temporary arrays of this size fit in the CPU cache."""

DIVERSITY = 0.9
"""Factor by which each issue of a label lowers the rank of the next one of that label in a diverse list."""


def find_label_issues(
    Y_noisy: Labels,
    pred_proba: Any,
    noise: Noise | None = None,
    trusted: Any = None,
    min_p_wrong: float = DEFAULT_MIN_P_WRONG,
    *,
    diverse: bool = False,
    groups: Any = None,
    votes: Any = None,
) -> pd.DataFrame:
    """List the labels that are probably wrong, ranked by estimated error probability.

    The error probability depends on the out-of-fold prediction, the given value and the noise:

    - With a noise model, it is the posterior probability under these rates (:func:`ccmn.audit.p_wrong`).
    - With estimated rates or without rates, it is the posterior as far as there is evidence for class-conditional
      noise, and otherwise a function of 1 - P(given label | x), the self-confidence score of confident learning [1]_.
      In the second case it stays below 0.5: without verified rows, errors of annotators cannot be told from errors of
      the model. Use ``min_p_wrong=0`` to list the most suspicious labels nevertheless.
    - With trusted rows, it is learned from them, starting from one of the scores above. About 50 rows are enough for a
      useful model.

    Parameters
    ----------
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Given labels in {0, 1}; NaN where not observed. Unobserved labels are not listed.
    pred_proba : array, tensor or DataFrame of shape (n, q)
        Out-of-fold probabilities P(noisy label = 1 | x) of a model trained on the *noisy* labels without noise
        correction, for example from ``cross_val_predict(..., method="predict_proba")`` or
        ``ccmn.audit.out_of_fold_probabilities``. Convert probabilities p of true labels, such as
        ``CorrectedClassifier().predict_proba``, to ``rho_neg + (1 - rho_pos - rho_neg) * p`` first.
    noise : ClassConditionalNoise, PartialNoise, MissingNoise, NoiseRates or None
        Known noise rates, the result of ``estimate_noise``, or None (default) to use the labels and probabilities
        alone.
    trusted : (rows, Y_true) or array of shape (n, q), default=None
        Verified rows, as in :func:`ccmn.estimate_noise`. They need not be a random sample. Verified labels
        get the error probability 0 or 1.
    min_p_wrong : float, default=0.5
        Minimum error probability of listed labels; 0 lists every observed label.
    diverse : bool, default=False
        Whether to mix the labels: each listed issue multiplies the rank of the next issue of the same label by 0.9.
    groups : sequence of length n, default=None
        Annotator who gave the labels of each row. The error probabilities then depend on how many more labels of each
        kind the annotator gives than the features predict. Requires ``trusted``.
    votes : array of shape (n, a, q), long table or ``VoteTable``, default=None
        Votes from which the labels were aggregated, as in :func:`ccmn.infer_labels`. The error probabilities then
        depend on the share of votes that differ from the given label. Requires ``trusted``.

    Returns
    -------
    DataFrame
        Columns ``row`` (position from 0), ``label`` (name if known, else index), ``given`` (0 or 1), ``p_wrong`` and
        ``suggested`` (the other value if ``p_wrong >= 0.5``). Sorted by descending ``p_wrong``, then by row and label,
        unless ``diverse=True``.

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
    scored = score_labels(Y_noisy, pred_proba, noise, trusted, groups, votes)
    q = scored.labels.shape[1]
    listed = []
    for start, block, error in scored.blocks():
        index = np.flatnonzero(error >= least)  # excludes NaN (not observed)
        listed.append((index + start * q, block.ravel()[index] == 1, error.ravel()[index]))
    position, given, p = (np.concatenate(part) for part in zip(*listed))
    order = np.argsort(-p, kind="stable")
    if diverse:
        order = _diverse_order(order, position % q, p)
    position, given, p = position[order], given[order], p[order]
    row, label = np.divmod(position, q)
    names = scored.names
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


def _diverse_order(order: NDArray[np.intp], label: NDArray[np.int64], p: FloatArray) -> NDArray[np.intp]:
    """Return the order by p times 0.9 to the power of the number of preceding issues of the same label."""
    by_label = order[np.argsort(label[order], kind="stable")]
    first = np.flatnonzero(np.diff(label[by_label], prepend=-1))
    sizes = np.diff(np.append(first, by_label.size))
    preceding = np.empty(p.size)
    preceding[by_label] = np.arange(by_label.size) - np.repeat(first, sizes)
    discounted = np.log(np.maximum(p, np.finfo(np.float64).tiny)) + preceding * np.log(DIVERSITY)
    return order[np.argsort(-discounted[order], kind="stable")]


def suggest_labels(
    Y_noisy: Labels,
    pred_proba: Any,
    noise: Noise | None = None,
    trusted: Any = None,
    min_p_wrong: float = DEFAULT_MIN_P_WRONG,
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
    noise : ClassConditionalNoise, PartialNoise, MissingNoise, NoiseRates or None
        Known or estimated noise rates (default: None), as for :func:`ccmn.find_label_issues`.
    trusted : (rows, Y_true) or array of shape (n, q), default=None
        Verified rows, as for :func:`ccmn.find_label_issues`.
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
    scored = score_labels(Y_noisy, pred_proba, noise, trusted)
    blocks = (np.where(error >= least, 1 - given, given) for _, given, error in scored.blocks())
    if is_sparse(Y_noisy):
        stacked = scipy.sparse.vstack([scipy.sparse.csr_array(block) for block in blocks], format="csr")
        return type(scored.labels)(stacked.astype(Y_noisy.dtype))
    array, rewrap = unwrap(Y_noisy)
    return rewrap(np.concatenate([block.astype(array.dtype) for block in blocks]))


class RatesWithUncertainty(NamedTuple):
    """Noise rates of every label with their standard errors, each of shape (q,)."""

    rho_pos: FloatArray
    rho_neg: FloatArray
    se_pos: FloatArray
    se_neg: FloatArray
    label_names: tuple[str, ...] | None


def rates_with_uncertainty(noise: Noise) -> RatesWithUncertainty:
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


def check_labels(Y_noisy: Labels, rates: RatesWithUncertainty | None) -> tuple[Any, tuple[str, ...] | None]:
    """Return labels (n, q), dense or CSR, and label names, after checking that they match the rates."""
    labels = Y_noisy.tocsr() if is_sparse(Y_noisy) else unwrap(Y_noisy)[0]
    names = label_names_of(Y_noisy)
    if rates is None:
        return labels, names
    check_label_width(labels.shape, rates.rho_pos.size, "Y_noisy")
    check_same_labels(("Y_noisy", names), ("noise", rates.label_names))
    return labels, names or rates.label_names


class ScoredLabels(NamedTuple):
    """Checked labels and probabilities with the function that returns their error probabilities."""

    labels: Any
    pred_proba: NDArray[Any]
    score: ErrorScore
    names: tuple[str, ...] | None
    verified_rows: NDArray[np.intp]
    """Sorted numbers of the verified rows."""
    wrong: FloatArray
    """1 and 0 where a label of these rows is verified as wrong and as correct, NaN elsewhere."""
    surplus: AnnotatorSurplus | VoteDissent | None = None
    """Surplus of the annotators or dissent of the votes, if they are known."""

    def read(self, rows: slice | NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return given labels (NaN: not observed) and probabilities of some rows, after checking their values."""
        return read_rows(self.labels, self.pred_proba, rows)

    @property
    def block_size(self) -> int:
        """Number of rows of a block."""
        return max(1, MAX_BLOCK_ENTRIES // int(self.labels.shape[1]))

    def blocks(self) -> Iterator[tuple[int, FloatArray, FloatArray]]:
        """Yield blocks of rows: first row, given labels (NaN: not observed) and their error probabilities."""
        size = self.block_size
        for start in range(0, self.labels.shape[0], size):
            rows = slice(start, start + size)
            given, probabilities = self.read(rows)
            if self.surplus is None:
                error = self.score(given, probabilities)
            else:
                error = self.score(given, probabilities, self.surplus.rows(rows))
            first, last = np.searchsorted(self.verified_rows, (start, start + size))
            inside, known = self.verified_rows[first:last] - start, self.wrong[first:last]
            error[inside] = np.where(np.isnan(known), error[inside], known)
            yield start, given, error


def score_labels(
    Y_noisy: Labels,
    pred_proba: Any,
    noise: Noise | None,
    trusted: Any = None,
    groups: Any = None,
    votes: Any = None,
) -> ScoredLabels:
    """Check the arguments of :func:`find_label_issues` and return the labels with their score."""
    rates = None if noise is None else rates_with_uncertainty(noise)
    labels, names = check_labels(Y_noisy, rates)
    probabilities = unwrap(pred_proba)[0]
    check_matrix_pair(labels, probabilities, ("Y_noisy", "pred_proba"))
    check_same_labels(("Y_noisy", names), ("pred_proba", label_names_of(pred_proba)))
    names = names or label_names_of(pred_proba)
    n, q = labels.shape
    score = _score_without_trusted(labels, probabilities, noise, rates)
    scored = ScoredLabels(labels, probabilities, score, names, np.zeros(0, dtype=np.intp), np.zeros((0, q)))
    known = None if trusted is None else read_trusted(trusted, n, q)
    if known is None:
        for name, value in (("groups", groups), ("votes", votes)):
            if value is not None:
                raise ValueError(f"{name} have no effect without verified rows; pass trusted=(rows, Y_true) as well")
        return scored
    rows, true = known
    order = np.argsort(rows)
    rows, true = rows[order], true[order]
    given, predictions = scored.read(rows)
    wrong = np.where(np.isnan(true) | np.isnan(given), np.nan, true != given)
    if np.isnan(wrong).all():
        return scored
    surplus = _read_surplus(scored, groups, votes)
    of_rows = None if surplus is None else surplus.rows(rows)
    learned = fit_error_model(score, given, predictions, wrong, _prevalence(labels), of_rows)
    return scored._replace(score=learned, verified_rows=rows, wrong=wrong, surplus=surplus)


class VoteDissent(NamedTuple):
    """Share of votes that differ from the given label, (n, q); 0 where nobody voted."""

    dissent: FloatArray

    def rows(self, rows: slice | NDArray[np.intp]) -> FloatArray:
        """Return the dissent (m, q) of some rows."""
        return self.dissent[rows]


def _read_surplus(scored: ScoredLabels, groups: Any, votes: Any) -> AnnotatorSurplus | VoteDissent | None:
    """Return the further input of the error model: surplus of annotators, or dissent of votes."""
    n, q = scored.labels.shape
    if groups is not None and votes is not None:
        raise ValueError("Expected groups (one per row) or votes (several per row); got both")
    if votes is not None:
        table = VoteTable.read(votes)
        if (table.shape[0], table.shape[2]) != (n, q):
            raise ValueError(f"Expected votes on {n} rows and {q} labels; got {table.shape[0]} and {table.shape[2]}")
        given, _ = scored.read(slice(None))
        return VoteDissent(np.nan_to_num(np.abs(given - table.mean())))
    if groups is None:
        return None
    if len(groups) != n:
        raise ValueError(f"groups must have one entry per row ({n}); got {len(groups)}")
    parts = (slice(start, start + scored.block_size) for start in range(0, n, scored.block_size))
    return AnnotatorSurplus.of(check_groups(groups, n), ((part, *scored.read(part)) for part in parts))


def _score_without_trusted(
    labels: Any,
    pred_proba: NDArray[Any],
    noise: Noise | None,
    rates: RatesWithUncertainty | None,
) -> ErrorScore:
    """Return the posterior if the rates are known, otherwise the score with estimated rates or from the labels."""
    if rates is not None and (not isinstance(noise, NoiseRates) or set(noise.kind) == {"known"}):
        rho_pos, rho_neg = rates.rho_pos, rates.rho_neg
        return lambda given, probabilities: p_wrong(given, probabilities, rho_pos, rho_neg)
    given, probabilities = read_rows(labels, pred_proba, sample_rows(*labels.shape))
    if rates is None or not isinstance(noise, NoiseRates):
        return unsupervised_score(given, probabilities)
    bound, types = (np.array(values) for values in (noise.kind, noise.noise_type))
    spread = np.where(bound == "upper bound", rates.rho_pos / np.sqrt(3), 0.0)
    range_of_rates = RateRange(rates.rho_pos, rates.rho_neg, spread)
    return unsupervised_score(given, probabilities, range_of_rates, types == "partial", types == "missing")


def read_rows(labels: Any, pred_proba: NDArray[Any], rows: slice | NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
    """Return given labels (NaN: not observed) and probabilities of some rows, after checking their values."""
    given = labels[rows]
    given = check_label_matrix(given.toarray() if is_sparse(given) else given, "Y_noisy")
    return given, check_probabilities(pred_proba[rows], "pred_proba")


def _prevalence(labels: Any) -> FloatArray:
    """Return the share of given ones of every label, with half a row of either value added."""
    n, q = labels.shape
    if is_sparse(labels):
        unobserved = np.bincount(labels.indices[np.isnan(labels.data)], minlength=q)
        ones = np.bincount(labels.indices[labels.data == 1], minlength=q)
    else:
        ones, unobserved = (labels == 1).sum(0), np.isnan(labels.astype(np.float64)).sum(0)
    return np.asarray((ones + 0.5) / (n - unobserved + 1.0))
