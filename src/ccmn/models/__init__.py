"""scikit-learn estimators for noisy labels, and models on disk.

Public names are imported on first use: prediction with a saved default model needs neither torch nor the estimators of
scikit-learn.
"""

from typing import TYPE_CHECKING

from ccmn._lazy import lazy_exports

if TYPE_CHECKING:
    from ccmn.models.ccmn_classifier import CCMNClassifier
    from ccmn.models.corrected_classifier import CorrectedClassifier
    from ccmn.models.persistence import load_model

__all__ = ["CCMNClassifier", "CorrectedClassifier", "load_model"]
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ccmn_classifier": ["CCMNClassifier"],
        "corrected_classifier": ["CorrectedClassifier"],
        "persistence": ["load_model"],
    },
)
