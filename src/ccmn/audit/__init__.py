"""Which labels are probably wrong: from held-out probabilities, the noise and the labels given; this index, no more."""

from __future__ import annotations

from ccmn.audit.audit import Audit, audit_labels
from ccmn.audit.believed import BelievedRates, believed_rates
from ccmn.audit.calibration import within_noise
from ccmn.audit.issues import find_label_issues
from ccmn.audit.posterior import p_wrong
from ccmn.audit.suggestions import suggest_labels
from ccmn.audit.summary import label_summary

__all__ = [
    "Audit",
    "BelievedRates",
    "audit_labels",
    "believed_rates",
    "find_label_issues",
    "label_summary",
    "p_wrong",
    "suggest_labels",
    "within_noise",
]
