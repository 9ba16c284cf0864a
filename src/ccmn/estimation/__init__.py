"""Estimation of noise rates from noisy labels, and checks of the noise assumptions."""

from __future__ import annotations

from ccmn.estimation.cross_fitting import CrossFit, cross_fit_proba
from ccmn.estimation.diagnosis import AUC, Diagnosis, UncertainLabels, resolve_uncertain
from ccmn.estimation.estimate import diagnose_noise, estimate_noise
from ccmn.estimation.evidence import mean_votes
from ccmn.estimation.noise_rates import NOISE_TYPES, Flag, GroupRates, NoiseRates
from ccmn.estimation.trusted import trusted_rows_needed

__all__ = [
    "AUC",
    "NOISE_TYPES",
    "CrossFit",
    "Diagnosis",
    "Flag",
    "GroupRates",
    "NoiseRates",
    "UncertainLabels",
    "cross_fit_proba",
    "diagnose_noise",
    "estimate_noise",
    "mean_votes",
    "resolve_uncertain",
    "trusted_rows_needed",
]
