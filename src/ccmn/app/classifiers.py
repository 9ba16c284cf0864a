"""Classifiers that the applications train."""

from __future__ import annotations

from typing import Any

from ccmn.estimation import NoiseRates
from ccmn.models import CCMNClassifier, CorrectedClassifier


def make_classifier(method: str, noise: Any, random_state: int, **settings: Any) -> Any:
    """Return a classifier.

    Parameters
    ----------
    method : {"corrected", "hamming", "ranking"}
        Corrected probabilities, or a network with the unbiased Hamming or ranking loss.
    noise : {"both", "partial", "missing", "none"}, noise model or NoiseRates
        Noise type, no correction, or known rates.
    random_state : int
        Random seed.
    **settings
        Further parameters of the classifier.

    Returns
    -------
    estimator
        The classifier, not fitted.
    """
    used = None if isinstance(noise, str) and noise == "none" else noise
    if method == "corrected":
        return CorrectedClassifier(None, used, random_state=random_state, **settings)
    used = used.noise if isinstance(used, NoiseRates) else used
    return CCMNClassifier(used, loss=method, random_state=random_state, **settings)


def make_review_classifier(rates: NoiseRates, random_state: int) -> Any:
    """Return the classifier that a review trains while rows are answered; it must be fast."""
    return CCMNClassifier(rates.noise, loss="hamming", surrogate="square", random_state=random_state)
