"""Labels from several annotators: inference of true labels from votes, and the next votes to collect."""

from __future__ import annotations

from ccmn.votes.inference import InferredLabels, infer_labels, next_votes

__all__ = ["InferredLabels", "infer_labels", "next_votes"]
