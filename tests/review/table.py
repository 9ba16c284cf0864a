"""A small table to review, and somebody who knows the truth about it."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np

from ccmn.data import MultiLabelData
from ccmn.estimation import estimate_noise
from ccmn.noise import ClassConditionalNoise
from ccmn.review.session import Session
from ccmn.review.subject import Subject

NAMES = ("<b>sea</b>", "sky & sun", 'a "quoted" name')
TRUE = (np.random.default_rng(0).normal(size=(150, 3)) > 0).astype(np.uint8)


def make_subject(**shown) -> Subject:
    """150 rows of three labels, some of them flipped; features that tell the labels."""
    noise = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.2, 0.1])
    X = np.where(TRUE == 1, 1.0, -1.0) + np.random.default_rng(1).normal(scale=0.5, size=TRUE.shape)
    data = MultiLabelData(X, noise.corrupt(TRUE, random_state=2), label_names=NAMES, name="<i>table</i>")
    return Subject(data, **shown)


def make_session(folder, **shown) -> Session:
    """The review, begun or taken up again."""
    return Session(make_subject(**shown), *thought_before(), folder, seed=3)


@cache
def thought_before():
    """Held-out probabilities, and the rates that follow from them."""
    subject = make_subject()
    pred_proba = 1 / (1 + np.exp(-3 * subject.data.X.astype(np.float64)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pred_proba, estimate_noise(Y_noisy=subject.named_labels, pred_proba=pred_proba)


def answer_truly(session: Session, rows: int) -> None:
    """Go through so many places of the queue and give the true answers."""
    item = session.latest()
    for _ in range(rows):
        session.store.answer(item, {j: "yes" if TRUE[item.row, j] else "no" for j in item.asked})
        item = session.queue.after(item.position)
