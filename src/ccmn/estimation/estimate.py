"""Estimation of noise rates from noisy labels: the public functions and the selection of methods."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from ccmn._containers import Labels, label_names_of
from ccmn._random import RandomState
from ccmn._registry import Registry
from ccmn._validation import FloatArray, check_groups, name_some
from ccmn.estimation.combination import auto
from ccmn.estimation.dawid_skene import dawid_skene
from ccmn.estimation.diagnosis import Diagnosis, diagnose
from ccmn.estimation.evidence import (
    Estimator,
    Evidence,
    check_zeros_observed,
    fit_surfaces,
    read_evidence,
)
from ccmn.estimation.likelihood import ProgressCallback, observed_prevalence
from ccmn.estimation.noise_rates import (
    MAX_IDENTIFIED_WIDTH,
    UNKNOWN_RATE,
    Flag,
    GroupRates,
    LabelRates,
    NoiseRates,
    collect_rates,
)
from ccmn.estimation.profile import profile
from ccmn.estimation.score_estimators import best_bin
from ccmn.estimation.trusted import (
    known_prevalence,
    needs_likelihood,
    trusted_counts,
)
from ccmn.estimation.violations import find_violations
from ccmn.noise import ClassConditionalNoise

MIN_ROWS = 100
"""Estimates from fewer rows are flagged, and groups with fewer rows get the estimate of all rows."""
MIN_EXPECTED_POSITIVES = 10
"""A group that lacks a label although this number of positives is expected is flagged (probability below 0.0001)."""


@overload
def estimate_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    method: str = "auto",
    noise_type: str | Sequence[str] = "both",
    trusted: Any = None,
    votes: Any = None,
    random_state: RandomState = 0,
    *,
    pred_proba: Any = None,
    prevalence: Any = None,
    groups: None = None,
    clean_groups: Sequence[Any] = (),
    on_progress: ProgressCallback | None = None,
) -> NoiseRates: ...


@overload
def estimate_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    method: str = "auto",
    noise_type: str | Sequence[str] = "both",
    trusted: Any = None,
    votes: Any = None,
    random_state: RandomState = 0,
    *,
    pred_proba: Any = None,
    prevalence: Any = None,
    groups: Sequence[Any],
    clean_groups: Sequence[Any] = (),
    on_progress: ProgressCallback | None = None,
) -> GroupRates: ...


def estimate_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    method: str = "auto",
    noise_type: str | Sequence[str] = "both",
    trusted: Any = None,
    votes: Any = None,
    random_state: RandomState = 0,
    *,
    pred_proba: Any = None,
    prevalence: Any = None,
    groups: Sequence[Any] | None = None,
    clean_groups: Sequence[Any] = (),
    on_progress: ProgressCallback | None = None,
) -> NoiseRates | GroupRates:
    """Estimate the noise rates of every label from noisy labels and further evidence.

    Declare ``noise_type`` if labels are only added or only removed: this makes the rates much easier to estimate. For
    noise of both types, a few dozen trusted rows contribute more than any number of unverified ones.

    Parameters
    ----------
    X : array, DataFrame or CSR matrix of shape (n, d), default=None
        Features, to which models of the noisy labels are fitted.
    Y_noisy : labels of shape (n, q), default=None
        Noisy labels in {0, 1}, NaN where not observed. May be omitted if ``votes`` is given; the labels are then
        the mean votes.
    method : str, default="auto"
        Name in ``METHODS``. "auto" fits the model of Dawid and Skene if there are votes. Otherwise it combines profile
        likelihood [1]_, trusted rows and known prevalence, as available, into one posterior per label and compares the
        result with the upper bounds of the method "best_bin". Labels with few positives are shrunk towards the pooled
        estimate. Each of the other methods uses one kind of evidence.
    noise_type : {"both", "partial", "missing"} or sequence of these, default="both"
        Noise type of all labels, or of each label. "partial": labels were only added (candidate sets, rho_pos = 0).
        "missing": labels were only removed (rho_neg = 0). "both": labels may have been added and removed.
    trusted : (rows, Y_true) or array of shape (n, q), default=None
        Verified rows: their indices and true labels, or an array of the true labels with NaN where not verified.
        The rows should be a random sample, because their share of positives is used as evidence.
    votes : array of shape (n, a, q), long table or sparse votes, default=None
        Votes of a annotators, NaN where an annotator did not vote; all forms of :func:`ccmn.infer_labels`.
    random_state : int, Generator or None, default=0
        Seed of cross-validation and resampling.
    pred_proba : array of shape (n, q), default=None
        Out-of-fold probabilities of the noisy labels from another model, instead of ``X``. Do not pass predictions for
        training rows of that model: it reproduces their noise.
    prevalence : float or array of shape (q,), default=None
        Known prevalences: shares of samples whose true label is 1. NaN where unknown.
    groups : sequence of n hashable values, default=None
        Source of every row (annotator, site, import batch). The rates of each group are estimated separately. Groups
        with fewer than 100 rows get the rates of all rows.
    clean_groups : sequence, default=()
        Groups whose labels are correct.
    on_progress : callable, default=None
        Progress callback ``on_progress(done, total)``, called while the models of the labels are fitted; with
        ``groups``, it starts again for each group.

    Returns
    -------
    NoiseRates or GroupRates
        Rates with standard errors, intervals and flags; a ``GroupRates`` if ``groups`` is given.

    Raises
    ------
    ValueError
        If an argument is invalid, or if the evidence that the method requires is missing.

    Warns
    -----
    UserWarning
        If rates are upper bounds or poorly identified, or if trusted rows contradict ``noise_type``.

    See Also
    --------
    ccmn.diagnose_noise : Check whether the noise is class-conditional.

    References
    ----------
    .. [1] S. A. Murphy and A. W. van der Vaart, "On Profile Likelihood", JASA 95(450), 2000.

    Examples
    --------
    >>> from ccmn import PartialNoise, estimate_noise
    >>> from ccmn.data import make_noisy_multilabel
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=PartialNoise([0.2, 0.5]), random_state=0)
    >>> rates = estimate_noise(task.X, task.Y_noisy, noise_type="partial")
    >>> bool(abs(rates.rho_neg - [0.2, 0.5]).max() < 0.1), rates.rho_pos.tolist()
    (True, [0.0, 0.0])
    """
    evidence = read_evidence(X, Y_noisy, noise_type, trusted, votes, random_state, pred_proba, prevalence)
    evidence = replace(evidence, on_progress=on_progress)
    names = label_names_of(Y_noisy)
    if votes is None and any(label_type != "partial" for label_type in evidence.noise_type):
        only_removed = np.array([label_type == "missing" for label_type in evidence.noise_type])
        check_zeros_observed(evidence.Y, only_removed, names, None if evidence.trusted is None else evidence.trusted.Y)
    if groups is not None:
        return _estimate_groups(evidence, method, names, groups, clean_groups)
    if len(clean_groups):
        raise ValueError("clean_groups requires groups, the group of every row")
    rates = estimate_rates(evidence, method, names)
    _warn(rates)
    return rates


def diagnose_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    trusted: Any = None,
    random_state: RandomState = 0,
    *,
    noise_type: str | Sequence[str] = "both",
    pred_proba: Any = None,
) -> Diagnosis:
    """Check whether the noise is class-conditional, that is, whether flips are independent of the features.

    With trusted rows, the function measures how well the features predict which labels were flipped, separately for
    true labels 1 and 0.
    Without them, it tests the goodness of fit of class-conditional noise with a logistic posterior, and searches for
    five violations of the noise model: confused labels, emptied rows, noise near the decision boundary,
    feature-dependent noise and a wrong noise type. These five tests require 500 rows with all labels observed.

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
    noise_type : {"both", "partial", "missing"} or sequence of these, default="both"
        Noise type, as in :func:`ccmn.estimate_noise`.
    pred_proba : array of shape (n, q), default=None
        Out-of-fold probabilities of the noisy labels, instead of ``X``. The goodness of fit is then unknown.

    Returns
    -------
    Diagnosis
        AUC values, p-values and flags.

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
    evidence = read_evidence(X, Y_noisy, noise_type, trusted, None, random_state, pred_proba, None)
    names = label_names_of(Y_noisy)
    diagnosis = diagnose(evidence, fit_surfaces(evidence), find_violations(evidence, names))
    return replace(diagnosis, flags=tuple(flag.with_name(names) for flag in diagnosis.flags))


def estimate_rates(
    evidence: Evidence, method: str, names: Sequence[str] | None, violations: tuple[Flag, ...] | None = None
) -> NoiseRates:
    """Fit the models that the method needs, estimate the rates of every label and collect all flags.

    Violations of class-conditional noise are searched for by the method "auto", unless they are given.
    """
    estimator = METHODS[method]
    if evidence.surfaces is None and uses_likelihood(evidence, method):
        evidence = replace(evidence, surfaces=fit_surfaces(evidence))
    labels = estimator(evidence)
    if violations is None:
        searched = method == "auto" and evidence.votes is None
        violations = find_violations(evidence, names) if searched else ()
    if violations:
        # Rates near 0 do not mean that there is no noise: the model of the noise is wrong.
        labels = [
            label._replace(notes=tuple(note for note in label.notes if note[0] != "no_noise_detected"))
            for label in labels
        ]
    origin = None if evidence.X is None else "out of fold"
    settings = {
        "method": method,
        "seed": evidence.seed,
        "scores": "pred_proba" if evidence.pred_proba is not None else origin,
    }
    flags = _overall_flags(evidence, labels, violations)
    return collect_rates(labels, evidence.Y, evidence.noise_type, settings, names, flags)


def uses_likelihood(evidence: Evidence, method: str) -> bool:
    """Return whether the method needs the held-out log-likelihoods ``evidence.surfaces``."""
    if method == "auto":
        combined = evidence.trusted is not None or evidence.prevalence is not None
        has_scores = evidence.X is not None or (evidence.pred_proba is not None and combined)
        return evidence.votes is None and has_scores
    if method == "known_prevalence":
        return evidence.X is not None and evidence.prevalence is not None and bool(needs_likelihood(evidence))
    return method == "profile" and evidence.pred_proba is None


def _estimate_groups(
    evidence: Evidence, method: str, names: Sequence[str] | None, groups: Sequence[Any], clean: Sequence[Any]
) -> GroupRates:
    """Estimate each group from its own rows; small groups share one estimate from the rows of all noisy groups."""
    index = check_groups(groups, len(evidence.Y))
    known = [group.item() if isinstance(group, np.generic) else group for group in dict.fromkeys(groups)]
    unknown = [group for group in clean if group not in known]
    if unknown:
        raise ValueError(f"clean_groups contains {unknown[0]!r}, which is not among the groups")
    not_clean = np.flatnonzero(~np.isin(index, [known.index(group) for group in clean]))
    result: dict[Any, NoiseRates] = {}
    shared: NoiseRates | None = None
    for number, group in enumerate(known):
        rows = np.flatnonzero(index == number)
        if group in clean:
            no_noise = ClassConditionalNoise(0.0, 0.0, n_labels=evidence.Y.shape[1], label_names=names)
            result[group] = NoiseRates.known(no_noise, evidence.Y[rows])
        elif rows.size >= MIN_ROWS:
            result[group] = estimate_rates(evidence.subset(rows), method, names)
        else:
            shared = shared or estimate_rates(evidence.subset(not_clean), method, names)
            note = (
                f"The group has {rows.size} rows, fewer than {MIN_ROWS}, and gets the rates of all rows. Merge it with "
                "a similar group or collect more rows."
            )
            result[group] = replace(shared, flags=(*shared.flags, Flag("few_rows", note)))
        if group not in clean:
            result[group] = _flag_unused(result[group], evidence.Y[rows], np.delete(evidence.Y, rows, 0))
    return GroupRates(result)


def _flag_unused(rates: NoiseRates, Y: FloatArray, Y_others: FloatArray) -> NoiseRates:
    """Flag labels that a group never uses although other groups do: their rho_pos is unknown and may be 1."""
    expected = observed_prevalence(Y_others) * (~np.isnan(Y)).sum(0) * (~np.isnan(Y_others)).any(0)
    unused = np.flatnonzero(~(Y > 0).any(0) & (expected >= MIN_EXPECTED_POSITIVES))
    if not unused.size:
        return rates
    ci_pos, se_pos = rates.ci_pos.copy(), rates.se_pos.copy()
    ci_pos[unused], se_pos[unused] = UNKNOWN_RATE[2:], UNKNOWN_RATE.se
    flags = [flag for flag in rates.flags if flag.code != "no_noise_detected" or flag.label not in unused]
    for j in unused.tolist():
        note = (
            f"The group never uses this label, although about {expected[j]:.0f} positives are expected from the other "
            "groups. If nobody looked for the label there, set its entries in this group to NaN."
        )
        flags.append(Flag("unused_label", note, j))
    return replace(rates, ci_pos=ci_pos, se_pos=se_pos, flags=tuple(flags))


METHODS: Registry[Estimator] = Registry(
    "method",
    {
        "auto": auto,
        "profile": profile,
        "best_bin": best_bin,
        "trusted": trusted_counts,
        "dawid_skene": dawid_skene,
        "known_prevalence": known_prevalence,
    },
)
"""Estimators by the value of ``method``."""


def _overall_flags(evidence: Evidence, labels: Sequence[LabelRates], violations: tuple[Flag, ...]) -> list[Flag]:
    """Return the flags that concern the whole result, and the violations of class-conditional noise."""
    flags = list(violations)
    n = len(evidence.Y)
    if evidence.X is not None and evidence.surfaces is not None:
        flags += diagnose(evidence, evidence.surfaces).flags
    if n < MIN_ROWS:
        note = f"{n} rows are fewer than {MIN_ROWS}: the estimate is unreliable. Use more rows or pass known rates."
        flags.append(Flag("few_rows", note))
    profiled = any(label.method.startswith("profile") for label in labels)
    if evidence.trusted is None and evidence.votes is None and profiled:
        note = (
            "Without trusted rows the rates rest on the assumption that the posterior is logistic along some direction "
            "of the features. A few dozen trusted rows make this assumption unnecessary."
        )
        flags.append(Flag("assumes_shape", note))
    if any(label.kind == "upper bound" for label in labels):
        note = (
            "Some rates are upper bounds: there may be less noise. Pass features instead of probabilities, declare "
            "noise_type, or pass trusted rows."
        )
        flags.append(Flag("upper_bound", note))
    return flags


def _warn(rates: NoiseRates) -> None:
    """Warn about upper bounds, poorly identified rates and contradicted noise types."""
    bounds = [j for j, kind in enumerate(rates.kind) if kind == "upper bound"]
    wide = rates.labels_with("wide_interval")
    for labels, problem in (
        (bounds, "are upper bounds: there may be less noise"),
        (wide, f"are poorly identified (90 % interval wider than {MAX_IDENTIFIED_WIDTH:g})"),
    ):
        if labels:
            declare = "Declare noise_type='partial' or 'missing' if only one kind of error occurs, or pass"
            remedy = declare if any(rates.noise_type[j] == "both" for j in labels) else "Pass"
            warnings.warn(
                f"Noise rates of {name_some(labels, rates.label_names, rates.n_labels)} {problem}. {remedy} a few "
                "dozen rows with true labels, drawn at random, as trusted=(rows, Y_true).",
                stacklevel=3,
            )
    contradicted = rates.labels_with("noise_type_contradicted")
    if contradicted:
        warnings.warn(
            f"The evidence contradicts the declared noise type of "
            f"{name_some(contradicted, rates.label_names, rates.n_labels)}. Use noise_type='both' for these labels.",
            stacklevel=3,
        )
