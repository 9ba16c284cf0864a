"""Input of all rate estimators: noisy labels with features, scores, trusted rows, votes or a known prevalence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from ccmn._containers import Labels, is_sparse, label_names_of, to_dense_array, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_choice,
    check_label_matrix,
    check_matrix_pair,
    check_probabilities,
    check_trusted_rows,
    name_some,
)
from ccmn.estimation.noise_rates import NOISE_TYPES, NoiseType
from ccmn.training.default_model import NoisyLabelModel, log_odds
from ccmn.vote_table import VoteTable

MIN_POSITIVES_WITHOUT_ZERO = 10
"""A label with fewer observed positives may lack an observed 0 by chance, as long as other labels have one."""


class Trusted(NamedTuple):
    """Rows whose true labels are known."""

    rows: NDArray[np.intp]
    Y: FloatArray


@dataclass(frozen=True, eq=False)
class Evidence:
    """Checked input of an estimator.

    ``Y`` (n, q) are noisy labels, NaN where not observed, ``noise_type`` their declared noise types. ``X`` (n, d) are
    features, an array or a CSR matrix, and ``pred_proba`` (n, q) out-of-fold probabilities of the noisy labels that the
    user has computed. ``prevalence`` (q,) are known prevalences of the true labels, NaN where unknown.
    """

    Y: FloatArray
    noise_type: Sequence[NoiseType]
    X: Any
    pred_proba: FloatArray | None
    trusted: Trusted | None
    votes: VoteTable | None
    prevalence: FloatArray | None
    seed: int
    names: Sequence[str] | None

    @cached_property
    def model(self) -> NoisyLabelModel:
        """Model of the noisy labels, fitted once for rates and out-of-fold probabilities."""
        return NoisyLabelModel(self.seed).fit(self.X, self.Y)

    @cached_property
    def log_odds(self) -> FloatArray:
        """Out-of-fold log-odds (n, q) of the noisy labels."""
        if self.pred_proba is None:
            return self.model.out_of_fold_log_odds(self.X)
        return log_odds(self.pred_proba)

    def subset(self, rows: NDArray[np.intp]) -> Evidence:
        """Return the evidence of some rows; trusted rows are renumbered."""
        trusted = self.trusted
        if trusted is not None:
            position = np.full(len(self.Y), -1, dtype=np.intp)
            position[rows] = np.arange(rows.size)
            kept = position[trusted.rows] >= 0
            trusted = Trusted(position[trusted.rows[kept]], trusted.Y[kept]) if kept.any() else None
        X, pred_proba = (None if values is None else values[rows] for values in (self.X, self.pred_proba))
        votes = None if self.votes is None else self.votes[rows]
        return replace(self, Y=self.Y[rows], X=X, pred_proba=pred_proba, votes=votes, trusted=trusted)


def read_evidence(
    X: Any,
    Y_noisy: Labels | None,
    noise_type: str | Sequence[str] = "both",
    trusted: Any = None,
    votes: Any = None,
    random_state: RandomState = 0,
    pred_proba: Any = None,
    prevalence: Any = None,
) -> Evidence:
    """Check the arguments of ``estimate_noise`` and return them as evidence."""
    if Y_noisy is None and votes is None:
        raise ValueError("Expected noisy labels: estimate_noise(X, Y_noisy); got Y_noisy=None")
    if X is not None and pred_proba is not None:
        raise ValueError("Expected either features X or probabilities pred_proba, not both")
    names = label_names_of(votes if Y_noisy is None else Y_noisy)
    votes = None if votes is None else VoteTable.read(votes)
    if Y_noisy is None and votes is not None:
        Y = votes.mean()
    else:
        Y = check_label_matrix(to_dense_array(Y_noisy), "Y_noisy")
    n, q = Y.shape
    if votes is not None and (votes.shape[0], votes.shape[2]) != (n, q):
        raise ValueError(f"votes must have shape ({n}, annotators, {q}) to match Y_noisy; got shape {votes.shape}")
    if X is not None:
        X = check_array(X if is_sparse(X) else unwrap(X)[0], accept_sparse="csr", dtype=[np.float64, np.float32])
        if X.shape[0] != n:
            raise ValueError(f"X and Y_noisy must have the same number of rows; got {X.shape[0]} and {n}")
    if pred_proba is not None:
        pred_proba = to_dense_array(pred_proba)
        check_matrix_pair(Y, pred_proba, ("Y_noisy", "pred_proba"))
        pred_proba = check_probabilities(pred_proba, "pred_proba")
    # The seed of a classifier is passed on as it is, so that both estimate the same rates.
    is_seed = isinstance(random_state, int) and 0 <= random_state < 2**32
    return Evidence(
        Y=Y,
        noise_type=check_noise_type(noise_type, q),
        X=X,
        pred_proba=pred_proba,
        trusted=None if trusted is None else read_trusted(trusted, n, q),
        votes=votes,
        prevalence=None if prevalence is None else check_prevalence(prevalence, q),
        seed=int(random_state if is_seed else as_generator(random_state).integers(2**31)),  # type: ignore[arg-type]
        names=names,
    )


def check_noise_type(noise_type: str | Sequence[str], q: int) -> tuple[NoiseType, ...]:
    """Return the noise type of each of q labels, from one for all or one per label."""
    declared = (noise_type,) * q if isinstance(noise_type, str) else tuple(noise_type)
    if len(declared) != q:
        raise ValueError(
            f"noise_type must be one of {', '.join(map(repr, NOISE_TYPES))}, or a sequence with one of them for each "
            f"of the {q} labels; got {len(declared)} values"
        )
    return tuple(check_choice(label_type, "noise_type", NOISE_TYPES) for label_type in declared)  # type: ignore[misc]


def read_trusted(trusted: Any, n: int, q: int) -> Trusted | None:
    """Return trusted rows of data with n rows and q labels, from a pair (rows, Y_true) or an (n, q) array."""
    rows, labels = check_trusted_rows(trusted, n)
    if not rows.size:
        return None
    Y_true = check_label_matrix(to_dense_array(labels), "the labels of trusted")
    if Y_true.shape != (rows.size, q):
        raise ValueError(f"the labels of trusted must have shape ({rows.size}, {q}); got shape {Y_true.shape}")
    return Trusted(rows, Y_true)


def check_prevalence(prevalence: Any, q: int) -> FloatArray:
    """Return the known prevalence of each of q labels, from one number for all or one per label."""
    given = np.asarray(prevalence, dtype=np.float64)
    values = np.full(q, float(given)) if given.ndim == 0 else given
    if values.shape != (q,) or not ((values >= 0) & (values <= 1) | np.isnan(values)).all():
        raise ValueError(
            f"prevalence must be a number between 0 and 1, or one for each of the {q} labels (NaN if unknown); "
            f"got {prevalence!r}"
        )
    return values


def check_zeros_observed(
    Y: Any, only_removed: NDArray[np.bool_], names: Sequence[str] | None, Y_trusted: Any = None
) -> None:
    """Raise an error if NaN stands for "not given" in labels (n, q) from which true labels were removed.

    Without an observed 0, it is unknown when a label is absent, and a classifier predicts it everywhere. The error is
    raised in two cases: the matrix contains 1 and NaN but no 0; or a label in ``only_removed`` (noise that only removes
    true labels) has at least ``MIN_POSITIVES_WITHOUT_ZERO`` observed positives, no observed 0, and NaN in rows in
    which other labels are observed. A label that is 1 wherever rows were labeled is valid. A 0 among the true labels
    of trusted rows counts as observed.
    """
    n, q = Y.shape
    if is_sparse(Y):
        ones, unknown = (np.bincount(Y.indices[which], minlength=q) for which in (Y.data == 1, np.isnan(Y.data)))
        partly_unknown = unknown
    else:
        nan = np.isnan(Y)
        ones, unknown = (Y == 1).sum(0), nan.sum(0)
        partly_unknown = (nan & ~nan.all(1, keepdims=True)).sum(0)
    without_zero = (ones > 0) & (unknown > 0) & (ones + unknown == n)
    no_zero_at_all = bool((ones + unknown == n).all())
    if Y_trusted is not None and without_zero.any():
        known = to_dense_array(Y_trusted)
        without_zero &= ~(known == 0).any(0)
        no_zero_at_all &= not (known == 0).any()
    by_chance = (partly_unknown == 0) | (ones < MIN_POSITIVES_WITHOUT_ZERO)
    labels = np.flatnonzero(without_zero if no_zero_at_all else without_zero & only_removed & ~by_chance)
    if not labels.size:
        return
    raise ValueError(
        f"Expected an observed 0 of every label; got only 1 and NaN for {name_some(labels, names, q)}, so that it is "
        "unknown when a label is absent. Write 0 for 'not given' and NaN only for 'nobody looked'."
    )
