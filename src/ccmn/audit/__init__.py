"""Label-error detection from out-of-fold probabilities, noise rates and the given labels."""

from __future__ import annotations

from ccmn.audit.label_audit import Audit, audit_labels, calibrate_to_noise, label_summary
from ccmn.audit.label_issues import find_label_issues, p_wrong, suggest_labels

__all__ = [
    "Audit",
    "audit_labels",
    "calibrate_to_noise",
    "find_label_issues",
    "label_summary",
    "p_wrong",
    "suggest_labels",
]
