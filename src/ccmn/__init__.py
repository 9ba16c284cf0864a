"""ccmn: multi-label classifiers from labels that are wrong.

An implementation of "CCMN: A General Framework for Learning with Class-Conditional Multi-Label Noise"
(Xie & Huang). The names below are loaded when first used, so that ``import ccmn`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ccmn._version import __version__

if TYPE_CHECKING:
    from ccmn import audit, baselines, functional, losses, metrics, noise, theory
    from ccmn.audit import find_label_issues
    from ccmn.data import load_dataset
    from ccmn.estimation import diagnose_noise, estimate_noise, sensitivity
    from ccmn.losses import HammingLoss, RankingLoss
    from ccmn.models import CCMNClassifier, CorrectedClassifier, load_model
    from ccmn.noise import ClassConditionalNoise, GroupedNoise, MissingNoise, PartialNoise, TransitionNoise

_HOME = {
    "ClassConditionalNoise": "ccmn.noise",
    "PartialNoise": "ccmn.noise",
    "MissingNoise": "ccmn.noise",
    "TransitionNoise": "ccmn.noise",
    "GroupedNoise": "ccmn.noise",
    "HammingLoss": "ccmn.losses",
    "RankingLoss": "ccmn.losses",
    "CCMNClassifier": "ccmn.models",
    "CorrectedClassifier": "ccmn.models",
    "load_model": "ccmn.models",
    "diagnose_noise": "ccmn.estimation",
    "estimate_noise": "ccmn.estimation",
    "find_label_issues": "ccmn.audit",
    "sensitivity": "ccmn.estimation",
    "load_dataset": "ccmn.data",
}
_MODULES = ("audit", "baselines", "functional", "losses", "metrics", "noise", "theory")

__all__ = [
    "CCMNClassifier",
    "ClassConditionalNoise",
    "CorrectedClassifier",
    "GroupedNoise",
    "HammingLoss",
    "MissingNoise",
    "PartialNoise",
    "RankingLoss",
    "TransitionNoise",
    "__version__",
    "audit",
    "baselines",
    "diagnose_noise",
    "estimate_noise",
    "find_label_issues",
    "functional",
    "load_dataset",
    "load_model",
    "losses",
    "metrics",
    "noise",
    "sensitivity",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(f"ccmn.{name}")
    raise AttributeError(f"module 'ccmn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
