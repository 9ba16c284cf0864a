"""The scikit-learn face: estimators that learn from wrong labels, and models on disk."""

from ccmn.models.classifier import CCMNClassifier, load_model
from ccmn.models.corrected import CorrectedClassifier

__all__ = ["CCMNClassifier", "CorrectedClassifier", "load_model"]
