"""Registry of the metrics, and scikit-learn scorers for noisy validation labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import Labels
from ccmn._registry import Registry
from ccmn.metrics.classification import hamming_loss, macro_auc, macro_f1, mean_average_precision, micro_f1
from ccmn.metrics.metric import Metric, Noise
from ccmn.metrics.ranking_metrics import average_precision, coverage, one_error, ranking_loss

METRICS: Registry[Metric] = Registry(
    "metric",
    {
        metric.name: metric
        for metric in (
            Metric("hamming_loss", hamming_loss, needs="labels", greater_is_better=False),
            Metric("ranking_loss", ranking_loss, needs="scores", greater_is_better=False),
            Metric("average_precision", average_precision, needs="scores", greater_is_better=True),
            Metric("one_error", one_error, needs="scores", greater_is_better=False),
            Metric("coverage", coverage, needs="scores", greater_is_better=False, maximum="n_labels"),
            Metric("micro_f1", micro_f1, needs="labels", greater_is_better=True),
            Metric("macro_f1", macro_f1, needs="labels", greater_is_better=True),
            Metric("macro_auc", macro_auc, needs="scores", greater_is_better=True),
            Metric("mean_average_precision", mean_average_precision, needs="scores", greater_is_better=True),
        )
    },
)
"""Registry of all metrics by name."""


def make_noisy_scorer(metric: str, noise: Noise | None = None) -> Callable[[Any, Any, Labels], float]:
    """Return a scikit-learn scorer that estimates a metric on the true labels; losses are negated.

    Parameters
    ----------
    metric : str
        Name of a metric in ``METRICS``.
    noise : noise model, NoiseRates or None, default=None
        Noise of the labels that the scorer will receive. ``None`` means that they are clean.

    Returns
    -------
    callable
        Function ``scorer(estimator, X, Y)`` for ``GridSearchCV``, ``cross_validate`` and similar functions.

    Raises
    ------
    ValueError
        If ``metric`` is not in ``METRICS``.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from ccmn import CorrectedClassifier, PartialNoise
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.metrics import make_noisy_scorer
    >>> noise = PartialNoise([0.4, 0.2, 0.3])
    >>> task = make_noisy_multilabel(600, 5, 3, strength=8, noise=noise, random_state=0)
    >>> clf = CorrectedClassifier(noise=noise, random_state=0)
    >>> scores = cross_val_score(clf, task.X, task.Y_noisy, scoring=make_noisy_scorer("hamming_loss", noise), cv=3)
    >>> bool(scores.mean() > -0.15)
    True
    """
    return partial(_score, METRICS[metric], noise)


def _score(metric: Metric, noise: Noise | None, estimator: Any, X: Any, Y: Labels) -> float:
    second = estimator.predict(X) if metric.needs == "labels" else _scores(estimator, X)
    value = float(metric.function(Y, second, noise=noise))
    return value if metric.greater_is_better else -value


def _scores(estimator: Any, X: Any) -> NDArray[np.float64]:
    """Return the scores (n, q) of a multi-label classifier: its decision function or its probabilities."""
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(X))
    probabilities = estimator.predict_proba(X)
    if not isinstance(probabilities, list):
        return np.asarray(probabilities)
    # Forests return one (n, 2) matrix per label. A label with a single class has one column.
    columns = []
    for proba, classes in zip(probabilities, estimator.classes_):
        index = np.flatnonzero(np.asarray(classes) == 1)
        columns.append(proba[:, index[0]] if index.size else np.zeros(len(proba)))
    return np.stack(columns, axis=1)
