"""Noise rates from noisy data: one estimator per file, one kind of result, this index, nothing else."""

from __future__ import annotations

from ccmn.estimation.estimate import ESTIMATORS, METHODS, estimate_noise
from ccmn.estimation.evidence import Estimator, Evidence, Trusted
from ccmn.estimation.groups import GroupRates
from ccmn.estimation.rates import Flag, LabelRates, NoiseRates, Rate
from ccmn.estimation.scores import out_of_fold_scores
from ccmn.estimation.trusted import rows_needed

__all__ = [
    "ESTIMATORS",
    "METHODS",
    "Estimator",
    "Evidence",
    "Flag",
    "GroupRates",
    "LabelRates",
    "NoiseRates",
    "Rate",
    "Trusted",
    "estimate_noise",
    "out_of_fold_scores",
    "rows_needed",
]
