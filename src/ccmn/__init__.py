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

if TYPE_CHECKING:  # "as" marks a name as exported for type checkers
    from ccmn import audit as audit
    from ccmn import data as data
    from ccmn import estimation as estimation
    from ccmn import losses as losses
    from ccmn import metrics as metrics
    from ccmn import models as models
    from ccmn import noise as noise
    from ccmn import paper as paper
    from ccmn import votes as votes
    from ccmn._warnings import NoiseWarning as NoiseWarning
    from ccmn.audit import audit_labels as audit_labels
    from ccmn.audit import find_label_issues as find_label_issues
    from ccmn.data import load_dataset as load_dataset
    from ccmn.estimation import cross_fit_proba as cross_fit_proba
    from ccmn.estimation import diagnose_noise as diagnose_noise
    from ccmn.estimation import estimate_noise as estimate_noise
    from ccmn.losses import HammingLoss as HammingLoss
    from ccmn.losses import RankingLoss as RankingLoss
    from ccmn.metrics import control_risk as control_risk
    from ccmn.models import CCMNClassifier as CCMNClassifier
    from ccmn.models import CorrectedClassifier as CorrectedClassifier
    from ccmn.models import load_model as load_model
    from ccmn.noise import ClassConditionalNoise as ClassConditionalNoise
    from ccmn.noise import MissingNoise as MissingNoise
    from ccmn.noise import PartialNoise as PartialNoise
    from ccmn.votes import infer_labels as infer_labels

_SUBMODULES = (
    *("audit", "data", "estimation", "losses", "metrics", "models", "noise", "paper"),
    "votes",
)
_EXPORTS = {
    name: module
    for module, names in {
        "_warnings": ("NoiseWarning",),
        "audit": ("audit_labels", "find_label_issues"),
        "data": ("load_dataset",),
        "estimation": ("cross_fit_proba", "diagnose_noise", "estimate_noise"),
        "losses": ("HammingLoss", "RankingLoss"),
        "metrics": ("control_risk",),
        "models": ("CCMNClassifier", "CorrectedClassifier", "load_model"),
        "noise": ("ClassConditionalNoise", "MissingNoise", "PartialNoise"),
        "votes": ("infer_labels",),
    }.items()
    for name in names
}

__all__ = ["__version__", *_EXPORTS, *_SUBMODULES]


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
