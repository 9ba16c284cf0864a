"""Example data with known true labels, and a review of them."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np

from ccmn.app import review
from ccmn.data import MultiLabelData
from ccmn.estimation import estimate_noise
from ccmn.noise import ClassConditionalNoise

NAMES = ("<b>sea</b>", "sky & sun", 'a "quoted" name')
TRUE = (np.random.default_rng(0).normal(size=(150, 3)) > 0).astype(np.uint8)


def make_dataset(texts=None, ids=None, **display) -> review.ReviewDataset:
    """Return 150 rows with three noisy labels and informative features."""
    noise = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.2, 0.1])
    X = np.where(TRUE == 1, 1.0, -1.0) + np.random.default_rng(1).normal(scale=0.5, size=TRUE.shape)
    data = MultiLabelData(X, noise.corrupt(TRUE, random_state=2), label_names=NAMES, name="<i>table</i>")
    return review.ReviewDataset(replace(data, texts=texts, ids=ids), **display)


def make_session(folder, declared="known", **display) -> review.ReviewSession:
    """Start or resume a review of the example data; by default, with declared rates."""
    pred_proba, rates = initial_estimates()
    noise = rates.noise if declared == "known" else declared
    return review.ReviewSession(make_dataset(**display), pred_proba, noise, folder, random_state=3)


@cache
def initial_estimates():
    """Return probabilities of the noisy labels and the noise rates estimated from them."""
    dataset = make_dataset()
    pred_proba = 1 / (1 + np.exp(-3 * dataset.data.X.astype(np.float64)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pred_proba, estimate_noise(Y_noisy=dataset.named_labels, pred_proba=pred_proba)


def answer_correctly(session: review.ReviewSession, n_items: int, stream: str = "random") -> None:
    """Answer the next items of a list with the true labels."""
    for _ in range(n_items):
        item = session.queue.open(stream)
        session.store.record(item, {j: "yes" if TRUE[item.row, j] else "no" for j in item.asked})
