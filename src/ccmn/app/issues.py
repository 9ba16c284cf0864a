"""Suspicious labels: one computation behind the list of an audit, its numbers of errors, and the review."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from ccmn._containers import to_dense_array
from ccmn._messages import OnProgress
from ccmn._random import as_generator
from ccmn._validation import FloatArray
from ccmn.audit.label_issues import DEFAULT_MIN_P_WRONG, find_label_issues
from ccmn.data.dataset import MultiLabelData
from ccmn.data.trusted_files import Verified
from ccmn.estimation.estimate import rates_of
from ccmn.estimation.evidence import Evidence, read_evidence
from ccmn.training.default_model import NoisyLabelModel
from ccmn.votes import InferredLabels, next_votes

N_ROWS_FOR_PROBABILITIES = 50
"""About this number of verified random rows gives useful error probabilities."""
RANKING_NOTE = (
    "The rows are ordered by how much their labels contradict the predictions of a model. This list would also exist "
    "if all labels were right: without verified rows, errors of people cannot be told from errors of the model. About "
    f"{N_ROWS_FOR_PROBABILITIES} randomly chosen rows that a person verifies give probabilities (ccmn review)."
)
"""What a list without error probabilities means."""


@dataclass(frozen=True, eq=False)
class Suspicions:
    """How suspicious the given labels are.

    Parameters
    ----------
    given : array of shape (n, q)
        Given labels, NaN where not observed.
    proba : array of shape (n, q)
        Out-of-fold probabilities of the given labels.
    score : array of shape (n, q)
        Suspicions, which order rows and labels, NaN where not observed: error probabilities if they are known.
    known : bool
        Whether the errors are declared or learned from verified rows, so that the suspicions are error probabilities.
    """

    given: FloatArray
    proba: FloatArray
    score: FloatArray
    known: bool
    review_order: NDArray[np.intp] | None = None
    """Rows in the order of a review, if that is not the order of suspicion."""

    @cached_property
    def worst(self) -> FloatArray:
        """Score of the most suspicious label of each row; 0 if no label of the row is observed."""
        worst: FloatArray = np.nan_to_num(self.score).max(1)
        return worst

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Rows in the order of a review: by default, the most suspicious rows first."""
        return np.argsort(-self.worst, kind="stable") if self.review_order is None else self.review_order

    @cached_property
    def rank(self) -> NDArray[np.intp]:
        """Rank of each row in ``order``, from 1."""
        rank = np.empty(len(self.order), dtype=np.intp)
        rank[self.order] = np.arange(1, len(rank) + 1)
        return rank

    def expected(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the expected numbers of false and of missing labels (q,), sums of error probabilities."""
        if not self.known:
            return None
        wrong = np.nan_to_num(self.score)
        return (wrong * (self.given == 1)).sum(0), (wrong * (self.given == 0)).sum(0)

    def issues(self, names: Sequence[str], n_rows: int, min_p_wrong: float = DEFAULT_MIN_P_WRONG) -> pd.DataFrame:
        """Return the listed labels, most suspicious first.

        With error probabilities, these are all labels from ``min_p_wrong`` on. Without them, they are the labels of the
        first ``n_rows`` rows that the model does not expect, and the most suspicious label of each row.
        """
        score = np.nan_to_num(self.score, nan=-1.0)
        listed = score >= min_p_wrong
        if not self.known:
            expected = score >= np.minimum(score.max(1, keepdims=True), DEFAULT_MIN_P_WRONG)
            listed = expected & (self.rank <= n_rows)[:, None] & ~np.isnan(self.given)
        row, column = np.nonzero(listed)
        order = np.argsort(-score[row, column], kind="stable")
        row, column = row[order], column[order]
        given = self.given[row, column].astype(np.int8)
        suspicion = score[row, column]
        p_wrong = suspicion if self.known else np.full(len(row), np.nan)
        suggested = np.where(suspicion > DEFAULT_MIN_P_WRONG, 1 - given, given)
        label = np.array([str(name) for name in names], dtype=object)[column]
        columns = {"row": row, "label": label, "given": given, "suspicion": suspicion, "p_wrong": p_wrong}
        return pd.DataFrame({**columns, "suggested": suggested})


def find_suspicions(Y: Any, proba: FloatArray, noise: Any, *, known: bool, **knowledge: Any) -> Suspicions:
    """Return how suspicious the given labels are.

    Parameters
    ----------
    Y : array or DataFrame of shape (n, q)
        Given labels.
    proba : array of shape (n, q)
        Out-of-fold probabilities of the given labels.
    noise : noise model, NoiseRates or None
        Noise of the labels.
    known : bool
        Whether error probabilities are known: the noise is declared, or there are verified rows.
    **knowledge
        Further arguments of :func:`ccmn.find_label_issues`: verified rows, annotators and votes.

    Returns
    -------
    Suspicions
        Suspicions and, if they are known, error probabilities.
    """
    given = to_dense_array(Y).astype(np.float64)
    found = find_label_issues(given, proba, noise if known else None, min_p_wrong=0.0 if known else None, **knowledge)
    column = found.label.cat.codes if isinstance(found.label.dtype, pd.CategoricalDtype) else found.label
    score = np.full(given.shape, np.nan)
    score[found.row.to_numpy(), column.to_numpy(int)] = found.suspicion.to_numpy()
    return Suspicions(given, proba, score, known)


def suspicions_of_votes(given: Any, inferred: InferredLabels) -> Suspicions:
    """Return how suspicious the majority of votes is; rows are ordered by the expected gain of another vote."""
    wrong = np.where(np.isnan(given), np.nan, np.where(given == 1, 1 - inferred.proba, inferred.proba))
    voted = next_votes(inferred, given.size).row.drop_duplicates().to_numpy(np.intp)
    order = np.append(voted, np.setdiff1d(np.arange(len(given)), voted))
    return Suspicions(np.asarray(given, dtype=np.float64), inferred.proba, wrong, True, order)


def predict_out_of_fold(X: Any, Y: Any, random_state: int) -> FloatArray:
    """Return the out-of-fold probabilities of the given labels."""
    seed = int(as_generator(random_state).integers(2**31))  # as in audit_labels
    model = NoisyLabelModel(seed).fit(X, to_dense_array(Y).astype(np.float64))
    return np.asarray(expit(model.out_of_fold_log_odds(X)))


def evidence_of(data: MultiLabelData, noise_type: str, verified: Verified | None, random_state: int) -> Evidence:
    """Return the votes, or the features with the verified rows of a random sample, as evidence of the rates."""
    random = None if verified is None or not verified[2].any() else verified[2]
    sample = None if verified is None or random is None else (verified[0][random], verified[1][random])
    seed = int(as_generator(random_state).integers(2**31))
    X = data.X if data.d or data.votes is None else None
    evidence = read_evidence(X, data.Y, noise_type, sample, data.votes, seed)
    return replace(evidence, names=data.label_names and tuple(data.label_names))


def audit_data(
    data: MultiLabelData,
    noise: Any,
    verified: Verified | None,
    groups: Sequence[str] | None,
    random_state: int,
    on_progress: OnProgress,
) -> tuple[Suspicions, Any]:
    """Audit the labels of data that were read from a file.

    Parameters
    ----------
    data : MultiLabelData
        Data with features.
    noise : {"both", "partial", "missing"}, noise model, NoiseRates or None
        Declared errors; None if nothing is declared.
    verified : Verified or None
        Verified rows.
    groups : sequence of str or None
        Source of the labels of each row.
    random_state : int
        Random seed.
    on_progress : callable
        Called at the start of each phase.

    Returns
    -------
    Suspicions
        How suspicious the given labels are.
    noise model, NoiseRates or None
        Rates; None if error probabilities are not known.
    """
    known, rates = noise is not None or verified is not None, noise
    evidence = evidence_of(data, noise if isinstance(noise, str) else "both", verified, random_state)
    if known and (noise is None or isinstance(noise, str)):
        on_progress("noise rates", 0, 2)
        rates = rates_of(evidence)
    on_progress("out-of-fold probabilities", 1, 2)
    proba = expit(evidence.log_odds)
    knowledge = {
        "trusted": None if verified is None else verified[:2],
        "groups": groups,
        "votes": None if noise is not None and verified is None else data.votes,
    }
    return find_suspicions(data.Y, proba, None if noise is None else rates, known=known, **knowledge), rates


def duplicates_note(repeated: int, n: int) -> str:
    """Return a sentence about the rows that repeat the features of an earlier row; empty if there are none."""
    if not repeated:
        return ""
    return (
        f"{repeated:,} of {n:,} rows repeat{'s' if repeated == 1 else ''} an earlier row. Repeated rows in training "
        "and test sets make models look better than they are, and intervals too narrow."
    )


def named_labels(data: MultiLabelData) -> Any:
    """Return the labels as a DataFrame if their names are known."""
    if data.label_names is None:
        return data.Y
    return pd.DataFrame(to_dense_array(data.Y), columns=list(data.label_names))


def label_sets(
    issues: pd.DataFrame, given: FloatArray, names: Sequence[str], rows: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the given and the suggested labels of some rows."""
    column = {str(name): j for j, name in enumerate(names)}
    suggested = given.copy()
    suggested[issues.row, [column[label] for label in issues.label]] = issues.suggested
    sets = {"given": given, "suggested": suggested}
    return [
        {"row": row, **{kind: [name for name, j in column.items() if Y[row, j] == 1] for kind, Y in sets.items()}}
        for row in rows
    ]
