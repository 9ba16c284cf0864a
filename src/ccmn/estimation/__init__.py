"""Estimation of noise rates from noisy labels, and checks of the noise assumptions.

Public names are imported on first use: prediction with a saved default model needs neither torch nor the estimators of
scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # "as" marks a name as exported for type checkers
    from ccmn.estimation.cross_fitting import cross_fit_proba as cross_fit_proba
    from ccmn.estimation.diagnosis import Diagnosis as Diagnosis
    from ccmn.estimation.diagnosis import resolve_uncertain as resolve_uncertain
    from ccmn.estimation.estimate import diagnose_noise as diagnose_noise
    from ccmn.estimation.estimate import estimate_noise as estimate_noise
    from ccmn.estimation.noise_rates import NoiseRates as NoiseRates

_EXPORTS = {
    "Diagnosis": "diagnosis",
    "NoiseRates": "noise_rates",
    "cross_fit_proba": "cross_fitting",
    "diagnose_noise": "estimate",
    "estimate_noise": "estimate",
    "resolve_uncertain": "diagnosis",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name in _EXPORTS:
        return getattr(import_module(f"ccmn.estimation.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module 'ccmn.estimation' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
