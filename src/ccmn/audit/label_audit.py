"""Label audit in one call: out-of-fold probabilities, noise rates if noise is declared, and label issues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from ccmn._containers import Labels
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_choice, check_share
from ccmn.audit.label_issues import DEFAULT_MIN_P_WRONG, Noise, find_label_issues
from ccmn.estimation import NoiseRates
from ccmn.estimation.estimate import rates_of
from ccmn.estimation.evidence import read_evidence
from ccmn.estimation.noise_rates import NOISE_TYPES
from ccmn.noise import NoiseModel


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
