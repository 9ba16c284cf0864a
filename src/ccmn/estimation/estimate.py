"""Estimation of noise rates and checks of the noise: the public functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from ccmn._containers import Labels
from ccmn._messages import warn
from ccmn._random import RandomState
from ccmn._validation import FloatArray, check_groups, name_some
from ccmn.estimation.dawid_skene import dawid_skene
from ccmn.estimation.diagnosis import Diagnosis, diagnose
from ccmn.estimation.evidence import Evidence, check_zeros_observed, read_evidence
from ccmn.estimation.likelihood import label_surfaces
from ccmn.estimation.noise_rates import (
    MAX_IDENTIFIED_WIDTH,
    Flag,
    GroupRates,
    NoiseRates,
    flag_labels,
    rates_from_posterior,
)
from ccmn.estimation.posterior import MIN_ROWS, Flips, RatePosterior, count_flips, rate_posterior
from ccmn.training.default_model import NoisyLabelModel

MIN_EXPECTED_POSITIVES = 10
"""A group that lacks a label although this number of positives is expected is flagged (probability below 0.0001)."""


@overload
def estimate_noise(
    X: Any = ...,
    Y_noisy: Labels | None = ...,
    *,
    noise_type: str | Sequence[str] = ...,
    trusted: Any = ...,
    votes: Any = ...,
    pred_proba: Any = ...,
    prevalence: Any = ...,
    groups: None = ...,
    random_state: RandomState = ...,
) -> NoiseRates: ...


@overload
def estimate_noise(
    X: Any = ...,
    Y_noisy: Labels | None = ...,
    *,
    noise_type: str | Sequence[str] = ...,
    trusted: Any = ...,
    votes: Any = ...,
    pred_proba: Any = ...,
    prevalence: Any = ...,
    groups: Sequence[Any],
    random_state: RandomState = ...,
) -> GroupRates: ...


def estimate_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    *,
    noise_type: str | Sequence[str] = "both",
    trusted: Any = None,
    votes: Any = None,
    pred_proba: Any = None,
    prevalence: Any = None,
    groups: Sequence[Any] | None = None,
    random_state: RandomState = 0,
) -> NoiseRates | GroupRates:
    r"""Estimate the noise rates of every label from noisy labels and further evidence.

    The default model of noisy labels gives out-of-fold log-odds f. The likelihood of

    .. math:: P(\tilde y = 1 \mid x) = \rho_{neg} + (1 - \rho_{pos} - \rho_{neg})\, \sigma(a f(x) + b)

    and a prior that all labels share give the posterior distribution of the rates, whose means are returned. Trusted
    rows multiply the likelihood by that of their flips. With votes, the rates are those of the mean vote, from the
    model of Dawid and Skene [1]_.

    Declare ``noise_type`` if labels are only added or only removed: this makes the rates much easier to estimate. For
    noise of both types, a few dozen trusted rows contribute more than any number of unverified ones.

    Parameters
    ----------
    X : array, DataFrame or CSR matrix of shape (n, d), default=None
        Features, to which the model of the noisy labels is fitted.
    Y_noisy : labels of shape (n, q), default=None
        Noisy labels in {0, 1}, NaN where not observed. May be omitted if ``votes`` is given; the labels are then
        the mean votes.
    noise_type : {"both", "partial", "missing"} or sequence of these, default="both"
        Noise type of all labels, or of each label. "partial": labels were only added (candidate sets, rho_pos = 0).
        "missing": labels were only removed (rho_neg = 0). "both": labels may have been added and removed.
    trusted : (rows, Y_true) or array of shape (n, q), default=None
        Verified rows: their indices and true labels, or an array of the true labels with NaN where not verified.
        The rows should be a random sample.
    votes : array of shape (n, a, q), long table or sparse votes, default=None
        Votes of a annotators, NaN where an annotator did not vote; all forms of :func:`ccmn.infer_labels`.
    pred_proba : array of shape (n, q), default=None
        Out-of-fold probabilities of the noisy labels from another model, instead of ``X``. Do not pass predictions for
        training rows of that model: it reproduces their noise. Features give better rates.
    prevalence : float or array of shape (q,), default=None
        Known prevalences: shares of samples whose true label is 1. NaN where unknown.
    groups : sequence of n hashable values, default=None
        Source of every row (annotator, site, import batch). The rates of each group are estimated separately. Groups
        with fewer than 100 rows get the rates of all rows.
    random_state : int, Generator or None, default=0
        Seed of folds and of the random forest.

    Returns
    -------
    NoiseRates or GroupRates
        The rates; with ``groups``, those of every group. Labels with fewer than 100 rows and without trusted rows get
        rates of zero, an interval of [0, 1] and the flag "few_rows".

    Raises
    ------
    ValueError
        If there are no noisy labels, or neither features nor other evidence.

    References
    ----------
    .. [1] A. P. Dawid and A. M. Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm",
       Applied Statistics 28(1), 1979.

    Examples
    --------
    >>> from ccmn import PartialNoise, estimate_noise
    >>> from ccmn.data import make_noisy_multilabel
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=PartialNoise([0.2, 0.4]), random_state=0)
    >>> rates = estimate_noise(task.X, task.Y_noisy, noise_type="partial")
    >>> bool(np.abs(rates.rho_neg - [0.2, 0.4]).max() < 0.1)
    True
    """
    evidence = read_evidence(X, Y_noisy, noise_type, trusted, votes, random_state, pred_proba, prevalence)
    if groups is None:
        return rates_of(evidence)
    _check_zeros(evidence)
    return _estimate_groups(evidence, groups)


def rates_of(evidence: Evidence) -> NoiseRates:
    """Return the rates of all rows; warn about those that are unknown or contradict the declared noise type."""
    _check_zeros(evidence)
    rates = _estimate(evidence)
    n = int((rates.n_pos + rates.n_neg).max(initial=0))
    if n < MIN_ROWS and len(rates.labels_with("few_rows")) == rates.n_labels:
        warn(
            f"n_samples={n} is below the minimum of {MIN_ROWS}: noise rates are not estimated and labels are used "
            "without noise correction. Pass a noise model or trusted rows to correct them."
        )
    wide = rates.labels_with("wide_interval")
    if wide:
        warn(
            f"Noise rates of {name_some(wide, rates.label_names, rates.n_labels)} are poorly identified (90 % interval "
            f"wider than {MAX_IDENTIFIED_WIDTH:g}). Declare noise_type='partial' or 'missing' if only one kind of "
            "error occurs, or pass a few dozen rows with true labels, drawn at random, as trusted=(rows, Y_true)."
        )
    contradicted = rates.labels_with("noise_type_contradicted")
    if contradicted:
        warn(
            f"Trusted rows contradict the declared noise type of "
            f"{name_some(contradicted, rates.label_names, rates.n_labels)}. Use noise_type='both' for these labels."
        )
    return rates


def _check_zeros(evidence: Evidence) -> None:
    types = np.array(evidence.noise_type)
    if evidence.votes is None and (types != "partial").any():
        known = None if evidence.trusted is None else evidence.trusted.Y
        check_zeros_observed(evidence.Y, types == "missing", evidence.names, known)


def _estimate(evidence: Evidence) -> NoiseRates:
    Y, types, trusted = evidence.Y, evidence.noise_type, evidence.trusted
    if evidence.votes is not None:
        return dawid_skene(evidence)
    flips = None if trusted is None else count_flips(Y[trusted.rows], trusted.Y)
    if evidence.X is not None:
        posterior = model_posterior(evidence.model, Y, types, flips, evidence.prevalence)
        repeated = evidence.model.repeated_share_
        return rates_from_posterior(posterior, Y, types, evidence.names, flips, repeated=repeated)
    if evidence.pred_proba is None and flips is None and evidence.prevalence is None:
        raise ValueError(
            "Expected features X, or out-of-fold probabilities of the noisy labels pred_proba, or trusted rows; got "
            "none of them"
        )
    f = np.zeros(Y.shape) if evidence.pred_proba is None else evidence.log_odds
    posterior = rate_posterior(label_surfaces(f, Y), types, flips, evidence.prevalence)
    return rates_from_posterior(posterior, Y, types, evidence.names, flips, probabilities_only=True)


def model_posterior(
    model: NoisyLabelModel,
    Y: FloatArray,
    noise_type: str | Sequence[str],
    flips: Flips | None = None,
    prevalence: FloatArray | None = None,
) -> RatePosterior:
    """Return the posterior of the rates from the out-of-fold predictions of a model of the noisy labels Y."""
    o = model.out_of_fold_
    surfaces = label_surfaces(o.log_odds, Y[o.rows], o.features, o.sample_weight, o.folds, model.settings)
    return rate_posterior(surfaces, noise_type, flips, prevalence, model.settings)


def diagnose_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    trusted: Any = None,
    random_state: RandomState = 0,
    *,
    pred_proba: Any = None,
) -> Diagnosis:
    """Check whether the noise is class-conditional, that is, whether flips are independent of the features.

    With trusted rows, the function measures how well the features predict which labels were flipped, separately for
    true labels 1 and 0.
    It also searches for confused labels, which requires 500 rows with all labels observed.

    Parameters
    ----------
    X : array, DataFrame or CSR matrix of shape (n, d), default=None
        Features.
    Y_noisy : labels of shape (n, q)
        Noisy labels in {0, 1}, NaN where not observed.
    trusted : (rows, Y_true) or array of shape (n, q), default=None
        Verified rows, as in :func:`ccmn.estimate_noise`.
    random_state : int, Generator or None, default=0
        Seed of cross-validation.
    pred_proba : array of shape (n, q), default=None
        Out-of-fold probabilities of the noisy labels, instead of ``X``.

    Returns
    -------
    Diagnosis
        AUC values and flags.

    Raises
    ------
    ValueError
        If neither ``X`` nor ``pred_proba`` is given.

    Examples
    --------
    >>> from ccmn import PartialNoise, diagnose_noise
    >>> from ccmn.data import make_noisy_multilabel
    >>> task = make_noisy_multilabel(600, 5, 2, noise=PartialNoise([0.2, 0.4]), random_state=0)
    >>> found = diagnose_noise(task.X, task.Y_noisy, trusted=(range(300), task.Y[:300]))
    >>> bool(0.4 < found.pooled.value < 0.6), found.flags
    (True, ())
    """
    if X is None and pred_proba is None:
        raise ValueError("diagnose_noise requires the features X or probabilities pred_proba; got neither")
    return diagnose(read_evidence(X, Y_noisy, trusted=trusted, random_state=random_state, pred_proba=pred_proba))


def _estimate_groups(evidence: Evidence, groups: Sequence[Any]) -> GroupRates:
    """Estimate each group from its own rows; small groups share one estimate from all rows."""
    index = check_groups(groups, len(evidence.Y))
    result: dict[Any, NoiseRates] = {}
    shared: NoiseRates | None = None
    for number, group in enumerate(dict.fromkeys(groups)):
        rows = np.flatnonzero(index == number)
        if rows.size >= MIN_ROWS:
            rates = _estimate(evidence.subset(rows))
        else:
            shared = shared or _estimate(evidence)
            note = (
                f"The group has {rows.size} rows, fewer than {MIN_ROWS}, and gets the rates of all rows. Merge it with "
                "a similar group or collect more rows."
            )
            rates = replace(shared, flags=(*shared.flags, Flag("few_rows", note)))
        result[group.item() if isinstance(group, np.generic) else group] = _flag_unused(
            rates, evidence.Y[rows], np.delete(evidence.Y, rows, 0)
        )
    return GroupRates(result)


def _flag_unused(rates: NoiseRates, Y: FloatArray, Y_others: FloatArray) -> NoiseRates:
    """Flag labels that a group never uses although other groups do: their rho_pos is unknown and may be 1."""
    share = np.nansum(Y_others, 0) / np.maximum((~np.isnan(Y_others)).sum(0), 1)
    unused = ~(Y > 0).any(0) & (share * (~np.isnan(Y)).sum(0) >= MIN_EXPECTED_POSITIVES)
    note = (
        "The group never uses this label, although other groups do. If nobody looked for the label there, set its "
        "entries in this group to NaN."
    )
    flags = (*rates.flags, *flag_labels("unused_label", unused, note))
    return replace(rates, ci_pos=np.where(unused[:, None], [0, 1], rates.ci_pos), flags=flags)
