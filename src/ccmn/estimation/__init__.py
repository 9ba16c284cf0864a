"""Noise rates from noisy data: one estimator per file, one kind of result, this index, nothing else."""

from __future__ import annotations

from ccmn.estimation.diagnosis import Area, Diagnosis, Sensitivity, sensitivity
from ccmn.estimation.estimate import ESTIMATORS, METHODS, GrowingEstimate, diagnose_noise, estimate_noise, mean_votes
from ccmn.estimation.evidence import Estimator, Evidence, Trusted
from ccmn.estimation.group_rates import GroupRates
from ccmn.estimation.noise_rates import Flag, LabelRates, NoiseRates, Rate
from ccmn.estimation.out_of_fold import out_of_fold_scores
from ccmn.estimation.trusted import rows_needed

__all__ = [
    "ESTIMATORS",
    "METHODS",
    "Area",
    "Diagnosis",
    "Estimator",
    "Evidence",
    "Flag",
    "GroupRates",
    "GrowingEstimate",
    "LabelRates",
    "NoiseRates",
    "Rate",
    "Sensitivity",
    "Trusted",
    "diagnose_noise",
    "estimate_noise",
    "mean_votes",
    "out_of_fold_scores",
    "rows_needed",
    "sensitivity",
]
