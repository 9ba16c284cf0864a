"""From data to a review that can begin: held-out probabilities and first rates."""

from __future__ import annotations

from ccmn._validation import check_choice
from ccmn.audit.label_audit import SIDES, audit_labels
from ccmn.data.digits import PICTURE
from ccmn.data.files import PathLike
from ccmn.data.multilabel import MultiLabelData
from ccmn.estimation import GrowingEstimate, NoiseRates
from ccmn.experiments.demo import make_demo
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.review.pictures import FeaturePictures, Shape
from ccmn.review.session import Session, open_store
from ccmn.review.subject import Subject


def open_session(
    subject: Subject, folder: PathLike, noise: str | NoiseModel | NoiseRates = "estimate", seed: int = 0
) -> Session:
    """Audit the labels given, and begin a review or take it up again.

    Parameters
    ----------
    subject : Subject
    folder : path
        Where decisions are kept; the same data, seed and folder take a review up again.
    noise : "estimate", "partial", "missing", a noise model or NoiseRates
        What is thought of the noise before anybody looks; rates of a noise model are taken to be known.
    seed : int
    """
    open_store(subject, folder, seed).close()  # refused before the long work, not after it
    growing = None
    if isinstance(noise, str):
        check_choice(noise, "noise", tuple(SIDES))
        growing = GrowingEstimate(subject.data.X, subject.named_labels, SIDES[noise], seed)
        noise = growing.rates()
    found = audit_labels(subject.data.X, subject.named_labels, noise, random_state=seed)
    before = found.noise
    if isinstance(before, ClassConditionalNoise):
        before = NoiseRates.known(before, subject.named_labels)
    assert isinstance(before, NoiseRates)  # the audit takes no other
    return Session(subject, found.pred_proba, before, folder, seed, growing)


def demo_session(folder: PathLike, n: int = 8000, seed: int = 0) -> Session:
    """The pictures of ``ccmn demo`` with their noisy labels; half of the n, by other hands, are kept to test on."""
    task = make_demo(n, seed)
    data = MultiLabelData(task.X, task.Y_noisy, label_names=task.noise.label_names, name="digit scenes")
    picture = FeaturePictures(task.X, Shape(*PICTURE))
    return open_session(Subject(data, picture=picture, test=(task.X_test, task.Y_test)), folder, seed=seed)
