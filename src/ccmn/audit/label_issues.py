"""Label audit in one call, and ranked label issues from given probabilities.

Labels and probabilities are processed in blocks of rows, so that memory does not grow with the size of sparse data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit

from ccmn._containers import Labels, is_sparse, label_names_of, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_choice,
    check_count,
    check_groups,
    check_label_matrix,
    check_label_width,
    check_matrix_pair,
    check_probabilities,
    check_rates_known,
    check_same_labels,
    check_share,
)
from ccmn.audit.error_model import Term, annotator_term, fit_error_model, p_wrong, vote_term
from ccmn.estimation import NoiseRates
from ccmn.estimation.estimate import rates_of
from ccmn.estimation.evidence import read_evidence, read_trusted
from ccmn.estimation.noise_rates import NOISE_TYPES
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.vote_table import VoteTable

Noise = NoiseModel | NoiseRates
"""Type of the parameter ``noise``: known rates, or the result of ``estimate_noise``."""

DEFAULT_MIN_P_WRONG = 0.5
"""From this error probability on, the other value of the label is at least as probable as the given one."""

MAX_BLOCK_ENTRIES = 2**16
"""Maximum number of labels per block of rows. Temporary arrays of this size fit in the CPU cache."""


@dataclass(frozen=True, eq=False)
class Audit:
    """Result of :func:`ccmn.audit.audit_labels`.

    ``issues`` are those of :func:`ccmn.find_label_issues`. ``summary`` has the expected numbers of errors, the sums of
    the error probabilities of all labels: one line per label with ``label``, ``observed`` (number of observed rows),
    ``given`` (number of ones), ``false`` and ``missing``; None if error probabilities are not known. ``noise`` are the
    estimated or given rates, None if no noise was declared, and ``pred_proba`` (n, q) the out-of-fold probabilities of
    noisy labels.
    """

    issues: pd.DataFrame
    summary: pd.DataFrame | None
    noise: NoiseRates | NoiseModel | None
    pred_proba: FloatArray

    def _repr_html_(self) -> str:
        """Return the first issues and the summary as the tables of a notebook."""
        shown = self.issues.head(10).dropna(axis=1, how="all").drop(columns="suspicion")
        text = f"<p>The {len(shown)} most suspicious of {len(self.issues)} entries.</p>"
        text += str(shown.to_html(index=False, float_format="{:.2f}".format))
        if self.summary is None:
            return f"{text}<p>The list would also exist if all labels were right.</p>"
        return text + str(self.summary.to_html(index=False, float_format="{:.1f}".format))


def audit_labels(
    X: Any,
    Y_noisy: Labels,
    noise: str | Noise | None = None,
    *,
    trusted: Any = None,
    votes: Any = None,
    groups: Any = None,
    min_p_wrong: float | None = None,
    pred_proba: FloatArray | None = None,
    random_state: RandomState = 0,
) -> Audit:
    """Find wrong labels, given features and noisy labels.

    The audit computes out-of-fold probabilities of the noisy labels with the library's default model, logistic
    regressions and a random forest, and lists the labels that contradict them (:func:`ccmn.find_label_issues`).

    Parameters
    ----------
    X : array, DataFrame or sparse matrix of shape (n, d)
        Features.
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Given labels in {0, 1}; NaN where not observed.
    noise : {"both", "partial", "missing"}, noise model, NoiseRates or None, default=None
        With None, labels are only ranked. The other values declare that errors depend only on the label, so that they
        have probabilities: with known rates, or with estimated rates of labels that were added and removed ("both"),
        only added ("partial") or only removed ("missing").
    trusted : (rows, Y_true) or array of shape (n, q), default=None
        Verified rows, a random sample, as in :func:`ccmn.estimate_noise`. Rates and error probabilities use them.
    votes : array of shape (n, a, q), long table or ``VoteTable``, default=None
        Votes from which the labels were aggregated, as in :func:`ccmn.find_label_issues`.
    groups : sequence of length n, default=None
        Annotator who gave the labels of each row, as in :func:`ccmn.find_label_issues`.
    min_p_wrong : float, default=None
        Minimum error probability of listed labels, as in :func:`ccmn.find_label_issues`.
    pred_proba : array of shape (n, q), default=None
        Out-of-fold probabilities of the noisy labels, if they are known.
    random_state : int, Generator or None, default=0
        Random state of folds and forest.

    Returns
    -------
    Audit
        Issues, expected numbers of errors, noise rates and probabilities.

    Examples
    --------
    >>> from ccmn.audit import audit_labels
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=PartialNoise([0.2, 0.4]), random_state=0)
    >>> issues = audit_labels(task.X, task.Y_noisy, "partial").issues
    >>> wrong = (task.Y != task.Y_noisy)[issues.row, issues.label]
    >>> bool(wrong.mean() > 0.9)
    True
    """
    if X is None and pred_proba is None:
        raise ValueError("audit_labels requires the features X or probabilities pred_proba; got neither")
    seed = int(as_generator(random_state).integers(2**31))
    declared = check_choice(noise, "noise", NOISE_TYPES) if isinstance(noise, str) else "both"
    evidence = read_evidence(X, Y_noisy, declared, trusted if isinstance(noise, str) else None, random_state=seed)
    if isinstance(noise, str):
        noise = rates_of(evidence)
    if pred_proba is None:
        pred_proba = expit(evidence.log_odds)
    known = noise is not None or trusted is not None
    least = 0.0 if known else min_p_wrong
    issues = find_label_issues(Y_noisy, pred_proba, noise, trusted, votes=votes, groups=groups, min_p_wrong=least)
    if not known:
        return Audit(issues, None, noise, pred_proba)
    least = DEFAULT_MIN_P_WRONG if min_p_wrong is None else check_share(min_p_wrong, "min_p_wrong")
    return Audit(issues[issues.p_wrong >= least], _summary(issues, evidence.Y), noise, pred_proba)


def _summary(issues: pd.DataFrame, labels: FloatArray) -> pd.DataFrame:
    """Return the sums of the error probabilities of given and of absent labels."""
    categorical = isinstance(issues.label.dtype, pd.CategoricalDtype)
    names = issues.label.cat.categories if categorical else range(labels.shape[1])
    sums = issues.groupby(["label", "given"], observed=False).p_wrong.sum().unstack("given")
    false, missing = sums.reindex(index=names, columns=[1, 0]).fillna(0.0).to_numpy().T
    observed, given = (~np.isnan(labels)).sum(0), (labels == 1).sum(0)
    columns = {"label": names, "observed": observed, "given": given, "false": false, "missing": missing}
    return pd.DataFrame(columns)


def find_label_issues(
    Y_noisy: Labels,
    pred_proba: Any,
    noise: Noise | None = None,
    trusted: Any = None,
    *,
    votes: Any = None,
    groups: Any = None,
    min_p_wrong: float | None = None,
    top: int | None = None,
) -> pd.DataFrame:
    """List the given labels, the most suspicious first.

    Without further knowledge, errors of people cannot be told from errors of the model. The labels are then only
    ranked by the suspicion 1 - P(given label | x), the self-confidence score of confident learning [1]_, and the list
    would also exist if all labels were right. Error probabilities need one of two things:

    - ``noise``: errors depend only on the label, with these rates. ``p_wrong`` is the posterior error probability.
    - ``trusted``: about 50 verified rows or more. ``p_wrong`` is learned from them and calibrated.

    Parameters
    ----------
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Given labels in {0, 1}; NaN where not observed. Unobserved labels are not listed.
    pred_proba : array, tensor or DataFrame of shape (n, q)
        Out-of-fold probabilities P(noisy label = 1 | x) of a model trained on the *noisy* labels without noise
        correction, for example from ``cross_val_predict(..., method="predict_proba")`` or
        :func:`ccmn.cross_fit_proba`. Convert probabilities p of true labels, such as
        ``CorrectedClassifier().predict_proba``, to ``rho_neg + (1 - rho_pos - rho_neg) * p`` first.
    noise : ClassConditionalNoise, PartialNoise, MissingNoise, NoiseRates or None, default=None
        Known noise rates, or the result of ``estimate_noise``.
    trusted : (rows, Y_true) or array of shape (n, q), default=None
        Verified rows, as in :func:`ccmn.estimate_noise`. Verified labels get the error probability 0 or 1.
    votes : array of shape (n, a, q), long table or ``VoteTable``, default=None
        Votes from which the labels were aggregated, as in :func:`ccmn.infer_labels`. Labels from which many votes
        differ are more suspicious.
    groups : sequence of length n, default=None
        Annotator who gave the labels of each row. Labels of annotators who deviate often from the predictions are
        more suspicious, and so are labels that an annotator gives too often.
    min_p_wrong : float, default=None
        Minimum error probability of listed labels; 0 lists every observed label. The default is 0.5 if error
        probabilities are known. Otherwise all labels are listed.
    top : int, default=None
        Maximum number of listed labels.

    Returns
    -------
    DataFrame
        Columns ``row`` (position from 0), ``label`` (name if known, else index), ``given`` (0 or 1), ``suspicion``,
        ``p_wrong`` and ``suggested`` (the other value if the suspicion is above 0.5), by descending suspicion, then by
        row and label. The suspicion is ``p_wrong`` if error probabilities are known; otherwise ``p_wrong`` is NaN.

    Raises
    ------
    TypeError
        If ``noise`` has no class-conditional rates.
    ValueError
        If shapes, label names or values do not match, or ``min_p_wrong`` is given without error probabilities.

    References
    ----------
    .. [1] C. G. Northcutt, L. Jiang and I. L. Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels",
       Journal of Artificial Intelligence Research 70, 2021.

    Examples
    --------
    >>> from ccmn import ClassConditionalNoise, find_label_issues
    >>> noise = ClassConditionalNoise([0.2, 0.2], [0.1, 0.3], label_names=["sea", "sky"])
    >>> find_label_issues([[1, 0], [0, 1]], [[0.15, 0.4], [0.7, 0.6]], noise)
       row label  given  suspicion   p_wrong  suggested
    0    0   sea      1   0.619...  0.619...          0
    1    1   sea      0   0.571...  0.571...          1
    >>> find_label_issues([[1, 0], [0, 1]], [[0.15, 0.4], [0.7, 0.6]], top=1)
       row  label  given  suspicion  p_wrong  suggested
    0    0      0      1       0.85      NaN          0
    """
    scored = ScoredLabels(Y_noisy, pred_proba, noise, trusted, votes, groups)
    if min_p_wrong is not None:
        check_share(min_p_wrong, "min_p_wrong")
        if not scored.known:
            raise ValueError(
                "min_p_wrong requires error probabilities, which are not known: declare the noise (noise=) or pass "
                "about 50 randomly chosen verified rows (trusted=), or list the most suspicious labels with top="
            )
    least = min_p_wrong if min_p_wrong is not None else DEFAULT_MIN_P_WRONG if scored.known else 0.0
    n_listed = None if top is None else check_count(top, "top")
    q = scored.labels.shape[1]
    listed = []
    for start, block, score in scored.blocks():
        index = np.flatnonzero(score >= least)  # excludes NaN (not observed)
        if n_listed is not None:
            index = np.sort(index[np.argsort(-score.ravel()[index], kind="stable")[:n_listed]])
        listed.append((index + start * q, block.ravel()[index] == 1, score.ravel()[index]))
    position, given, suspicion = (np.concatenate(part) for part in zip(*listed))
    order = np.argsort(-suspicion, kind="stable")[:n_listed]
    position, given, suspicion = position[order], given[order], suspicion[order]
    row, label = np.divmod(position, q)
    names = scored.names
    return pd.DataFrame(
        {
            "row": row,
            # Categories store one code per issue instead of one string.
            "label": label if names is None else pd.Categorical.from_codes(label, categories=pd.Index(list(names))),
            "given": given.view(np.int8),
            "suspicion": suspicion,
            "p_wrong": suspicion if scored.known else np.full(len(suspicion), np.nan),
            "suggested": (given ^ (suspicion > DEFAULT_MIN_P_WRONG)).view(np.int8),
        }
    )


class ScoredLabels:
    """Checked labels and probabilities with their suspicions.

    The parameters are those of :func:`find_label_issues`. With ``known``, the suspicions are error probabilities.
    """

    def __init__(self, Y_noisy: Labels, pred_proba: Any, noise: Noise | None, trusted: Any, votes: Any, groups: Any):
        self._noise: Any = getattr(noise, "noise", noise)
        self.labels: Any = Y_noisy.tocsr() if is_sparse(Y_noisy) else unwrap(Y_noisy)[0]
        self._proba = unwrap(pred_proba)[0]
        if self._noise is not None:
            check_rates_known(self._noise, ClassConditionalNoise)
            check_label_width(self.labels.shape, self._noise.n_labels, "Y_noisy")
        check_matrix_pair(self.labels, self._proba, ("Y_noisy", "pred_proba"))
        given = {"Y_noisy": label_names_of(Y_noisy), "noise": getattr(self._noise, "label_names", None)}
        given["pred_proba"] = label_names_of(pred_proba)
        for first, second in itertools.combinations(given.items(), 2):
            check_same_labels(first, second)
        self.names = next((names for names in given.values() if names is not None), None)
        n, q = self.labels.shape
        self._size = max(1, MAX_BLOCK_ENTRIES // q)
        self._rows, self._wrong = np.zeros(0, dtype=np.intp), np.zeros((0, q))
        self._model: Any = None
        self._term = self._read_annotators(votes, groups)
        if trusted is not None and (verified := read_trusted(trusted, n, q)) is not None:
            order = np.argsort(verified.rows)
            self._learn(verified.rows[order], verified.Y[order])
        self.known = noise is not None or self._model is not None
        if noise is not None and self._model is None and self._term is not None:
            name = "groups" if votes is None else "votes"
            raise ValueError(f"{name} have no effect on the posterior under noise=; pass noise=None or verified rows")

    def blocks(self) -> Iterator[tuple[int, FloatArray, FloatArray]]:
        """Yield blocks of rows: first row, given labels (NaN: not observed) and their suspicions."""
        for rows, given, proba in self._parts():
            score, term = self._score(rows, given, proba)
            if self._model is not None:
                score = self._model(score, given, proba, term)
            first, last = np.searchsorted(self._rows, (rows.start, rows.stop))
            inside, wrong = self._rows[first:last] - rows.start, self._wrong[first:last]
            score[inside] = np.where(np.isnan(wrong), score[inside], wrong)
            yield rows.start, given, score

    def _parts(self) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        for start in range(0, self.labels.shape[0], self._size):
            rows = slice(start, start + self._size)
            yield rows, *self._read(rows)

    def _read(self, rows: slice | NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return given labels (NaN: not observed) and probabilities of some rows, after checking their values."""
        given = self.labels[rows]
        given = check_label_matrix(given.toarray() if is_sparse(given) else given, "Y_noisy")
        return given, check_probabilities(self._proba[rows], "pred_proba")

    def _score(
        self, rows: slice | NDArray[np.intp], given: FloatArray, proba: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return posterior or suspicion before any row is verified, and the term of annotators or votes."""
        term = np.zeros_like(given) if self._term is None else self._term(rows, given)
        if self._noise is not None:
            return p_wrong(given, proba, self._noise.rho_pos, self._noise.rho_neg), term
        suspicion = np.abs(given - proba)
        return (suspicion if self._term is None else expit(logit(suspicion) + term)), term

    def _learn(self, rows: NDArray[np.intp], true: FloatArray) -> None:
        """Fit the error model to verified rows, unless they have no observed label."""
        given, proba = self._read(rows)
        wrong = np.where(np.isnan(true) | np.isnan(given), np.nan, true != given)
        if np.isnan(wrong).all():
            return
        score, term = self._score(rows, given, proba)
        self._rows, self._wrong = rows, wrong
        # Half a row of either value is added.
        counts = sum(np.array([(part == 1).sum(0), (~np.isnan(part)).sum(0)]) for _, part, _ in self._parts())
        ones, observed = np.asarray(counts)
        self._model = fit_error_model(score, given, proba, wrong, (ones + 0.5) / (observed + 1), term)

    def _read_annotators(self, votes: Any, groups: Any) -> Term | None:
        n, q = self.labels.shape
        if groups is not None and votes is not None:
            raise ValueError("Expected groups (one per row) or votes (several per row); got both")
        if groups is not None:
            return annotator_term(check_groups(groups, n), self._parts())
        if votes is None:
            return None
        table = VoteTable.read(votes)
        if (table.shape[0], table.shape[2]) != (n, q):
            raise ValueError(f"Expected votes on {n} rows and {q} labels; got {table.shape[0]} and {table.shape[2]}")
        return vote_term(table.mean(), table.count(), self._read(slice(None))[0])
