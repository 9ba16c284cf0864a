"""Rates from trusted rows, by counting flips, and from a known prevalence, in closed form."""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.likelihood import observed_prevalence
from ccmn.estimation.noise_rates import (
    CONFIDENCE_LEVEL,
    UNKNOWN_RATE,
    Z_CONFIDENCE,
    ZERO_RATE,
    LabelRates,
    NoiseType,
    Rate,
    unidentified,
)
from ccmn.estimation.profile import Counts, profile_labels


def trusted_counts(evidence: Evidence) -> list[LabelRates]:
    r"""Estimate the rates by counting the flips on the trusted rows.

    .. math:: \hat\rho_{pos} = \frac{\#\{\tilde y = 0, y = 1\} + 1/2}{\#\{y = 1\} + 1}

    and likewise :math:`\rho_{neg}`, with Jeffreys intervals (:func:`jeffreys_rate`).
    """
    counts = count_flips(evidence)
    if counts is None:
        raise ValueError("method='trusted' requires trusted=(rows, Y_true); got trusted=None")
    return [count_label(label, noise_type) for label, noise_type in zip(counts, evidence.noise_type)]


def count_flips(evidence: Evidence) -> list[Counts] | None:
    """Return the flips on the trusted rows of every label; None without trusted rows."""
    if evidence.trusted is None:
        return None
    noisy, true = evidence.Y[evidence.trusted.rows], evidence.trusted.Y
    return [flip_counts(noisy[:, j], true[:, j]) for j in range(true.shape[1])]


def flip_counts(noisy: FloatArray, true: FloatArray) -> Counts:
    """Return the flips of one label; entries that are NaN in either array are not counted."""
    positive, negative = (true == 1) & ~np.isnan(noisy), (true == 0) & ~np.isnan(noisy)
    removed, added = positive & (noisy == 0), negative & (noisy == 1)
    return Counts(*(int(entries.sum()) for entries in (positive, removed, negative, added)))


def count_label(counts: Counts, noise_type: NoiseType) -> LabelRates:
    """Return the rates of one label from its counts."""
    notes = []
    for flips, total, excluded, what, rate, value in (
        (counts.removed, counts.positives, "partial", "removed", "rho_pos", 1),
        (counts.added, counts.negatives, "missing", "added", "rho_neg", 0),
    ):
        if noise_type == excluded and flips:
            note = (
                f"noise_type={noise_type!r} declares that no label was {what}, but {flips} were on the trusted rows. "
                "Use noise_type='both' for this label."
            )
            notes.append(("noise_type_contradicted", note))
        if noise_type != excluded and not total:
            note = f"No trusted row has a true value of {value}, so {rate} is unknown. Verify rows with this value."
            notes.append(("unidentified", note))
    pos = ZERO_RATE if noise_type == "partial" else jeffreys_rate(counts.removed, counts.positives)
    neg = ZERO_RATE if noise_type == "missing" else jeffreys_rate(counts.added, counts.negatives)
    return LabelRates(pos, neg, "point", "trusted", tuple(notes))


def jeffreys_rate(k: float, m: int) -> Rate:
    """Return the rate behind k events in m trials: mean, standard deviation and interval of the Jeffreys posterior.

    The posterior is Beta(k + 1/2, m - k + 1/2). The interval is closed at 0 if k = 0 and at 1 if k = m [1]_.

    References
    ----------
    .. [1] L. D. Brown, T. T. Cai and A. DasGupta, "Interval Estimation for a Binomial Proportion", Statistical Science
       16(2), 2001.

    Examples
    --------
    >>> [round(number, 3) for number in jeffreys_rate(10, 50)]
    [0.206, 0.056, 0.121, 0.304]
    """
    if not m:
        return UNKNOWN_RATE
    a, b = 0.5 + k, 0.5 + m - k
    mean, tail = a / (a + b), (1 - CONFIDENCE_LEVEL) / 2
    low, high = (float(scipy.special.betaincinv(a, b, part)) for part in (tail, 1 - tail))
    se = math.sqrt(mean * (1 - mean) / (m + 2))
    return Rate(mean, se, 0.0 if k == 0 else low, 1.0 if k == m else high)


def trusted_rows_needed(rate: float, half_width: float) -> int:
    r"""Return the number of trusted rows of one true class for a 90 % interval of a given half width.

    The number is :math:`z^2 \rho (1 - \rho) / w^2` for counting alone. With features fewer rows are enough.

    Parameters
    ----------
    rate : float
        Expected rate :math:`\rho`: rho_pos for rows with true label 1, rho_neg for rows with true label 0.
    half_width : float
        Half width w of the interval.

    Returns
    -------
    int
        Number of rows of that true class.

    Examples
    --------
    >>> from ccmn.estimation import trusted_rows_needed
    >>> trusted_rows_needed(0.2, 0.06)
    121
    """
    return math.ceil(Z_CONFIDENCE**2 * rate * (1 - rate) / half_width**2)


def contradict(first: LabelRates, second: LabelRates) -> list[str]:
    """Return the names of the rates that differ by more than two standard errors of their difference.

    Rates that are excluded by the noise type or unknown contradict nothing.
    """
    pairs = {"rho_pos": (first.pos, second.pos), "rho_neg": (first.neg, second.neg)}
    return [
        name
        for name, (a, b) in pairs.items()
        if not {a, b} & {ZERO_RATE, UNKNOWN_RATE} and abs(a.value - b.value) > 2 * math.hypot(a.se, b.se)
    ]


def needs_likelihood(evidence: Evidence) -> list[int]:
    """Return the labels whose rates a known prevalence does not determine: noise type "both", or not known."""
    prevalence = evidence.prevalence
    return [
        j
        for j, noise_type in enumerate(evidence.noise_type)
        if noise_type == "both" or prevalence is None or np.isnan(prevalence[j])
    ]


def known_prevalence(evidence: Evidence) -> list[LabelRates]:
    r"""Estimate the rates that turn the known prevalence into the observed share of positive labels.

    .. math:: \text{partial: } \rho_{neg} = \frac{\tilde p - \pi}{1 - \pi}, \qquad
              \text{missing: } \rho_{pos} = 1 - \frac{\tilde p}{\pi}

    For noise type "both" the prevalence determines one rate given the other; the profile likelihood, which must be
    fitted in ``evidence.surfaces``, selects among the remaining pairs.
    """
    if evidence.prevalence is None:
        raise ValueError(
            "method='known_prevalence' requires prevalence, the share of rows whose true label is 1, for every label"
        )
    undetermined = needs_likelihood(evidence)
    if undetermined and evidence.X is None:
        raise ValueError(
            "With noise_type='both' a known prevalence is not enough to determine the rates: declare "
            "noise_type='partial' or 'missing', or pass the features X"
        )
    profiles = profile_labels(evidence, [None] * len(evidence.noise_type)) if undetermined else []
    observed = observed_prevalence(evidence.Y)
    n = (~np.isnan(evidence.Y)).sum(0)
    return [
        profiles[j]._replace(method="profile, known prevalence")
        if j in undetermined
        else rate_from_prevalence(float(observed[j]), int(n[j]), float(evidence.prevalence[j]), noise_type)
        for j, noise_type in enumerate(evidence.noise_type)
    ]


def rate_from_prevalence(observed: float, n: int, prevalence: float, noise_type: NoiseType) -> LabelRates:
    """Return the rates of a label with noise type "partial" or "missing" from its prevalence, in closed form."""
    missing = noise_type == "missing"
    if not n or (prevalence == 0 if missing else prevalence == 1):
        note = (
            "The rate is unknown: nothing was observed, or there is no row whose label could be wrong. Exclude the "
            "label or check its prevalence."
        )
        return unidentified(noise_type, "point", "known prevalence", note)
    room = prevalence if missing else 1 - prevalence
    value = 1 - observed / prevalence if missing else (observed - prevalence) / room
    se = float(np.sqrt(max(observed * (1 - observed), 0.25 / n) / n) / room)
    notes: tuple[tuple[str, str], ...] = ()
    if value < -2 * se:
        note = (
            f"{'More' if missing else 'Fewer'} positives were observed (share {observed:.3f}) than the prevalence of "
            f"{prevalence:.3f} allows with noise_type={noise_type!r}. Check the prevalence or use noise_type='both'."
        )
        notes = (("noise_type_contradicted", note),)
    low, high = (float(np.clip(value + sign * Z_CONFIDENCE * se, 0, 1)) for sign in (-1, 1))
    rate = Rate(float(np.clip(value, 0, 1)), se, low, high)
    pos, neg = (rate, ZERO_RATE) if missing else (ZERO_RATE, rate)
    return LabelRates(pos, neg, "point", "known prevalence", notes)
