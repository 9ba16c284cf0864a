"""scikit-learn estimators for noisy labels, and models on disk."""

from ccmn.models.classifier import CCMNClassifier
from ccmn.models.corrected_classifier import CorrectedClassifier
from ccmn.models.persistence import load_model
from ccmn.models.risk_control import RiskControl, control_risk
from ccmn.models.risk_controlled_classifier import RiskControlledClassifier

__all__ = [
    "CCMNClassifier",
    "CorrectedClassifier",
    "RiskControl",
    "RiskControlledClassifier",
    "control_risk",
    "load_model",
]
