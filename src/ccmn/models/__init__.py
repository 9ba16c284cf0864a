"""scikit-learn estimators for noisy labels, and models on disk."""

from ccmn.models.ccmn_classifier import CCMNClassifier
from ccmn.models.corrected_classifier import CorrectedClassifier
from ccmn.models.persistence import load_model

__all__ = [
    "CCMNClassifier",
    "CorrectedClassifier",
    "load_model",
]
