"""audit_labels: from features and noisy labels to the labels that are probably wrong, in one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_array

from ccmn._containers import Labels, is_sparse, to_dense_array, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_choice, check_label_matrix, check_same_rows
from ccmn.audit.believed import believed_rates
from ccmn.audit.calibration import within_noise
from ccmn.audit.issues import find_label_issues
from ccmn.audit.summary import label_summary
from ccmn.estimation import NoiseRates, estimate_noise, out_of_fold_scores
from ccmn.noise import NoiseModel

SIDES = {"estimate": "both", "partial": "partial", "missing": "missing"}
"""The words for noise that is to be estimated, as ``CCMNClassifier`` takes them, and the sides they declare."""


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes
    ----------
    issues : DataFrame
        As of :func:`ccmn.find_label_issues`.
    summary : DataFrame
        As of :func:`ccmn.audit.label_summary`.
    noise : NoiseRates or NoiseModel
        The rates that it rests on, estimated or given.
    pred_proba : float64 (n, q)
        The held-out probabilities of the noisy labels that it rests on, in keeping with the rates
        (:func:`ccmn.audit.within_noise`).
    """

    issues: pd.DataFrame
    summary: pd.DataFrame
    noise: NoiseRates | NoiseModel
    pred_proba: FloatArray


def audit_labels(
    X: Any,
    Y_noisy: Labels,
    noise: str | NoiseModel | NoiseRates = "estimate",
    min_p_wrong: float = 0.5,
    random_state: RandomState = 0,
) -> Audit:
    """Audit noisy labels: held-out scores, rates where they are not known, then issues and their numbers.

    Parameters
    ----------
    X : array, DataFrame or CSR (n, d)
    Y_noisy : labels (n, q) in {0, 1}, NaN where not observed
    noise : "estimate", "partial", "missing", a noise model or NoiseRates
        "partial" and "missing" declare that labels were only added, or only lost, which makes the rates far surer.
    min_p_wrong : float
        As of :func:`ccmn.find_label_issues`.
    random_state : int, Generator or None

    Examples
    --------
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=PartialNoise([0.2, 0.4]), random_state=0)
    >>> found = audit_labels(task.X, task.Y_noisy, "partial").issues
    >>> wrong = (task.Y != task.Y_noisy)[found.row, found.label]
    >>> bool(wrong.mean() > 0.9)
    True
    """
    features = check_array(X if is_sparse(X) else unwrap(X)[0], accept_sparse="csr", dtype=[np.float64, np.float32])
    labels = check_label_matrix(to_dense_array(Y_noisy), "Y_noisy")
    check_same_rows(features, labels, ("X", "Y_noisy"))
    seed = int(as_generator(random_state).integers(2**31))
    if isinstance(noise, str):
        check_choice(noise, "noise", tuple(SIDES))
        noise = estimate_noise(features, Y_noisy, sides=SIDES[noise], random_state=seed)
    rates = believed_rates(noise)
    pred_proba = within_noise(labels, out_of_fold_scores(features, labels, seed), rates.rho_pos, rates.rho_neg)
    issues = find_label_issues(Y_noisy, pred_proba, noise, min_p_wrong)
    return Audit(issues, label_summary(Y_noisy, noise), noise, pred_proba)
