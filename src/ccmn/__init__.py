"""Multi-label classifiers that correct for label noise.

ccmn implements "CCMN: A General Framework for Learning With Class-Conditional Multi-Label Noise" (Xie and Huang, IEEE
TPAMI 45(1), 2023) [1]_: noise models, unbiased losses, noise-rate estimation, metrics from noisy labels, label audits
and scikit-learn estimators.

Public names are imported on first use. ``import ccmn`` therefore takes milliseconds, although importing torch takes
seconds; ``ccmn --help`` depends on it.

References
----------
.. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label Noise",
   IEEE Transactions on Pattern Analysis and Machine Intelligence 45(1), 2023.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ccmn._version import __version__

if TYPE_CHECKING:
    from ccmn import audit, baselines, data, estimation, functional, losses, metrics, models, noise, theory, training
    from ccmn.audit import find_label_issues
    from ccmn.data import load_dataset
    from ccmn.estimation import diagnose_noise, estimate_noise, sensitivity
    from ccmn.losses import HammingLoss, RankingLoss
    from ccmn.models import CCMNClassifier, CorrectedClassifier, load_model
    from ccmn.noise import ClassConditionalNoise, GroupedNoise, MissingNoise, PartialNoise, TransitionNoise

_SUBMODULES = (
    *("audit", "baselines", "data", "estimation", "functional", "losses", "metrics", "models"),
    *("noise", "theory", "training"),
)
_EXPORTS = {
    name: module
    for module, names in {
        "audit": ("find_label_issues",),
        "data": ("load_dataset",),
        "estimation": ("diagnose_noise", "estimate_noise", "sensitivity"),
        "losses": ("HammingLoss", "RankingLoss"),
        "models": ("CCMNClassifier", "CorrectedClassifier", "load_model"),
        "noise": ("ClassConditionalNoise", "GroupedNoise", "MissingNoise", "PartialNoise", "TransitionNoise"),
    }.items()
    for name in names
}

__all__ = ["__version__", *_EXPORTS, *_SUBMODULES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Import a public name or subpackage on first use (PEP 562)."""
    if name in _EXPORTS:
        return getattr(import_module(f"ccmn.{_EXPORTS[name]}"), name)
    if name in _SUBMODULES:
        return import_module(f"ccmn.{name}")
    raise AttributeError(f"module 'ccmn' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
