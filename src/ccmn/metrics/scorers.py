"""Metrics as scikit-learn scorers, on labels that are noisy: for GridSearchCV, cross_validate and the like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import Labels
from ccmn.metrics.metric import Estimate, Metric, Noise, Value


def make_noisy_scorer(metric: str, noise: Noise | None = None) -> NoisyScorer:
    """A scikit-learn scorer of a metric, for validation labels that are as noisy as ``noise`` says.

    Parameters
    ----------
    metric : str
        A name of ``METRICS``.
    noise : noise model or estimated rates, optional
        How the labels went wrong that the scorer will be given; None: they are clean.

    Returns
    -------
    NoisyScorer
        ``scorer(estimator, X, Y)`` is the estimate of the clean metric, greater is better (losses are negated), not
        clipped; ``scorer.estimate(estimator, X, Y)`` the metric itself with its standard error.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from ccmn import CCMNClassifier, PartialNoise
    >>> from ccmn.data import make_noisy_multilabel
    >>> noise = PartialNoise([0.4, 0.2, 0.3])
    >>> task = make_noisy_multilabel(600, 5, 3, strength=8, noise=noise, random_state=0)
    >>> clf = CCMNClassifier(noise=noise, loss="hamming", surrogate="square", random_state=0)
    >>> scores = cross_val_score(clf, task.X, task.Y_noisy, scoring=make_noisy_scorer("hamming_loss", noise), cv=3)
    >>> bool(scores.mean() > -0.15)
    True
    """
    from ccmn.metrics import METRICS  # the index imports this file

    return NoisyScorer(METRICS[metric], noise)


@dataclass(frozen=True)
class NoisyScorer:
    """``scorer(estimator, X, Y)``: the estimated clean metric, with its sign turned where less is better."""

    metric: Metric
    noise: Noise | None

    def __call__(self, estimator: Any, X: Any, Y: Labels) -> float:
        """Greater is better, as scikit-learn wants it."""
        found = self.estimate(estimator, X, Y)
        value = float(found.value if isinstance(found, Estimate) else found)
        return value if self.metric.greater_is_better else -value

    def estimate(self, estimator: Any, X: Any, Y: Labels) -> Estimate | Value:
        """The metric as it is, with its standard error where labels are noisy."""
        given = estimator.predict(X) if self.metric.needs == "labels" else scores_of(estimator, X)
        result: Estimate | Value = self.metric.function(Y, given, noise=self.noise)
        return result


def scores_of(estimator: Any, X: Any) -> NDArray[np.float64]:
    """Scores (n, q) of a multi-label classifier: its decision function, or the probabilities of its labels."""
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(X))
    found = estimator.predict_proba(X)
    if isinstance(found, list):
        # One (n, 2) a label, as forests give them; a label with one class has a single column.
        return np.stack([_of_label(p, c) for p, c in zip(found, estimator.classes_)], axis=1)
    return np.asarray(found)


def _of_label(proba: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.float64]:
    where = np.flatnonzero(np.asarray(classes) == 1)
    return np.asarray(proba[:, where[0]] if where.size else np.zeros(len(proba)))
