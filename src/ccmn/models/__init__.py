"""scikit-learn estimators for noisy labels, and models on disk.

Public names are imported on first use: prediction with a saved default model needs neither torch nor the estimators of
scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # "as" marks a name as exported for type checkers
    from ccmn.models.ccmn_classifier import CCMNClassifier as CCMNClassifier
    from ccmn.models.corrected_classifier import CorrectedClassifier as CorrectedClassifier
    from ccmn.models.persistence import load_model as load_model

_EXPORTS = {
    "CCMNClassifier": "ccmn_classifier",
    "CorrectedClassifier": "corrected_classifier",
    "load_model": "persistence",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name in _EXPORTS:
        return getattr(import_module(f"ccmn.models.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module 'ccmn.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
