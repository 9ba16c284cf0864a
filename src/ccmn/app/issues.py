"""Suspicious labels: one computation behind the list of an audit, its numbers of errors, and the review."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray
from ccmn.audit import find_label_issues, out_of_fold_probabilities

DEFAULT_MIN_P_WRONG = 0.5
"""From this error probability on, a label is more likely wrong than correct."""
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
    p_wrong : array of shape (n, q) or None
        Error probabilities; None if the errors are neither declared nor learned from verified rows.
    """

    given: FloatArray
    proba: FloatArray
    p_wrong: FloatArray | None

    @property
    def suspicion(self) -> FloatArray:
        """One minus the probability of the given label (n, q), NaN where not observed. It orders rows and labels."""
        return np.where(self.given == 1, 1 - self.proba, np.where(self.given == 0, self.proba, np.nan))

    @property
    def score(self) -> FloatArray:
        """What rows and labels are ordered by: error probabilities if they are known, otherwise the suspicion."""
        return self.suspicion if self.p_wrong is None else self.p_wrong

    def expected(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the expected numbers of false and of missing labels (q,), sums of error probabilities."""
        if self.p_wrong is None:
            return None
        wrong = np.nan_to_num(self.p_wrong)
        return (wrong * (self.given == 1)).sum(0), (wrong * (self.given == 0)).sum(0)

    def issues(self, names: Sequence[str], n_rows: int, min_p_wrong: float = DEFAULT_MIN_P_WRONG) -> pd.DataFrame:
        """Return the listed labels, most suspicious first.

        With error probabilities, these are all labels from ``min_p_wrong`` on. Without them, they are the labels of the
        first ``n_rows`` rows that the model does not expect, and the most suspicious label of each row.
        """
        score = np.nan_to_num(self.score, nan=-1.0)
        if self.p_wrong is None:
            worst = score.max(1)
            rows = np.argsort(-worst, kind="stable")[:n_rows]
            listed = np.zeros(score.shape, dtype=bool)
            listed[rows] = score[rows] >= np.minimum(worst[rows], DEFAULT_MIN_P_WRONG)[:, None]
            listed &= ~np.isnan(self.given)
        else:
            listed = score >= min_p_wrong
        row, column = np.nonzero(listed)
        order = np.argsort(-score[row, column], kind="stable")
        row, column = row[order], column[order]
        given = self.given[row, column].astype(np.int8)
        suspicion = self.suspicion[row, column]
        p_wrong = np.full(len(row), np.nan) if self.p_wrong is None else self.p_wrong[row, column]
        suggested = np.where(score[row, column] >= DEFAULT_MIN_P_WRONG, 1 - given, given)
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
    if not known:
        return Suspicions(given, proba, None)
    found = find_label_issues(given, proba, _without_names(noise), min_p_wrong=0, **knowledge)
    p_wrong = np.full(given.shape, np.nan)
    p_wrong[found.row.to_numpy(), found.label.to_numpy()] = found.p_wrong.to_numpy()
    return Suspicions(given, proba, p_wrong)


def _without_names(noise: Any) -> Any:
    """Return a noise model or rates without label names, so that labels are numbers."""
    if noise is None or noise.label_names is None:
        return noise
    return type(noise).from_dict({**noise.to_dict(), "label_names": None})


def predict_out_of_fold(
    X: Any, Y: Any, seed: int, on_phase: Callable[[str, int, int], None] | None = None
) -> FloatArray:
    """Return the out-of-fold probabilities of the given labels."""
    labels = to_dense_array(Y).astype(np.float64)
    return out_of_fold_probabilities(X, labels, seed, on_phase=on_phase or (lambda phase, done, total: None))


def label_sets(
    issues: pd.DataFrame, given: FloatArray, names: Sequence[str], rows: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the given and the suggested labels of some rows."""
    column = {str(name): j for j, name in enumerate(names)}
    suggested = {row: given[row].copy() for row in rows}
    for row, label, value in zip(issues.row.tolist(), issues.label.tolist(), issues.suggested.tolist()):
        if row in suggested:
            suggested[row][column[str(label)]] = value

    def present(values: Any) -> list[str]:
        return [str(name) for name, value in zip(names, values) if value == 1]

    return [{"row": int(row), "given": present(given[row]), "suggested": present(suggested[row])} for row in rows]
