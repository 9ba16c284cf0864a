"""P(noisy label = 1 | x): the average of a logistic regression and a random forest, and its correction for noise.

Both models estimate the same probability, so that the share of each is chosen by a proper score: the square risk on
rows that the models have not seen. Noise is inverted in the result (:class:`InversionCurve`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn._threads import limit_threads, solver_operations
from ccmn._validation import FloatArray
from ccmn.models.calibration import corrected_tails, linear_probability, linear_probability_tensor, platt_scaling
from ccmn.models.training_data import Sample, Scaling, is_small, split
from ccmn.noise import ClassConditionalNoise
from ccmn.noise.class_conditional import debias_labels
from ccmn.training.forest import MAX_FEATURES, MAX_LABELS, Forest, fit_forest
from ccmn.training.newton import LogisticPath, l2_path
from ccmn.training.selection import MIN_IMPROVEMENT

VALIDATION_FRACTION = 0.2
"""Share of the rows in a fold of the cross-validation of l2 weights."""
MAX_SELECTION_ROWS = 20_000
"""l2 weights are selected with at most this number of training rows; the model is then fitted to all rows."""
SEARCH_TOLERANCE = 1e-3
"""Tolerance of the scaled gradient while l2 weights are compared; the final fit uses ``newton.MAX_GRADIENT``."""
MIN_RELATIVE_L2 = 1e-3
"""Smallest l2 weight of a path, relative to the mean squared norm of a row divided by the number of rows."""
MAX_FLOAT64_ROWS = 256
"""Up to this number of rows, weights are computed in float64."""
MAX_FOREST_ROWS = 100_000
"""Largest number of rows for which a forest is added to the linear model."""
MAX_SPARSE_FEATURES = 20_000
"""Largest number of sparse features for which a forest is added: the projection is stored with the model."""
SPARSE_COMPONENTS = 150
"""Number of directions on which sparse features are projected for a forest."""
MIN_RISK_DECREASE = 0.5
"""Standard errors by which the validation risk of a label must decrease for a smaller l2 weight to be selected."""
MIN_EXTRA_DEGREES = 5
"""Degrees of freedom that smaller l2 weights must add without an improvement before the path of a label ends."""

MIN_PROBABILITY = 1e-6
"""Smallest probability whose log-odds are computed."""

OnPhase = Callable[[str, int, int], None]
"""Called with the name of a phase, the number of finished steps, and that of all steps."""


@dataclass(frozen=True)
class InversionCurve:
    """Probability of the true label as a function of the log-odds of the noisy label.

    Parameters
    ----------
    rho_pos, rho_neg : arrays of shape (q,)
        Noise rates.
    thresholds : array of shape (q,)
        Twice the probability from which a label is predicted, minus 1.
    """

    rho_pos: FloatArray
    rho_neg: FloatArray
    thresholds: FloatArray

    def scores(self, f: FloatArray) -> FloatArray:
        """Return 2 p - 1 for the corrected probabilities p, which can lie outside [0, 1]."""
        return 2 * debias_labels(expit(f), self.rho_pos, self.rho_neg) - 1

    def decisions(self, f: FloatArray) -> FloatArray:
        """Return the scores minus the thresholds; a label is predicted if its decision is at least 0."""
        return self.scores(f) - self.thresholds

    def probabilities(self, decisions: FloatArray) -> FloatArray:
        """Return the probabilities of the true labels, strictly inside (0, 1) and in the order of the decisions."""
        return linear_probability(decisions, self.tails)

    @property
    def tails(self) -> FloatArray:
        """Tails (2, q) of the probabilities, see :func:`corrected_tails`."""
        return corrected_tails(self.rho_pos, self.rho_neg, self.thresholds)


class AverageModel:
    """Fitted average of a logistic regression and a random forest, as arrays.

    Parameters
    ----------
    arrays : mapping of str to array
        ``weight`` (d, q) and ``bias`` (q,) of the logistic regressions, ``platt`` (2, q) with slopes and offsets of the
        log-odds, and with a forest ``linear_share`` (1,), ``feature``, ``threshold`` and ``values`` of its nodes, and
        for sparse features ``projection`` (d, r).
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays = dict(arrays)

    @cached_property
    def forest(self) -> Forest | None:
        """Forest; None if the model is linear."""
        if "feature" not in self.arrays:
            return None
        n_features = self.arrays.get("projection", self.arrays["weight"].T).shape[1]
        return Forest.from_arrays(self.arrays, n_features, self.arrays["bias"].size)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the forest, which follows from the arrays, for pickle and skops."""
        return {"arrays": self.arrays}

    def log_odds(self, X: Any) -> FloatArray:
        """Return the log-odds (n, q) of the noisy labels."""
        rows = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
        linear = np.asarray(rows @ self.arrays["weight"].astype(np.float64)) + self.arrays["bias"]
        slope, offset = self.arrays["platt"]
        if self.forest is None:
            return np.asarray(slope * linear + offset)
        share = float(self.arrays["linear_share"][0])
        of_forest = self.forest.predict(forest_features(X, self.arrays.get("projection")))
        return np.asarray(slope * log_odds(share * expit(linear) + (1 - share) * of_forest) + offset)

    def check(self, n_features: int, n_labels: int) -> None:
        """Raise a ValueError that names the array if an array is missing or invalid."""
        shapes: dict[str, tuple[int, ...]] = {"weight": (n_features, n_labels), "bias": (n_labels,)}
        shapes |= {"platt": (2, n_labels)}
        if "feature" in self.arrays:
            shapes |= {"linear_share": (1,)}
        if "projection" in self.arrays:
            shapes |= {"projection": (n_features, *self.arrays["projection"].shape[1:2])}
        unknown = (
            set(self.arrays) - set(shapes) - ({"feature", "threshold", "values"} if "feature" in self.arrays else set())
        )
        if unknown:
            raise ValueError(f"weights must not contain {min(unknown)!r}")
        for name, shape in shapes.items():
            array = self.arrays[name]
            if array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite numbers of shape {shape}; got shape {array.shape}")
        if not (self.arrays["platt"][0] > 0).all():
            raise ValueError("platt must be positive slopes and finite offsets")
        if "linear_share" in shapes and not 0 <= self.arrays["linear_share"][0] <= 1:
            raise ValueError("linear_share must be a number from 0 to 1")
        _ = self.forest  # validates its arrays


class AverageModule(torch.nn.Module):
    """Torch module of a fitted model: features (n, d) in, probabilities of the true labels (n, q) out."""

    weight: Tensor
    bias: Tensor
    platt: Tensor
    linear_share: Tensor
    projection: Tensor
    rates: Tensor
    thresholds: Tensor
    tails: Tensor

    def __init__(self, model: AverageModel, curve: InversionCurve) -> None:
        super().__init__()
        for name in ("weight", "bias", "platt", "linear_share", "projection"):
            if name in model.arrays:
                self.register_buffer(name, torch.tensor(model.arrays[name]))
        self.forest = None if model.forest is None else model.forest.module
        self.register_buffer("rates", torch.tensor(np.stack((curve.rho_pos, curve.rho_neg))))
        self.register_buffer("thresholds", torch.tensor(curve.thresholds))
        self.register_buffer("tails", torch.tensor(curve.tails))

    def forward(self, X: Tensor) -> Tensor:
        """Return the probabilities of the true labels."""
        outputs = X.to(self.weight.dtype) @ self.weight + self.bias
        if self.forest is not None:
            features = X if not hasattr(self, "projection") else X.to(self.projection.dtype) @ self.projection
            share = self.linear_share.to(outputs.dtype)
            mean = share * torch.sigmoid(outputs) + (1 - share) * self.forest(features).to(outputs.dtype)
            outputs = torch.logit(mean, MIN_PROBABILITY)
        slope, offset = self.platt.to(outputs.dtype)
        rho_pos, rho_neg = self.rates.to(outputs.dtype)
        scores = 2 * debias_labels(torch.sigmoid(slope * outputs + offset), rho_pos, rho_neg) - 1
        return linear_probability_tensor(scores - self.thresholds.to(outputs.dtype), self.tails.to(outputs.dtype))


# -- Fitting


@dataclass(frozen=True)
class FittedAverage:
    """Fitted model with the rows from which it was selected."""

    model: AverageModel
    valid: Sample
    """Rows that the model predicted out of fold or out of bag."""
    log_odds: FloatArray
    """These predictions (n, q)."""


def fit_average(sample: Sample, noise: ClassConditionalNoise, seed: int, *, on_phase: OnPhase) -> FittedAverage:
    """Fit a logistic regression and, if there are enough rows and few enough labels, a random forest.

    The log-odds of the average are scaled on the rows that the models have not seen (:func:`platt_scaling`). If the
    first trees of the forest get no share, which is common for texts, no more are grown.
    """
    scaling = Scaling.of(sample.X, sample.weights)
    scaled = replace(sample, X=scaling.transform(sample.X))
    valid_rows = split(scaled, VALIDATION_FRACTION, seed).valid_rows
    search, weights, bias = _fit_logistic(scaled, valid_rows, noise, on_phase)
    dtype = _number_type(sample.X.shape[0])
    arrays = scaling.restore({"weight": weights.astype(dtype), "bias": bias.astype(dtype)})
    valid, linear = search.valid, search.outputs.astype(np.float64)
    q = linear.shape[1]
    platt, outputs = np.stack((np.ones(q), np.zeros(q))), linear
    if forest_suits(sample, q):
        projection = sparse_projection(sample.X, scaling.scale, seed) if is_sparse(sample.X) else None

        def of_valid(oob: FloatArray) -> FloatArray:
            return oob if len(linear) == len(oob) else oob[valid_rows]

        forest, oob = fit_forest(
            forest_features(sample.X, projection),
            sample.fitted_labels(),
            sample_weight=sample.row_weights(),
            random_state=seed,
            on_tree=partial(on_phase, "random forest"),
            is_useless=lambda forest, oob: _linear_share(valid, noise, linear, of_valid(oob)) == 1,
        )
        share = _linear_share(valid, noise, linear, of_valid(oob))
        if share < 1:
            outputs = log_odds(share * expit(linear) + (1 - share) * of_valid(oob))
            arrays |= {**forest.arrays(), "linear_share": np.array([share])}
            arrays |= {} if projection is None else {"projection": projection}
        platt = platt_scaling(outputs, *_noisy_targets(valid, noise))
    return FittedAverage(AverageModel({**arrays, "platt": platt}), valid, platt[0] * outputs + platt[1])


def forest_suits(sample: Sample, n_labels: int) -> bool:
    """Return whether a forest is fitted: there are enough rows to choose its share, and not too many for the time."""
    n, d = sample.X.shape
    most_features = MAX_SPARSE_FEATURES if is_sparse(sample.X) else MAX_FEATURES
    return not is_small(n, sample.weights) and n <= MAX_FOREST_ROWS and d <= most_features and n_labels <= MAX_LABELS


def forest_features(X: Any, projection: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Return the features that a forest takes, in the range of float32: dense ones, or projected sparse ones."""
    limit = float(np.finfo(np.float32).max)
    features = np.asarray(X if projection is None else X @ projection)
    return np.asarray(np.clip(features, -limit, limit), dtype=np.float32)


def log_odds(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-odds of probabilities, which are clipped to ``MIN_PROBABILITY``."""
    p = np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.asarray(np.log(p / (1 - p)))


Fold = tuple[Sample, NDArray[np.int64]]
"""Training rows, and the numbers of the rows that are predicted from them."""


def _folds(rows: Sample, valid_rows: NDArray[np.int64]) -> list[Fold]:
    """Return the folds of a cross-validation of all rows, the first of which has the given validation rows.

    There is one fold if there are many rows, and training rows are validation rows as well if there are few.
    """
    n, size = rows.X.shape[0], len(valid_rows)
    if size == n:
        return [(rows, valid_rows)]
    rest = np.setdiff1d(np.arange(n), valid_rows)
    train = rows.take(rest)
    if n > MAX_SELECTION_ROWS or 2 * size > n:
        return [(train.at_most(MAX_SELECTION_ROWS), valid_rows)]
    parts = np.array_split(np.random.default_rng(size).permutation(rest), round(n / size) - 1)
    folds: list[Fold] = [(train, valid_rows)]
    for part in parts:
        kept = np.ones(n, dtype=bool)
        kept[part] = False
        folds.append((rows.take(np.flatnonzero(kept)), np.sort(part)))
    return folds


def _fit_logistic(
    rows: Sample, valid_rows: NDArray[np.int64], noise: ClassConditionalNoise, on_phase: OnPhase
) -> tuple[PathSearch, FloatArray, FloatArray]:
    """Select the l2 weight of every label by cross-validation and fit it to all scaled rows by Newton steps."""
    folds = _folds(rows, valid_rows)
    valid = rows
    if len(folds) == 1:
        valid, folds = rows.take(valid_rows), [(folds[0][0], np.arange(len(valid_rows)))]
    norm = _mean_squared_norm(rows)
    # A quarter of the mean squared norm of a row bounds the curvature. Above it, only the bias is not shrunk to 0.
    l2 = l2_path(MIN_RELATIVE_L2 * norm / max(1.0, float(_frequencies(rows).sum())), norm / 2)
    with limit_threads(solver_operations(rows.X)):
        search = PathSearch(folds, valid, noise, _number_type(rows.X.shape[0]))
        for number in range(len(l2)):
            if not search.step(l2, number):
                break
            on_phase("logistic regression", number + 1, len(l2))
        path = _logistic_path(rows, search.dtype)
        path.start_from(search.weights, search.bias)
        for number in np.unique(search.choice):
            path.solve(float(l2[number]), np.flatnonzero(search.choice == number))
        return search, *path.solution()


def _logistic_path(rows: Sample, dtype: type[np.floating[Any]]) -> LogisticPath:
    return LogisticPath(rows.X, rows.fitted_labels(), rows.label_weights(), dtype)


class PathSearch:
    """Cross-validated l2 paths of all folds, computed from the largest l2 weight to smaller ones.

    Weights are compared by the unbiased square risk of the probabilities of the true labels. A smaller l2 weight must
    be better by ``MIN_RISK_DECREASE`` standard errors. The path of a label ends after two l2 weights without
    improvement that have added ``MIN_EXTRA_DEGREES`` degrees of freedom or half of all; otherwise one feature of large
    scale could end it.

    Parameters
    ----------
    folds : list of (Sample, array of int)
        Training rows, and the numbers of the validation rows that are predicted from them.
    valid : Sample
        Validation rows.
    noise : ClassConditionalNoise
        Noise of the labels.
    dtype : type
        Type of the numbers in training.

    Attributes
    ----------
    choice : array of shape (q,)
        Number of the selected l2 weight of every label.
    outputs : array of shape (n, q)
        Outputs for the validation rows with the selected l2 weights.
    weights, bias : array
        Selected solution of the first fold.
    """

    def __init__(
        self, folds: list[Fold], valid: Sample, noise: ClassConditionalNoise, dtype: type[np.floating[Any]]
    ) -> None:
        self.valid, self.dtype, self._noise = valid, dtype, noise
        self._p = valid.dense_labels().astype(np.float64)
        self._weights, self._frequencies = valid.label_weights(), _frequencies(valid)
        self._paths = [_logistic_path(train, dtype) for train, _ in folds]
        self._rows = [rows for _, rows in folds]
        self._features = [path.centered(valid.X[rows]) for path, rows in zip(self._paths, self._rows)]
        q = self._p.shape[1]
        self.choice = np.zeros(q, dtype=np.intp)
        self.outputs = self._scores(np.arange(q))
        self.weights, self.bias = (part.copy() for part in self._paths[0].solution())

    def _scores(self, labels: NDArray[np.intp]) -> NDArray[Any]:
        """Return the outputs of some labels for the validation rows."""
        scores = np.empty((len(self._p), len(labels)), dtype=self.dtype)
        for path, rows, features in zip(self._paths, self._rows, self._features):
            scores[rows] = path.scores(features, labels)
        return scores

    def step(self, l2: FloatArray, number: int) -> bool:
        """Compute the solutions of the next l2 weight; return whether the path of some label goes on."""
        first, choice = self._paths[0], self.choice
        degrees = np.array([first.degrees_of_freedom(float(lam)) for lam in l2[: number + 1]])
        enough = min(MIN_EXTRA_DEGREES, len(first.weights) / 2)
        active = np.flatnonzero((choice >= number - 2) | (degrees[max(number - 1, 0)] - degrees[choice] < enough))
        if not len(active):
            return False
        for path in self._paths:
            path.solve(float(l2[number]), active, tolerance=SEARCH_TOLERANCE)
        scores = self._scores(active)
        rates = self._noise.rho_pos[active], self._noise.rho_neg[active]
        new, old = (debias_labels(expit(f.astype(np.float64)), *rates) for f in (scores, self.outputs[:, active]))
        weights = self._weights
        weights = weights if weights is None or weights.shape[1] == 1 else weights[:, active]
        better = _risk_decreases(new, old, self._p[:, active], weights, self._frequencies)
        improved = active[better]
        choice[improved], self.outputs[:, improved] = number, scores[:, better]
        weights, bias = first.solution()
        self.weights[:, improved], self.bias[improved] = weights[:, improved], bias[improved]
        return True


def _risk_decreases(
    new: FloatArray, old: FloatArray, p: FloatArray, weights: FloatArray | None, frequencies: FloatArray
) -> NDArray[np.bool_]:
    """Return for which labels the square risk of probabilities, the mean of (p - P)^2, has decreased.

    ``frequencies`` (n,) is how often each row counts in the standard error.
    """
    observed = ~np.isnan(p)
    share = observed if weights is None else observed * weights
    share = share / np.maximum(share.sum(0), np.finfo(np.float64).tiny)
    decreases = (old - new) * (old + new - 2 * np.nan_to_num(p))
    decrease = (share * decreases).sum(0)
    variance = (share * (decreases - decrease) ** 2).sum(0)
    error = np.sqrt(variance / np.maximum(frequencies @ observed, 1))
    return np.asarray(decrease > np.maximum(MIN_RISK_DECREASE * error, MIN_IMPROVEMENT))


def sparse_projection(X: Any, scale: FloatArray, seed: int) -> NDArray[np.float32]:
    """Return the first right singular vectors (d, r) of scaled CSR features, for the features as they are."""
    from sklearn.decomposition import TruncatedSVD

    components = min(SPARSE_COMPONENTS, min(X.shape) - 1)
    if components < 1:
        return np.ones((X.shape[1], 1), dtype=np.float32)
    scaled = X @ scipy.sparse.diags_array(1 / scale)
    with limit_threads(X.shape[0] * components**2):
        svd = TruncatedSVD(components, n_iter=2, random_state=seed).fit(scaled)
    return np.asarray(svd.components_.T / scale[:, None], dtype=np.float32)


def _linear_share(valid: Sample, noise: ClassConditionalNoise, outputs: FloatArray, of_forest: FloatArray) -> float:
    """Return the share of the linear model in the average with the smallest square risk on validation rows."""
    p = valid.dense_labels().astype(np.float64)
    linear, forest = (debias_labels(expit(f), noise.rho_pos, noise.rho_neg) for f in (outputs, log_odds(of_forest)))
    # The variance of p is inverse to the square of 1 - rho_pos - rho_neg.
    weights = np.where(np.isnan(p), 0.0, 1.0) * (1 - noise.rho_pos - noise.rho_neg) ** 2
    row_weights = valid.row_weights()
    if row_weights is not None:
        weights = weights * row_weights[:, None]
    difference = linear - forest
    total = float((weights * difference**2).sum())
    share = float((weights * difference * (np.nan_to_num(p) - forest)).sum()) / total if total > 0 else 0.5
    return float(np.clip(share, 0, 1))


def _noisy_targets(valid: Sample, noise: ClassConditionalNoise) -> tuple[FloatArray, FloatArray]:
    """Return the noisy labels and their weights; 0 where a label was not observed.

    Debiased labels p become rho_neg + (1 - rho_pos - rho_neg) p: the noisy label, and for a true label the probability
    of a noisy one.
    """
    p = valid.dense_labels().astype(np.float64)
    weights = np.where(np.isnan(p), 0.0, 1.0)
    if valid.weights is not None:
        weights *= (valid.weights * _frequencies(valid).sum() / valid.weights.sum())[:, None]
    if valid.information is not None:
        weights *= valid.information
    targets = noise.rho_neg + (1 - noise.rho_pos - noise.rho_neg) * np.nan_to_num(p)
    return np.clip(targets, 0, 1), weights


def _frequencies(sample: Sample) -> FloatArray:
    """Return the number of samples (n,) that each row represents.

    Weights with a mean of at least 1 over the rows with positive weight are numbers of repetitions. Otherwise every row
    with positive weight counts once. The information of verified labels is an inverse variance and not a number.
    """
    if sample.weights is None:
        return np.ones(sample.X.shape[0])
    present = (sample.weights > 0).astype(np.float64)
    return sample.weights if sample.weights.sum() >= present.sum() else present


def _mean_squared_norm(sample: Sample) -> float:
    """Return the mean squared norm of a row."""
    X = sample.X
    squares = np.asarray(X.multiply(X).sum(1)).ravel() if is_sparse(X) else np.square(X, dtype=np.float64).sum(1)
    return float(np.average(squares, weights=sample.weights))


def _number_type(n: int) -> type[np.floating[Any]]:
    return np.float64 if n <= MAX_FLOAT64_ROWS else np.float32
