"""Fits without epochs: an l2 path in closed form or by L-BFGS, every label with the l2 that validation rows choose.

Which way a fit goes: in closed form, by L-BFGS, or by the loop.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn.models.fitting import Fitted, Recipe, criterion_of, first_smallest, fit_loop, held_out_rows, in_memory
from ccmn.models.monitor import progress_of
from ccmn.models.predictor import FittedNetwork
from ccmn.models.training_data import Labels, Sample, scale_warning
from ccmn.training import KeepBest, Ranks, ridge_path
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.lbfgs import LogisticPath, can_decompose
from ccmn.training.ridge import LARGEST_DECOMPOSITION, few_threads, l2_path

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier


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


MOST_ROWS_FOR_LBFGS = 5000
"""Up to this many rows "auto" prefers L-BFGS to Adam (docs/training.md has the measurements)."""
_LINEAR = (
    "model='linear', loss='hamming', surrogate={!r}, no correction and every label observed (and dense, or not so many)"
)
NEEDS = {
    "closed_form": f"solver='closed_form' needs {_LINEAR.format('square')}; use solver='auto'",
    "lbfgs": f"solver='lbfgs' needs {_LINEAR.format('logistic')}, and at most {LARGEST_DECOMPOSITION} rows or "
    "features (features, if X is sparse, of which the rows must then fit 256 MB when dense); use solver='auto'",
}
"""The solvers that look at all rows at once, and what to say where they cannot."""


def solve(
    clf: CCMNClassifier,
    recipe: Recipe,
    training: Sample,
    labels: Labels,
    held_out: Sample,
    verbose: int,
    keeper: Checkpoint | None,
) -> Fitted:
    """Train on rows in memory; ``labels`` are what the loss takes, debiased or not."""
    way = choose_solver(clf, training, held_out)
    if way == "closed_form":
        with few_threads(training.X):
            return fit_closed_form(recipe, training, held_out)
    if way == "lbfgs":
        with few_threads(training.X):
            return fit_logistic_path(recipe, training, held_out)
    warn_if_badly_scaled(clf, training.X)
    ready, rows = in_memory(recipe, training, labels), held_out_rows(recipe, held_out)
    with progress_of(verbose, recipe.criterion) as tell:
        return fit_loop(recipe, ready, rows, tell, keeper)


def warn_if_badly_scaled(clf: CCMNClassifier, X: Any, stacklevel: int = 4) -> None:
    """Warn if the built-in networks train poorly on these features; a network of the user may scale them itself."""
    message = scale_warning(X, getattr(clf, "feature_names_in_", None)) if isinstance(clf.model, str) else None
    if message is not None and Ranks.current().writes:
        warnings.warn(message, stacklevel=stacklevel)


def choose_solver(clf: CCMNClassifier, training: Sample, held_out: Sample) -> str:
    """The solver asked for, or for "auto" the quickest that these parameters and rows allow."""
    plain = clf.model == "linear" and clf.loss == "hamming" and clf.correction is None
    # Both paths need all labels at once.
    plain = plain and isinstance(held_out.p, np.ndarray)
    plain = plain and isinstance(training.p, np.ndarray) and not np.isnan(training.p).any()
    possible = {
        "closed_form": plain and clf.surrogate == "square",
        "lbfgs": plain and clf.surrogate == "logistic" and can_decompose(training.X),
    }
    if clf.solver != "auto":
        if not possible.get(clf.solver, True):
            raise ValueError(NEEDS[clf.solver])
        return clf.solver
    if possible["closed_form"]:
        return "closed_form"
    few = training.X.shape[0] <= MOST_ROWS_FOR_LBFGS
    return "lbfgs" if possible["lbfgs"] and few else "adam"
