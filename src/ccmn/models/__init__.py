"""The scikit-learn face: estimators that learn from wrong labels, and models on disk."""

from ccmn.models.classifier import CCMNClassifier, load_model

__all__ = ["CCMNClassifier", "load_model"]
