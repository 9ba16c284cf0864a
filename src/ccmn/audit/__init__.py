"""Which labels are probably wrong: from held-out probabilities, the noise and the labels given; this index, no more."""

from __future__ import annotations

from ccmn.audit.label_audit import Audit, BelievedRates, audit_labels, believed_rates, label_summary, within_noise
from ccmn.audit.label_issues import find_label_issues, p_wrong, suggest_labels

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
