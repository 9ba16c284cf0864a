"""Estimation of noise rates from noisy labels, and checks of the noise assumptions."""

from __future__ import annotations

from ccmn.estimation.cross_fitting import cross_fit_proba
from ccmn.estimation.diagnosis import Diagnosis, resolve_uncertain
from ccmn.estimation.estimate import diagnose_noise, estimate_noise
from ccmn.estimation.noise_rates import NoiseRates

__all__ = ["Diagnosis", "NoiseRates", "cross_fit_proba", "diagnose_noise", "estimate_noise", "resolve_uncertain"]
