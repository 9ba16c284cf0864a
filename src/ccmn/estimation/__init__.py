"""Estimation of noise rates from noisy labels, and checks of the noise assumptions.

Public names are imported on first use: prediction with a saved default model needs neither torch nor the estimators of
scikit-learn.
"""

from typing import TYPE_CHECKING

from ccmn._lazy import lazy_exports

if TYPE_CHECKING:
    from ccmn.estimation.cross_fitting import cross_fit_proba
    from ccmn.estimation.diagnosis import Diagnosis, resolve_uncertain
    from ccmn.estimation.estimate import diagnose_noise, estimate_noise
    from ccmn.estimation.noise_rates import NoiseRates

__all__ = ["Diagnosis", "NoiseRates", "cross_fit_proba", "diagnose_noise", "estimate_noise", "resolve_uncertain"]
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "cross_fitting": ["cross_fit_proba"],
        "diagnosis": ["Diagnosis", "resolve_uncertain"],
        "estimate": ["diagnose_noise", "estimate_noise"],
        "noise_rates": ["NoiseRates"],
    },
)
