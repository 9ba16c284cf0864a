"""Suspicious labels: a ranking by out-of-fold predictions, and error probabilities where they are known."""

from ccmn.audit.label_audit import audit_labels
from ccmn.audit.label_issues import find_label_issues

__all__ = ["audit_labels", "find_label_issues"]
