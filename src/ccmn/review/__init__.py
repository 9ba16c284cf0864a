"""The local web page on which a person checks labels: rows drawn by lot and suspicious ones, answers kept at once."""

from __future__ import annotations

from ccmn.review.export import export
from ccmn.review.prepare import demo_session, open_session
from ccmn.review.reading import Display, read_subject
from ccmn.review.retrain import Retraining
from ccmn.review.server import serve
from ccmn.review.session import Session
from ccmn.review.store import DecisionStore
from ccmn.review.subject import Subject
from ccmn.review.trusted import TrustedRows, corrected_labels, trusted_rows

__all__ = [
    "DecisionStore",
    "Display",
    "Retraining",
    "Session",
    "Subject",
    "TrustedRows",
    "corrected_labels",
    "demo_session",
    "export",
    "open_session",
    "read_subject",
    "serve",
    "trusted_rows",
]
