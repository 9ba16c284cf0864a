"""Fits without epochs: an l2 path in closed form or by L-BFGS, every label with the l2 that validation rows choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn.models.choosing import criterion_of
from ccmn.models.fitted import FittedNetwork
from ccmn.models.fitting import Fitted, Recipe, first_smallest
from ccmn.models.samples import Sample
from ccmn.training import KeepBest, ridge_path
from ccmn.training.lbfgs import LogisticPath
from ccmn.training.ridge import l2_path

SURE_GAIN = 0.5
"""Standard errors by which a label's risk must fall on validation rows for a smaller l2 to be taken."""
MORE_DIRECTIONS = 5
"""Degrees of freedom that smaller l2 must have had beyond the best one, before a label is given up."""

MIN_EDGE_GAIN = 1e-3
"""A label counts as selecting the edge of the path if its square risk falls by more than this in the last step."""
MIN_L2 = 1e-10
"""The l2 path ends here for ``weight_decay=0``; a smaller l2 does not change the solution."""


def fit_closed_form(recipe: Recipe, training: Sample, validation: Sample) -> Fitted:
    """A ridge path, every label with its own l2: the one with the least (unbiased) square risk on validation rows.

    Labels differ in how much noise they carry, hence in the l2 they want; and the square risk varies less than the
    Hamming loss where labels are few or noisy. One history row per l2.
    """
    # Above the mean squared length of a row, l2 leaves nothing but the bias.
    l2 = l2_path(recipe.weight_decay, 2 * _mean_square(training))
    path = ridge_path(training.X, _dense(training).astype(np.float64), l2, training.weights)
    measure = _criterion(recipe, validation)
    risks, criteria = [], []
    for scores in path.scores(validation.X):
        risks.append(_square_risks(scores, validation))
        criteria.append(float(measure(torch.from_numpy(scores))))
    choice = np.array([first_smallest(list(column)) for column in np.stack(risks).T])
    weights, bias = path.solution(choice)
    value = float(measure(torch.from_numpy(np.asarray(validation.X @ weights) + bias)))
    history = [
        {"l2": float(path.l2[i]), recipe.criterion: criteria[i], "labels": int((choice == i).sum())}
        for i in range(len(criteria))
    ]
    arrays = {"weight": weights.astype(np.float32), "bias": bias.astype(np.float32)}
    at_edge = (choice == len(path.l2) - 1) & (risks[-2] - risks[-1] > MIN_EDGE_GAIN)
    advice = _edge_advice(path.l2, at_edge)
    return Fitted(FittedNetwork("linear", arrays), history, _selected(recipe, value, path.l2[choice]), advice=advice)


def fit_logistic_path(recipe: Recipe, training: Sample, validation: Sample) -> Fitted:
    """An l2 path by L-BFGS, from the largest down; every label with its own l2, by validation rows.

    They are compared by the (unbiased) square risk of the probabilities: the logistic risk itself has no lower bound
    under debiased labels, and would be led astray by noise. A smaller l2 has to be better by ``SURE_GAIN`` standard
    errors; a label for which none has been for two l2, which let in ``MORE_DIRECTIONS`` or half of all, is done: were
    one feature a thousand times as long as the others, two l2 would tell of it alone. One history row per l2, with the
    criterion that all labels have at their best l2 so far.
    """
    p = _dense(training).astype(np.float64)
    path = LogisticPath(training.X, p, training.weights)
    # A quarter of the mean squared length of a row bounds the curvature; above it, l2 leaves nothing but the bias.
    l2 = l2_path(recipe.weight_decay, _mean_square(training) / 2)
    inside, measure = path.inside(validation.X), _criterion(recipe, validation)
    weights, bias = path.weights.copy(), path.bias.copy()
    scores = path.scores(inside, np.arange(p.shape[1]))
    choice = np.zeros(p.shape[1], dtype=np.intp)
    criteria = []
    freedom = np.array([path.degrees_of_freedom(float(lam)) for lam in l2])
    enough = min(MORE_DIRECTIONS, path.basis.shape[1] / 2)
    for i, lam in enumerate(l2):
        active = np.flatnonzero((choice >= i - 2) | (freedom[max(i - 1, 0)] - freedom[choice] < enough))
        if not len(active):
            break
        path.solve(float(lam), active)
        found = path.scores(inside, active)
        better = _surely_better(found, scores[:, active], validation, active)
        improved = active[better]
        choice[improved], scores[:, improved] = i, found[:, better]
        weights[:, improved], bias[improved] = path.weights[:, improved], path.bias[improved]
        criteria.append(float(measure(torch.from_numpy(scores))))
    whole = path.basis @ weights
    arrays = {"weight": whole.astype(np.float32), "bias": (bias - path.x_mean @ whole).astype(np.float32)}
    history = [
        {"l2": float(l2[i]), recipe.criterion: value, "labels": int((choice == i).sum())}
        for i, value in enumerate(criteria)
    ]
    advice = _edge_advice(l2, choice == len(l2) - 1)
    return Fitted(FittedNetwork("linear", arrays), history, _selected(recipe, criteria[-1], l2[choice]), advice=advice)


def _selected(recipe: Recipe, value: float, l2: NDArray[np.float64]) -> dict[str, Any]:
    """Return the selected configuration, given the criterion and the l2 weight of every label."""
    l2_range = {"l2_min": float(l2.min()), "l2_max": float(l2.max())}
    return {"criterion": recipe.criterion, "value": value, **l2_range, "n_labels": len(l2)}


def _edge_advice(l2: NDArray[np.float64], at_edge: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return a sentence if most labels select the smallest l2; above the largest l2, only the bias remains."""
    count, smallest = int(at_edge.sum()), l2[-1]
    if 2 * count <= len(at_edge) or smallest == l2[0] or smallest <= MIN_L2:
        return ()
    return (
        f"The smallest l2 of the path, weight_decay={smallest:g}, is selected for {count} of {len(at_edge)} labels; "
        "a smaller weight_decay may be better.",
    )


def _surely_better(
    scores: NDArray[np.float32], before: NDArray[np.float32], validation: Sample, labels: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """For which labels is the square risk of the probabilities, the mean of (p - sigma(f))^2, lower than before?"""
    p = _dense(validation)[:, labels].astype(np.float64)
    seen = ~np.isnan(p)
    new, old = expit(scores.astype(np.float64)), expit(before.astype(np.float64))
    gains = (old - new) * (old + new - 2 * np.nan_to_num(p))
    gain = _risk_means(gains, seen, validation.weights)
    variance = _risk_means((gains - gain) ** 2, seen, validation.weights)
    error = np.sqrt(variance / np.maximum(seen.sum(0), 1))
    return np.asarray(gain > np.maximum(SURE_GAIN * error, KeepBest.smallest_gain))


def _mean_square(sample: Sample) -> float:
    """The mean squared length of a row."""
    X = sample.X
    squares = np.asarray(X.multiply(X).sum(1)).ravel() if is_sparse(X) else np.square(X, dtype=np.float64).sum(1)
    return float(np.average(squares, weights=sample.weights))


def _risk_means(
    values: NDArray[np.float64], seen: NDArray[np.bool_], weights: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Means over the rows in which a label is observed."""
    share = seen if weights is None else seen * weights[:, None]
    return np.asarray((share * values).sum(0) / np.maximum(share.sum(0), np.finfo(np.float64).tiny))


def _square_risks(scores: NDArray[np.float64], validation: Sample) -> NDArray[np.float64]:
    """The mean of f^2 - 2 f (2p - 1) of every label: the square loss but for a constant."""
    p = _dense(validation)
    target = 2 * np.nan_to_num(p.astype(np.float64)) - 1
    return _risk_means(scores**2 - 2 * scores * target, ~np.isnan(p), validation.weights)


def _dense(sample: Sample) -> NDArray[np.float32]:
    assert isinstance(sample.p, np.ndarray)  # whoever asks for a path has seen to it
    return sample.p


def _criterion(recipe: Recipe, validation: Sample) -> Callable[[Tensor], Tensor]:
    """The criterion of whole scores."""
    p, weights = torch.from_numpy(_dense(validation)), validation.weights_tensor()
    return lambda scores: criterion_of(recipe.criterion, p, scores, weights)
