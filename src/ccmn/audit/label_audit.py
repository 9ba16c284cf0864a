"""Label audit in one call: noise rates, out-of-fold probabilities, label issues and error counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
import scipy.stats
from numpy.typing import NDArray
from sklearn.utils import check_array

from ccmn._containers import Labels, is_sparse, to_dense_array, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._threads import limit_threads, solver_operations
from ccmn._validation import (
    FloatArray,
    check_choice,
    check_label_matrix,
    check_label_values,
    check_real,
    check_same_rows,
)
from ccmn.audit.label_issues import (
    Noise,
    RatesWithUncertainty,
    check_labels,
    find_label_issues,
    mean_rates,
    rates_with_uncertainty,
)
from ccmn.estimation import NOISE_TYPES, NoiseRates, ScoreNoiseRates, estimate_noise
from ccmn.estimation.out_of_fold import stratified_folds
from ccmn.noise import NoiseModel, ScoreDependentNoise
from ccmn.training.forest import MAX_LABELS, fit_forest

N_FOLDS = 10
"""Folds of the linear model. More rows for training matter more than the time of ten small eigendecompositions."""
PENALTIES = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Ridge penalties, in mean eigenvalues of the features."""
PLATT_C = 100.0
"""Inverse ridge penalty of Platt scaling, which keeps the slope of separable labels finite."""
MAX_COMPONENTS = 800
"""Components of the truncated SVD. On deu, 400 rank label errors worse (average precision .519 instead of .527)."""
MAX_DENSE_FEATURES = 1000
"""Dense features from which on a truncated SVD reduces their number."""
MAX_SVD_ROWS = 20_000
"""Rows from which the components are computed."""
MAX_FOREST_COMPONENTS = 150
"""Components of the SVD that the forest uses."""
FOREST_WEIGHTS = (0.25, 0.5)
"""Candidate weights of the forest; the one with the smaller log-loss is used."""
_MIN_PROBABILITY = 1e-6
"""Lower bound of probabilities in the log-loss."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Audit:
    """Result of :func:`ccmn.audit.audit_labels`.

    Parameters
    ----------
    issues : DataFrame
        Label issues, as returned by :func:`ccmn.find_label_issues`.
    summary : DataFrame
        Estimated numbers of false and missing labels, as returned by :func:`ccmn.audit.label_summary`.
    noise : NoiseRates or NoiseModel
        Estimated or given noise rates; the mean rates if they depend on the score.
    pred_proba : ndarray of float64, shape (n, q)
        Out-of-fold probabilities of the noisy labels.
    """

    issues: pd.DataFrame
    summary: pd.DataFrame
    noise: NoiseRates | NoiseModel
    pred_proba: FloatArray


def audit_labels(
    X: Any,
    Y_noisy: Labels,
    noise: str | Noise = "both",
    min_p_wrong: float = 0.5,
    random_state: RandomState = 0,
    *,
    trusted: Any = None,
    diverse: bool = False,
    pred_proba: FloatArray | None = None,
    groups: Any = None,
    votes: Any = None,
) -> Audit:
    """Find and count wrong labels, given features and noisy labels.

    The audit estimates the noise rates unless they are given, computes out-of-fold probabilities
    (:func:`ccmn.audit.out_of_fold_probabilities`), and returns the label issues and the estimated number of errors of
    each label.

    Parameters
    ----------
    X : array, DataFrame or sparse matrix of shape (n, d)
        Features.
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Given labels in {0, 1}; NaN where not observed.
    noise : {"both", "partial", "missing"}, noise model or estimated rates, default="both"
        Noise of the labels. With "both", both rates of every label are estimated. "partial" assumes that labels
        were only added, "missing" that labels were only removed; either assumption makes the estimated rates much
        more precise. All values of ``noise`` of :func:`ccmn.find_label_issues` are accepted.
    min_p_wrong : float, default=0.5
        Minimum error probability of listed labels, as in :func:`ccmn.find_label_issues`.
    random_state : int, Generator or None, default=0
        Random state of folds, forest and rate estimation.
    trusted : (rows, Y_true) or array of shape (n, q), default=None
        Verified rows, a random sample, as in :func:`ccmn.estimate_noise`. Rates and error probabilities use them.
    diverse : bool, default=False
        Whether to mix the labels in the list, as in :func:`ccmn.find_label_issues`.
    pred_proba : array of shape (n, q), default=None
        Out-of-fold probabilities of the noisy labels, if they are known.
    groups : sequence of length n, default=None
        Annotator who gave the labels of each row, as in :func:`ccmn.find_label_issues`. Requires ``trusted``.
    votes : array of shape (n, a, q), long table or ``VoteTable``, default=None
        Votes from which the labels were aggregated, as in :func:`ccmn.find_label_issues`. Requires ``trusted``.

    Returns
    -------
    Audit
        Issues, summary, noise rates and probabilities.

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
    features = check_array(X if is_sparse(X) else unwrap(X)[0], accept_sparse="csr", dtype=[np.float64, np.float32])
    labels = check_label_matrix(to_dense_array(Y_noisy), "Y_noisy")
    check_same_rows(features, labels, ("X", "Y_noisy"))
    seed = int(as_generator(random_state).integers(2**31))
    if isinstance(noise, str):
        check_choice(noise, "noise", NOISE_TYPES)
        noise_type = noise
        noise = estimate_noise(features, Y_noisy, noise_type=noise_type, trusted=trusted, random_state=seed)
    if pred_proba is None:
        pred_proba = out_of_fold_probabilities(features, labels, seed)
    issues = find_label_issues(
        Y_noisy, pred_proba, noise, trusted, min_p_wrong, diverse=diverse, groups=groups, votes=votes
    )
    if isinstance(noise, (ScoreDependentNoise, ScoreNoiseRates)):
        noise = mean_rates(noise, pred_proba)
    return Audit(issues, label_summary(Y_noisy, noise), noise, pred_proba)


def out_of_fold_probabilities(
    X: Any,
    Y_noisy: FloatArray,
    random_state: RandomState = 0,
    *,
    on_phase: Callable[[str, int, int], None] = lambda phase, done, total: None,
) -> FloatArray:
    """Return out-of-fold probabilities of the noisy labels from a linear model and a random forest.

    The linear model is ridge regression on standardized features, or on 800 components of a truncated SVD if the
    features are sparse. Ten folds give held-out scores; each label uses the penalty with the smallest squared error,
    and Platt scaling [1]_ converts the scores to probabilities. The forest [2]_ contributes its out-of-bag predictions
    with a weight of 1/4 or 1/2, whichever has the smaller log-loss. It is omitted for more than 100 labels.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        Features.
    Y_noisy : array of shape (n, q)
        Noisy labels in {0, 1}; NaN where not observed.
    random_state : int, Generator or None, default=0
        Random state of SVD, folds and forest.
    on_phase : callable, optional
        Progress callback: called with "folds" or "trees", the number of finished ones and the number of all.

    Returns
    -------
    ndarray of float64, shape (n, q)
        P(noisy label = 1 | x) by models that were not trained on the row.

    References
    ----------
    .. [1] J. C. Platt, "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood
       Methods", in Advances in Large Margin Classifiers, MIT Press, 1999.
    .. [2] L. Breiman, "Random Forests", Machine Learning 45, 2001.

    Examples
    --------
    >>> from ccmn.audit import out_of_fold_probabilities
    >>> from ccmn.data import make_noisy_multilabel
    >>> task = make_noisy_multilabel(200, 5, 2, random_state=0)
    >>> out_of_fold_probabilities(task.X, task.Y_noisy.astype(float)).shape
    (200, 2)
    """
    X, Y_noisy = X if is_sparse(X) else to_dense_array(X), to_dense_array(Y_noisy)
    n, q = Y_noisy.shape
    if n < 2:
        return np.full((n, q), 0.5)
    seed = int(as_generator(random_state).integers(2**31))
    reduce = is_sparse(X) or X.shape[1] > MAX_DENSE_FEATURES
    features = _components(X, seed) if reduce else _standardized(X)
    with limit_threads(solver_operations(features)):
        linear = _linear_probabilities(features, Y_noisy, seed, partial(on_phase, "folds"))
    if q > MAX_LABELS:
        return linear
    inputs = features[:, :MAX_FOREST_COMPONENTS] if reduce else features
    _, forest = fit_forest(inputs, Y_noisy, random_state=seed, on_tree=partial(on_phase, "trees"))
    candidates = [(1 - weight) * linear + weight * forest for weight in FOREST_WEIGHTS]
    return min(candidates, key=lambda probabilities: _log_loss(Y_noisy, probabilities))


def _components(X: Any, seed: int) -> FloatArray:
    """Return the components of a truncated SVD.

    They keep their variances: the components of a TF-IDF matrix with small variances contain little information.
    """
    from sklearn.decomposition import TruncatedSVD

    svd = TruncatedSVD(max(1, min(MAX_COMPONENTS, min(X.shape) - 1)), random_state=seed)
    sample = np.random.default_rng(seed).permutation(X.shape[0])[:MAX_SVD_ROWS]
    with limit_threads(len(sample) * svd.n_components**2):
        return np.asarray(svd.fit(X[np.sort(sample)]).transform(X), dtype=np.float64)


def _standardized(X: FloatArray) -> FloatArray:
    """Return features with mean 0 and variance 1; constant features become 0."""
    centered = np.asarray(X - X.mean(0), dtype=np.float64)
    deviation = centered.std(0)
    return centered / np.where(deviation > 0, deviation, 1)


def _linear_probabilities(X: FloatArray, Y: FloatArray, seed: int, on_fold: Callable[[int, int], None]) -> FloatArray:
    """Return held-out probabilities of ridge regressions with Platt scaling."""
    from sklearn.linear_model import LogisticRegression

    observed = ~np.isnan(Y)
    n_ones, count = np.where(observed, Y, 0).sum(0), observed.sum(0)
    targets = np.where(observed, Y, n_ones / np.maximum(count, 1))
    scores = np.empty((len(PENALTIES), *Y.shape))
    folds = stratified_folds(Y, min(N_FOLDS, len(Y)), np.random.default_rng(seed))
    for number, held_out in enumerate(folds):
        kept = np.setdiff1d(np.arange(len(Y)), held_out)
        mean, target_mean = X[kept].mean(0), targets[kept].mean(0)
        centered = X[kept] - mean
        eigenvalues, vectors = np.linalg.eigh(centered.T @ centered)
        projected = vectors.T @ (centered.T @ (targets[kept] - target_mean))
        rotated = (X[held_out] - mean) @ vectors
        for i, penalty in enumerate(PENALTIES):
            shrinkage = np.maximum(eigenvalues, 0) + penalty * max(eigenvalues.mean(), np.finfo(np.float64).tiny)
            scores[i, held_out] = target_mean + rotated @ (projected / shrinkage[:, None])
        on_fold(number + 1, len(folds))
    best = np.where(observed, (scores - targets) ** 2, 0).sum(1).argmin(0)
    chosen = np.take_along_axis(scores, best[None, None], 0)[0]
    result = np.repeat(((n_ones + 0.5) / (count + 1))[None], len(Y), axis=0)
    for j in np.flatnonzero((n_ones > 0) & (n_ones < count)):
        values = ((chosen[:, j] - chosen[:, j].mean()) / (chosen[:, j].std() + np.finfo(np.float32).tiny))[:, None]
        model = LogisticRegression(C=PLATT_C).fit(values[observed[:, j]], Y[observed[:, j], j])
        if model.coef_[0, 0] > 0:  # otherwise the features do not predict the label
            result[:, j] = model.predict_proba(values)[:, 1]
    return result


def _log_loss(Y: FloatArray, probabilities: FloatArray) -> float:
    """Return the mean logistic loss of the observed labels."""
    p_given = np.where(Y == 1, probabilities, 1 - probabilities)[~np.isnan(Y)]
    return float(-np.log(np.maximum(p_given, _MIN_PROBABILITY)).mean())


def label_summary(Y_noisy: Labels, noise: NoiseModel | NoiseRates, level: float = 0.9) -> pd.DataFrame:
    r"""Estimate for each label how many given labels are false and how many true labels are missing.

    No model is needed. A label with n observed rows, k of them 1, has :math:`n_1 = (k - \rho_{neg} n) / r` true
    positives. The estimates are

    .. math:: \text{false} = \rho_{neg} (n - n_1), \qquad \text{missing} = \rho_{pos}\, n_1

    Both are unbiased for the numbers of flips F and M as long as :math:`0 \le n_1 \le n`. The variance of ``false``
    follows from ``false - F = -(1 + rho_neg / r) (F - E F) + (rho_neg / r) (M - E M)``, and the variance
    of ``missing`` follows in the same manner. The uncertainty of estimated rates is added by the delta method. Rates of
    a noise model are treated as known.

    Parameters
    ----------
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Given labels in {0, 1}; NaN where not observed.
    noise : ClassConditionalNoise, PartialNoise, MissingNoise or NoiseRates
        Known or estimated noise rates.
    level : float, default=0.9
        Nominal coverage of the confidence intervals.

    Returns
    -------
    DataFrame
        One line per label: ``label``, ``observed`` (number of observed rows), ``given`` (number of ones), ``false`` and
        ``missing``, each with the limits of its interval in ``_low`` and ``_high``.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.audit import label_summary
    >>> from ccmn.noise import PartialNoise
    >>> Y = np.repeat([[1], [0]], [40, 60], axis=0)
    >>> label_summary(Y, PartialNoise([0.25])).round(1).to_dict("records")
    [{'label': 0, 'observed': 100, 'given': 40, 'false': 20.0, 'false_low': 11.5, 'false_high': 28.5,
      'missing': 0.0, 'missing_low': 0.0, 'missing_high': 0.0}]
    """
    z = float(scipy.stats.norm.ppf((1 + check_real(level, "level", 0, 1)) / 2))
    rates = rates_with_uncertainty(noise)
    observed, given, names = _count_labels(Y_noisy, rates)
    (false, false_se), (missing, missing_se) = estimate_flips(observed, given, rates)
    table = {"label": range(observed.size) if names is None else list(names), "observed": observed, "given": given}
    for name, value, se, most in (
        ("false", false, false_se, given),
        ("missing", missing, missing_se, observed - given),
    ):
        table[name] = np.minimum(value, most)
        table[f"{name}_low"] = np.clip(value - z * se, 0, most)
        table[f"{name}_high"] = np.clip(value + z * se, 0, most)
    return pd.DataFrame(table)


def estimate_flips(
    observed: IntArray, given: IntArray, rates: RatesWithUncertainty
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Return the numbers of false and of missing labels, each with its standard error."""
    rho_pos, rho_neg = rates.rho_pos, rates.rho_neg
    signal = 1 - rho_pos - rho_neg
    ones = np.clip((given - rho_neg * observed) / signal, 0, observed)
    zeros = observed - ones
    # Variances of the numbers of added and of removed labels, including the uncertainty of the rates.
    added = rho_neg * (1 - rho_neg) * zeros + (zeros * rates.se_neg) ** 2
    removed = rho_pos * (1 - rho_pos) * ones + (ones * rates.se_pos) ** 2
    false_factor, missing_factor = rho_neg / signal, rho_pos / signal
    false_se = np.sqrt((1 + false_factor) ** 2 * added + false_factor**2 * removed)
    missing_se = np.sqrt((1 + missing_factor) ** 2 * removed + missing_factor**2 * added)
    return (rho_neg * zeros, false_se), (rho_pos * ones, missing_se)


def _count_labels(Y_noisy: Labels, rates: RatesWithUncertainty) -> tuple[IntArray, IntArray, tuple[str, ...] | None]:
    """Return the numbers of observed rows and of ones of every label, and the label names."""
    labels, names = check_labels(Y_noisy, rates)
    if is_sparse(labels):
        check_label_values(labels.data, "Y_noisy")
        unobserved = np.bincount(labels.indices[np.isnan(labels.data)], minlength=labels.shape[1])
        ones = np.bincount(labels.indices[labels.data == 1], minlength=labels.shape[1])
        return labels.shape[0] - unobserved, ones, names
    checked = check_label_matrix(labels, "Y_noisy")
    return (~np.isnan(checked)).sum(0), (checked == 1).sum(0), names
