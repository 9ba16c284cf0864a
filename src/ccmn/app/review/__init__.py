"""Local web app for reviewing labels, started by ``ccmn review``; it has no documented Python API."""

from ccmn.app.review.retraining import Retraining as Retraining
from ccmn.app.review.review_data import ReviewDataset as ReviewDataset
from ccmn.app.review.review_data import review_dataset as review_dataset
from ccmn.app.review.server import serve as serve
from ccmn.app.review.session import ReviewSession as ReviewSession
from ccmn.app.review.session import demo_session as demo_session
from ccmn.app.review.session import open_session as open_session
