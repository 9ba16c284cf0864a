"""Local web app for reviewing labels: a random sample and suspicious rows."""

from __future__ import annotations

from ccmn.app.review.retraining import Retraining, export_answers
from ccmn.app.review.review_data import ReviewDataset, read_review_data
from ccmn.app.review.server import serve
from ccmn.app.review.session import ReviewSession, demo_session, open_session

__all__ = [
    "Retraining",
    "ReviewDataset",
    "ReviewSession",
    "demo_session",
    "export_answers",
    "open_session",
    "read_review_data",
    "serve",
]
