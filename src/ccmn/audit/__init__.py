"""Label-error detection from out-of-fold probabilities, noise rates and the given labels."""

from __future__ import annotations

from ccmn.audit.error_model import calibrate_to_noise, p_wrong
from ccmn.audit.label_audit import Audit, audit_labels, label_summary, out_of_fold_probabilities
from ccmn.audit.label_issues import find_label_issues, suggest_labels

__all__ = [
    "Audit",
    "audit_labels",
    "calibrate_to_noise",
    "find_label_issues",
    "label_summary",
    "out_of_fold_probabilities",
    "p_wrong",
    "suggest_labels",
]
