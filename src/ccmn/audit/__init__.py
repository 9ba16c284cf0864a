"""Suspicious labels: a ranking by out-of-fold predictions, and error probabilities where they are known."""

from ccmn.audit.label_issues import audit_labels, find_label_issues

__all__ = ["audit_labels", "find_label_issues"]
