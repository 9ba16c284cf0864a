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

from typing import TYPE_CHECKING

from ccmn._lazy import lazy_exports

if TYPE_CHECKING:
    from ccmn import audit, data, estimation, losses, metrics, models, noise, paper, votes
    from ccmn._messages import NoiseWarning
    from ccmn._version import __version__
    from ccmn.audit import audit_labels, find_label_issues
    from ccmn.data import load_dataset
    from ccmn.estimation import cross_fit_proba, diagnose_noise, estimate_noise
    from ccmn.losses import HammingLoss, RankingLoss
    from ccmn.metrics import control_risk
    from ccmn.models import CCMNClassifier, CorrectedClassifier, load_model
    from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise
    from ccmn.votes import infer_labels

__all__ = ["__version__", "audit", "data", "estimation", "losses", "metrics", "models", "noise", "paper", "votes"]
__all__ += ["CCMNClassifier", "ClassConditionalNoise", "CorrectedClassifier", "HammingLoss", "MissingNoise"]
__all__ += ["NoiseWarning", "PartialNoise", "RankingLoss", "audit_labels", "control_risk", "cross_fit_proba"]
__all__ += ["diagnose_noise", "estimate_noise", "find_label_issues", "infer_labels", "load_dataset", "load_model"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "_version": ["__version__"],
        "_messages": ["NoiseWarning"],
        "audit": ["audit", "audit_labels", "find_label_issues"],
        "data": ["data", "load_dataset"],
        "estimation": ["estimation", "cross_fit_proba", "diagnose_noise", "estimate_noise"],
        "losses": ["losses", "HammingLoss", "RankingLoss"],
        "metrics": ["metrics", "control_risk"],
        "models": ["models", "CCMNClassifier", "CorrectedClassifier", "load_model"],
        "noise": ["noise", "ClassConditionalNoise", "MissingNoise", "PartialNoise"],
        "paper": ["paper"],
        "votes": ["votes", "infer_labels"],
    },
)
