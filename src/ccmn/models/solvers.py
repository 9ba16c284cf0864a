"""Solvers: closed form, Newton steps and Adam. Each fits a network to training rows and selects hyperparameters.

The closed form and Newton steps compute a path of l2 weights and select one for each label, on validation rows or by
cross-validation. Adam trains one run per learning rate and selects the learning rate and the epoch on the validation
rows. Built-in networks train all runs at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn._threads import limit_threads, solver_operations
from ccmn.losses import MultiLabelLoss
from ccmn.models.calibration import platt_scaling
from ccmn.models.predictor import FittedNetwork, MakeModule, extract_run, forest_features, log_odds
from ccmn.models.training_data import Fold, Labels, Sample, Scaling, Split
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.noise.class_conditional import debias_labels
from ccmn.training import (
    NETWORKS,
    Batches,
    DenseLabels,
    EpochProgress,
    Features,
    KeepBest,
    LabelSource,
    Network,
    Objective,
    ProcessGroup,
    Rows,
    SharedBatches,
    SparseLabels,
    StackedAdam,
    UserNetwork,
    loop,
    ridge_path,
)
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.forest import MAX_FEATURES, MAX_LABELS, Forest, fit_forest
from ccmn.training.newton import LogisticPath
from ccmn.training.ridge import l2_path
from ccmn.training.selection import MIN_IMPROVEMENT, ValidationCriterion, criterion_of_scores

MAX_SELECTION_ROWS = 20_000
"""Newton steps select l2 weights with at most this number of training rows and then fit the model to all rows."""
SEARCH_TOLERANCE = 1e-3
"""Tolerance of the scaled gradient while l2 weights are compared; the final fit uses ``newton.MAX_GRADIENT``."""
MIN_RELATIVE_L2 = 1e-3
"""Smallest l2 weight of a path by default, relative to the mean squared norm of a row divided by the number of rows."""
DEFAULT_WEIGHT_DECAY = 1e-4
"""l2 weight of Adam by default."""
MAX_FOREST_ROWS = 100_000
"""Largest number of rows for which "auto" adds a forest to the linear model."""
MAX_SPARSE_FEATURES = 20_000
"""Largest number of sparse features for which "auto" adds a forest: the projection is stored with the model."""
SPARSE_COMPONENTS = 150
"""Number of directions on which sparse features are projected for a forest."""
MIN_RISK_DECREASE = 0.5
"""Standard errors by which the validation risk of a label must decrease for a smaller l2 weight to be selected."""
MIN_EXTRA_DEGREES = 5
"""Degrees of freedom that smaller l2 weights must add without an improvement before the path of a label ends."""
MIN_EDGE_DECREASE = 1e-3
"""Closed form: a label selects the end of the path if its square risk decreases by more than this in the last step."""
MIN_LATE_EPOCH = 0.9
"""A larger learning rate is advised if the best epoch is after this share of the epochs. In 5 synthetic fits with an
earlier best epoch at the learning rate 0.05, the largest one, adding 0.2 decreased the test loss once."""
MIN_L2 = 1e-10
"""The l2 path ends here for ``weight_decay=0``; a smaller l2 weight does not change the solution."""

OnProgress = Callable[[EpochProgress], None]
OnPhase = Callable[[str, int, int], None]
"""Called with the name of a phase of a solver without epochs, the number of finished steps, and that of all steps."""


def _no_report(phase: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class TrainingConfig:
    """Configuration of a fit: everything except the data."""

    noise: NoiseModel
    loss: MultiLabelLoss
    loss_name: str
    surrogate: str | None
    """Name of the surrogate; None for a callable."""
    loss_models_noise: bool
    """Whether the loss takes noisy labels (forward loss, plug-in, transition matrix) and not debiased ones."""
    model: str | MakeModule
    solver: str
    lr: tuple[float, ...]
    epochs: int
    batch_size: int
    weight_decay: float | None
    """l2 weight of Adam and smallest l2 weight of a path; None for the default."""
    scaling: Scaling | None
    """Scaling of the features on which built-in models are trained."""
    criterion: str
    """Validation criterion, a key of ``ccmn.training.selection.CRITERIA``."""
    device: torch.device
    dtype: torch.dtype
    seed: int

    def probabilities(self, outputs: NDArray[Any], labels: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return P(true label = 1) of logistic outputs (n, m) of some labels; not clipped to [0, 1]."""
        probabilities = expit(outputs.astype(np.float64))
        if self.loss_name != "plugin":
            return np.asarray(probabilities)
        noise = self.noise
        assert isinstance(noise, ClassConditionalNoise)
        return debias_labels(probabilities, noise.rho_pos[labels], noise.rho_neg[labels])


@dataclass
class FitResult:
    """Result of a solver."""

    network: FittedNetwork
    history: list[dict[str, float]]
    """Rows of ``history_``."""
    selected: dict[str, Any]
    """Value of ``selected_``."""
    interrupted: bool = False
    checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints of a completed fit, which are deleted when the model has been saved."""
    advice: tuple[str, ...] = ()
    """Sentences of one warning: divergence, a selection at the edge of its grid, or a best last epoch."""
    valid: Sample | None = None
    """Rows that ``valid_outputs`` refers to; None for the validation rows of the split."""
    valid_outputs: NDArray[np.float64] | None = None
    """Outputs for the validation rows from the models that were fitted during the selection; None for Adam."""


# -- Choice of the solver

_DENSE = "correction=None, and dense labels"
REQUIREMENTS = {
    "closed_form": "solver='closed_form' requires model='linear', loss='hamming', surrogate='square', "
    f"{_DENSE} that are observed everywhere; use solver='auto'",
    "newton": "solver='newton' requires model='linear' or 'average' with loss='plugin', or model='linear' with "
    f"loss='hamming' and surrogate='logistic', {_DENSE}; use solver='auto'",
}
"""Error messages of the solvers that need all rows in memory."""


def forest_suits(X: Any, labels: Any) -> bool:
    """Return whether a forest can be fitted to features and labels of this size in reasonable time and memory."""
    n, d = X.shape
    most = MAX_SPARSE_FEATURES if is_sparse(X) else MAX_FEATURES
    return not is_sparse(labels) and n <= MAX_FOREST_ROWS and d <= most and labels.shape[1] <= MAX_LABELS


def choose_solver(config: TrainingConfig, data: Split) -> str:
    """Return the requested solver, or for "auto" the fastest one that supports this configuration and data."""
    # The closed form, Newton steps and forests need all labels of all rows as dense arrays.
    dense = isinstance(data.train.p, np.ndarray) and isinstance(data.valid.p, np.ndarray)
    supported = dense and config.loss.correction is None
    logistic = config.loss_name == "plugin" or (config.loss_name == "hamming" and config.surrogate == "logistic")
    square = config.loss_name == "hamming" and config.surrogate == "square" and config.model == "linear"
    possible = {
        "closed_form": supported and square and not np.isnan(data.train.dense_labels()).any(),
        "newton": supported and (config.model == "average" or (logistic and config.model == "linear")),
        "adam": config.model != "average",
    }
    if config.solver != "auto":
        if not possible[config.solver]:
            raise ValueError(REQUIREMENTS.get(config.solver, "solver='adam' cannot fit model='average'"))
        return config.solver
    solver = next((name for name, is_possible in possible.items() if is_possible), None)
    if solver is None:
        raise ValueError("model='average' requires dense labels, also in the validation set; use model='linear'")
    return solver


# -- Closed form and Newton steps


def fit_closed_form(
    config: TrainingConfig,
    data: Split,
    on_progress: OnProgress | None = None,
    checkpoint: Checkpoint | None = None,
    on_phase: OnPhase = _no_report,
) -> FitResult:
    """Compute a ridge path; select the l2 weight of each label by its (unbiased) square risk on validation rows.

    Labels differ in the amount of noise and therefore in the best l2 weight. The square risk varies less than the
    Hamming loss if labels are rare or noisy. The history has one row per l2 weight. The model is fitted again to all
    rows with the selected l2 weights.
    """
    data = data.scaled(config.scaling)
    train, valid = data.train, data.valid
    p_valid = valid.dense_labels()
    # Above the mean squared norm of a row, only the bias is not shrunk to zero.
    l2 = l2_path(_smallest_l2(config, train), 2 * _mean_squared_norm(train))
    with limit_threads(solver_operations(train.X)):
        path = ridge_path(train.X, train.dense_labels().astype(np.float64), l2, train.row_weights())
        target, observed = 2 * np.nan_to_num(p_valid.astype(np.float64)) - 1, ~np.isnan(p_valid)
        risks, criteria = [], []
        for scores in path.scores(valid.X):
            # The square loss of each label except for a constant.
            risks.append(_column_means(scores**2 - 2 * scores * target, observed, valid.label_weights()))
            criteria.append(_criterion(config, valid, scores))
        choice = np.array([first_smallest(list(column)) for column in np.stack(risks).T])
        weights, bias = path.solution(choice)
        outputs = np.asarray(valid.X @ weights) + bias
        value = _criterion(config, valid, outputs)
        if data.whole is not None:
            labels = data.whole.dense_labels().astype(np.float64)
            weights, bias = ridge_path(data.whole.X, labels, l2, data.whole.row_weights()).solution(choice)
    at_edge = (choice == len(path.l2) - 1) & (risks[-2] - risks[-1] > MIN_EDGE_DECREASE)
    result = _path_result(config, path.l2, criteria, value, choice, at_edge)
    return replace(result, network=_linear_network(config, weights, bias), valid_outputs=outputs)


def fit_newton(config: TrainingConfig, data: Split, on_phase: OnPhase = _no_report) -> FitResult:
    """Compute l2 paths by Newton steps from the largest weight; select the l2 weight of each label by cross-validation.

    The loss "plugin" is fitted to the noisy labels, the Hamming loss to debiased labels. The model is fitted again to
    all rows with the selected l2 weights. The history has one row per l2 weight, with the criterion of all labels at
    their best l2 weight so far.
    """
    data = data.scaled(config.scaling)
    rows = data.train if data.whole is None else data.whole
    folds = data.folds(MAX_SELECTION_ROWS)
    valid = data.valid if folds is None else rows
    if folds is None:
        folds = [(data.train.at_most(MAX_SELECTION_ROWS), np.arange(valid.X.shape[0]))]
    # A quarter of the mean squared norm of a row bounds the curvature. Above it, only the bias is not shrunk to 0.
    l2 = l2_path(_smallest_l2(config, rows), _mean_squared_norm(rows) / 2)
    with limit_threads(solver_operations(rows.X)):
        search = PathSearch(config, folds, valid)
        for number in range(len(l2)):
            if not search.step(l2, number):
                break
            on_phase("logistic regression", number + 1, len(l2))
        path = _logistic_path(config, rows)
        path.start_from(search.weights, search.bias)
        for number in np.unique(search.choice):
            path.solve(float(l2[number]), np.flatnonzero(search.choice == number))
        weights, bias = path.solution()
    result = _path_result(config, l2, search.criteria, search.criteria[-1], search.choice, search.choice == len(l2) - 1)
    network, outputs = _linear_network(config, weights, bias), search.outputs.astype(np.float64)
    return replace(result, network=network, valid=valid, valid_outputs=outputs)


def _logistic_path(config: TrainingConfig, rows: Sample) -> LogisticPath:
    """Return the path of the noisy labels for the loss "plugin", and of the debiased labels for the Hamming loss."""
    labels = rows.fitted_labels() if config.loss_name == "plugin" else rows.dense_labels().astype(np.float64)
    return LogisticPath(rows.X, labels, rows.label_weights(), _numpy_type(config))


class PathSearch:
    """Cross-validated l2 paths of all folds, computed from the largest l2 weight to smaller ones.

    Weights are compared by the (unbiased) square risk of the probabilities of the true labels: the logistic risk has no
    lower bound for debiased labels. A smaller l2 weight must be better by ``MIN_RISK_DECREASE`` standard errors. The
    path of a label ends after two l2 weights without improvement that have added ``MIN_EXTRA_DEGREES`` degrees of
    freedom or half of all; otherwise one feature of large scale could end it.

    Parameters
    ----------
    config : TrainingConfig
        Configuration.
    folds : list of (Sample, array of int)
        Training rows, and the numbers of the validation rows that are predicted from them.
    valid : Sample
        Validation rows.

    Attributes
    ----------
    choice : array of shape (q,)
        Number of the selected l2 weight of every label.
    outputs : array of shape (n, q)
        Outputs for the validation rows with the selected l2 weights.
    criteria : list of float
        Validation criterion after each l2 weight.
    weights, bias : array
        Selected solution of the first fold.
    """

    def __init__(self, config: TrainingConfig, folds: list[Fold], valid: Sample) -> None:
        self._config, self._valid = config, valid
        self._p = valid.dense_labels().astype(np.float64)
        self._weights, self._frequencies = valid.label_weights(), _frequencies(valid)
        self._paths = [_logistic_path(config, train) for train, _ in folds]
        self._rows = [rows for _, rows in folds]
        self._features = [path.centered(valid.X[rows]) for path, rows in zip(self._paths, self._rows)]
        q = self._p.shape[1]
        self.choice, self.criteria = np.zeros(q, dtype=np.intp), list[float]()
        self.outputs = self._scores(np.arange(q))
        self.weights, self.bias = (part.copy() for part in self._paths[0].solution())

    def _scores(self, labels: NDArray[np.intp]) -> NDArray[Any]:
        """Return the outputs of some labels for the validation rows."""
        scores = np.empty((len(self._p), len(labels)), dtype=_numpy_type(self._config))
        for path, rows, features in zip(self._paths, self._rows, self._features):
            scores[rows] = path.scores(features, labels)
        return scores

    def step(self, l2: NDArray[np.float64], number: int) -> bool:
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
        new, old = (self._config.probabilities(f, active) for f in (scores, self.outputs[:, active]))
        weights = self._weights
        weights = weights if weights is None or weights.shape[1] == 1 else weights[:, active]
        better = _risk_decreases(new, old, self._p[:, active], weights, self._frequencies)
        improved = active[better]
        choice[improved], self.outputs[:, improved] = number, scores[:, better]
        weights, bias = first.solution()
        self.weights[:, improved], self.bias[improved] = weights[:, improved], bias[improved]
        self.criteria.append(_criterion(self._config, self._valid, self.outputs))
        return True


def fit_average(config: TrainingConfig, data: Split, on_phase: OnPhase = _no_report) -> FitResult:
    """Average the probabilities of noisy labels of a logistic regression and a random forest.

    Both estimate P(noisy label = 1 | x), so that the share of each is chosen by a proper score of the noisy labels: the
    square risk on validation rows, which the logistic regression has not seen and the forest predicts from the trees
    that have not seen them. The log-odds of the average are scaled on the same rows (:func:`platt_scaling`). The noise
    is inverted in the result. If the first trees of the forest get no share, which is common for texts, no more are
    grown and the result is a linear model.
    """
    linear = fit_newton(config, data, on_phase)
    rows = data.train if data.whole is None else data.whole
    valid = data.valid if linear.valid is None else linear.valid
    linear_outputs = linear.valid_outputs
    assert linear_outputs is not None
    projection = None
    if is_sparse(rows.X):
        scale = np.ones(rows.X.shape[1]) if config.scaling is None else config.scaling.scale
        projection = sparse_projection(rows.X, scale, config.seed)

    def forest_probabilities(forest: Forest, out_of_bag: NDArray[np.float64]) -> NDArray[np.float64]:
        if data.whole is None:
            return forest.predict(forest_features(data.valid.X, projection)).astype(np.float64)
        return out_of_bag if len(linear_outputs) == len(out_of_bag) else out_of_bag[data.valid_rows]

    def is_useless(forest: Forest, out_of_bag: NDArray[np.float64]) -> bool:
        return _linear_share(config, valid, linear_outputs, forest_probabilities(forest, out_of_bag)) == 1

    forest, out_of_bag = fit_forest(
        forest_features(rows.X, projection),
        rows.fitted_labels(),
        sample_weight=rows.row_weights(),
        random_state=config.seed,
        on_tree=partial(on_phase, "random forest"),
        is_useless=is_useless,
    )
    of_forest = forest_probabilities(forest, out_of_bag)
    share = _linear_share(config, valid, linear_outputs, of_forest)
    outputs = linear_outputs if share == 1 else log_odds(share * expit(linear_outputs) + (1 - share) * of_forest)
    platt = np.stack((np.ones(outputs.shape[1]), np.zeros(outputs.shape[1])))
    if data.valid is not data.train:  # otherwise the linear model has seen all rows
        platt = platt_scaling(outputs, *_noisy_targets(config, valid))
    outputs = platt[0] * outputs + platt[1]
    value = _criterion(config, valid, outputs)
    network = _average_network(linear.network, forest, share, platt, projection)
    history = [{**row, "linear_share": 1.0} for row in linear.history]
    history.append({**history[-1], config.criterion: value, "linear_share": share})
    selected = {**linear.selected, "value": value, "linear_share": share}
    return FitResult(network, history, selected, advice=linear.advice, valid=linear.valid, valid_outputs=outputs)


def _average_network(
    linear: FittedNetwork,
    forest: Forest,
    share: float,
    platt: NDArray[np.float64],
    projection: NDArray[np.float32] | None,
) -> FittedNetwork:
    """Return the average of a linear model and a forest; a linear model if the forest has no share."""
    if share == 1:
        weight, bias = linear.arrays["weight"], linear.arrays["bias"]
        scaled = {"weight": platt[0] * weight, "bias": platt[0] * bias + platt[1]}
        return FittedNetwork("linear", {name: scaled[name].astype(linear.arrays[name].dtype) for name in scaled})
    arrays = {**linear.arrays, **forest.arrays(), "linear_share": np.array([share]), "platt": platt}
    return FittedNetwork("average", arrays if projection is None else {**arrays, "projection": projection})


def sparse_projection(X: Any, scale: NDArray[np.float64], seed: int) -> NDArray[np.float32]:
    """Return the first right singular vectors (d, r) of scaled CSR features, for the features as they are."""
    from sklearn.decomposition import TruncatedSVD

    components = min(SPARSE_COMPONENTS, min(X.shape) - 1)
    if components < 1:
        return np.ones((X.shape[1], 1), dtype=np.float32)
    scaled = X @ scipy.sparse.diags_array(1 / scale)
    with limit_threads(X.shape[0] * components**2):
        svd = TruncatedSVD(components, n_iter=2, random_state=seed).fit(scaled)
    return np.asarray(svd.components_.T / scale[:, None], dtype=np.float32)


def _linear_share(
    config: TrainingConfig, valid: Sample, outputs: NDArray[np.float64], of_forest: NDArray[np.float64]
) -> float:
    """Return the share of the linear model in the average with the smallest square risk on validation rows."""
    labels = np.arange(outputs.shape[1])
    p = valid.dense_labels().astype(np.float64)
    linear, forest = (config.probabilities(f, labels) for f in (outputs, log_odds(of_forest)))
    weights = np.where(np.isnan(p), 0.0, 1.0)
    noise = config.noise
    if isinstance(noise, ClassConditionalNoise):
        weights = weights * (1 - noise.rho_pos - noise.rho_neg) ** 2  # the variance of p is inverse to this
    row_weights = valid.row_weights()
    if row_weights is not None:
        weights = weights * row_weights[:, None]
    difference = linear - forest
    total = float((weights * difference**2).sum())
    share = float((weights * difference * (np.nan_to_num(p) - forest)).sum()) / total if total > 0 else 0.5
    return float(np.clip(share, 0, 1))


def _noisy_targets(config: TrainingConfig, valid: Sample) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the labels that the plug-in loss predicts, and their weights; 0 where a label was not observed.

    Debiased labels p become rho_neg + (1 - rho_pos - rho_neg) p: the noisy label, and for a true label the probability
    of a noisy one.
    """
    noise = config.noise
    assert isinstance(noise, ClassConditionalNoise)
    p = valid.dense_labels().astype(np.float64)
    weights = np.where(np.isnan(p), 0.0, 1.0)
    if valid.weights is not None:
        weights *= (valid.weights * _frequencies(valid).sum() / valid.weights.sum())[:, None]
    if valid.information is not None:
        weights *= valid.information
    targets = noise.rho_neg + (1 - noise.rho_pos - noise.rho_neg) * np.nan_to_num(p)
    return np.clip(targets, 0, 1), weights


def _path_result(
    config: TrainingConfig,
    l2: NDArray[np.float64],
    criteria: list[float],
    value: float,
    choice: NDArray[np.intp],
    at_edge: NDArray[np.bool_],
) -> FitResult:
    """Return the history of an l2 path, the selection of its labels and advice; the network is added later."""
    history = [
        {"l2": float(l2[i]), config.criterion: criterion, "labels": int((choice == i).sum())}
        for i, criterion in enumerate(criteria)
    ]
    l2_range = {"l2_min": float(l2[choice].min()), "l2_max": float(l2[choice].max())}
    selected = {"criterion": config.criterion, "value": value, **l2_range, "n_labels": len(choice)}
    advice: tuple[str, ...] = ()
    count, smallest = int(at_edge.sum()), l2[-1]
    # There is no advice for the largest l2 weight: only the bias remains there.
    if 2 * count > len(at_edge) and smallest != l2[0] and smallest > MIN_L2:
        advice = (
            f"The smallest l2 of the path, weight_decay={smallest:.3g}, is selected for {count} of {len(at_edge)} "
            "labels; a smaller weight_decay may be better.",
        )
    return FitResult(FittedNetwork("linear", {}), history, selected, advice=advice)


def _linear_network(config: TrainingConfig, weights: NDArray[np.float64], bias: NDArray[np.float64]) -> FittedNetwork:
    """Return weights (d, q) and biases for scaled features as a linear model of the original features."""
    dtype = _numpy_type(config)
    arrays = {"weight": weights.astype(dtype), "bias": bias.astype(dtype)}
    return FittedNetwork("linear", arrays if config.scaling is None else config.scaling.restore(arrays))


def _smallest_l2(config: TrainingConfig, sample: Sample) -> float:
    """Return the smallest l2 weight of a path: ``weight_decay``, or the default given by ``MIN_RELATIVE_L2``."""
    if config.weight_decay is not None:
        return config.weight_decay
    return float(MIN_RELATIVE_L2 * _mean_squared_norm(sample) / max(1.0, float(_frequencies(sample).sum())))


def _frequencies(sample: Sample) -> NDArray[np.float64]:
    """Return the number of samples (n,) that each row represents.

    Weights with a mean of at least 1 over the rows with positive weight are numbers of repetitions. Otherwise every row
    with positive weight counts once. The information of verified labels is an inverse variance and not a number.
    """
    if sample.weights is None:
        return np.ones(sample.X.shape[0])
    present = (sample.weights > 0).astype(np.float64)
    return sample.weights if sample.weights.sum() >= present.sum() else present


def _numpy_type(config: TrainingConfig) -> type[np.floating[Any]]:
    """Return the NumPy type of the numbers in training: float64 for few rows."""
    return np.float64 if config.dtype == torch.float64 else np.float32


def _criterion(config: TrainingConfig, valid: Sample, scores: NDArray[Any]) -> float:
    """Return the validation criterion of the outputs (n, q) of a model."""
    weights = None if valid.weights is None else torch.from_numpy(valid.weights)
    p, decisions = torch.from_numpy(valid.dense_labels()), config.loss.decision(torch.from_numpy(scores))
    return float(criterion_of_scores(config.criterion, p, decisions, weights))


def _mean_squared_norm(sample: Sample) -> float:
    """Return the mean squared norm of a row."""
    X = sample.X
    squares = np.asarray(X.multiply(X).sum(1)).ravel() if is_sparse(X) else np.square(X, dtype=np.float64).sum(1)
    return float(np.average(squares, weights=sample.weights))


def _risk_decreases(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    p: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    frequencies: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Return for which labels the square risk of probabilities, the mean of (p - P)^2, has decreased.

    ``frequencies`` (n,) is how often each row counts in the standard error.
    """
    observed = ~np.isnan(p)
    decreases = (old - new) * (old + new - 2 * np.nan_to_num(p))
    decrease = _column_means(decreases, observed, weights)
    variance = _column_means((decreases - decrease) ** 2, observed, weights)
    error = np.sqrt(variance / np.maximum(frequencies @ observed, 1))
    return np.asarray(decrease > np.maximum(MIN_RISK_DECREASE * error, MIN_IMPROVEMENT))


def _column_means(
    values: NDArray[np.float64], observed: NDArray[np.bool_], weights: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return the mean of every column over its observed rows, with weights of rows (n, 1) or of all values."""
    share = observed if weights is None else observed * weights
    return np.asarray((share * values).sum(0) / np.maximum(share.sum(0), np.finfo(np.float64).tiny))


# -- Adam


@dataclass(frozen=True)
class TrainingRows:
    """Training rows in the form that the loop takes: in memory, or a stream."""

    features: Features
    labels: LabelSource
    batches: Batches
    q: int
    weights: Tensor | None = None
    group: ProcessGroup = field(default_factory=ProcessGroup)


@dataclass(frozen=True)
class StreamedSplit:
    """Streamed training rows and the validation rows, which are in memory."""

    train: TrainingRows
    valid: Sample


def rows_in_memory(config: TrainingConfig, sample: Sample) -> TrainingRows:
    """Return the rows of a sample in shuffled batches, of which every rank takes a share."""
    device, dtype, group = config.device, config.dtype, ProcessGroup.current()
    rows = Rows([np.arange(sample.X.shape[0])], config.batch_size, [config.seed], device=device)
    weights, row_weights = None, sample.row_weights()
    if row_weights is not None:
        # Weights with a mean of 1: the learning rate does not depend on their scale.
        weights = torch.from_numpy(row_weights / row_weights.mean()).to(device, dtype)
    labels = sample.p if sample.noisy is None else sample.noisy
    return TrainingRows(
        Features(sample.X, dtype=dtype, device=device),
        _label_source(labels, device, dtype),
        SharedBatches(rows, group) if group.is_distributed else rows,
        labels.shape[1],
        weights,
        group,
    )


def _label_source(labels: Labels, device: torch.device, dtype: torch.dtype) -> LabelSource:
    """Return labels in memory as a source of training targets."""
    if isinstance(labels, SparseLabels):
        return labels.to(device, dtype)
    return DenseLabels(torch.from_numpy(labels).to(device, dtype))


def fit_adam(
    config: TrainingConfig,
    data: Split | StreamedSplit,
    on_progress: OnProgress | None = None,
    checkpoint: Checkpoint | None = None,
    on_phase: OnPhase = _no_report,
) -> FitResult:
    """Train all learning rates at the same time, or one after the other for a module of the user; select the best."""
    if isinstance(data, Split):
        data = data.scaled(config.scaling)
    rows, valid = data.train if isinstance(data, StreamedSplit) else rows_in_memory(config, data.train), data.valid
    criterion = ValidationCriterion(
        config.criterion,
        config.loss,
        Features(valid.X, dtype=config.dtype, device=config.device),
        _label_source(valid.p, config.device, torch.float32),
        None if valid.weights is None else torch.from_numpy(valid.weights).to(config.device),
        rows.group,
    )
    n_features, n_outputs = rows.features.d, config.loss.n_outputs(rows.q)
    if isinstance(config.model, str):
        seeds = [[config.seed] * len(config.lr)]
        network = NETWORKS[config.model](n_features, n_outputs, seeds, dtype=config.dtype, device=config.device)
        result = _train_network(config, config.lr, network, rows, criterion, on_progress, checkpoint)
        if config.scaling is not None:
            result.network.arrays = config.scaling.restore(result.network.arrays)
        return result
    results: list[FitResult] = []
    interrupted = False
    for lr in config.lr:
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            module = config.model(n_features, n_outputs).to(config.device)
            part = None if checkpoint is None else checkpoint.of(f"lr{lr:g}")
            try:
                results.append(_train_network(config, (lr,), UserNetwork(module), rows, criterion, on_progress, part))
            except KeyboardInterrupt:
                if not results:
                    raise
                interrupted = True
        interrupted = interrupted or results[-1].interrupted
        if interrupted:
            break
    best = results[first_smallest([result.selected["value"] for result in results])]
    history = [row for result in results for row in result.history]
    checkpoints = () if interrupted else tuple(c for result in results for c in result.checkpoints)
    advice = () if interrupted else _edge_advice(best.selected, history)
    return FitResult(best.network, history, best.selected, interrupted, checkpoints, advice)


def _train_network(
    config: TrainingConfig,
    lrs: tuple[float, ...],
    network: Network,
    rows: TrainingRows,
    criterion: Callable[[Network], Tensor],
    on_progress: OnProgress | None,
    checkpoint: Checkpoint | None,
) -> FitResult:
    """Train a network with some learning rates and return the best run."""
    lr = torch.tensor([lrs], dtype=config.dtype, device=config.device)
    weight_decay = DEFAULT_WEIGHT_DECAY if config.weight_decay is None else config.weight_decay
    optimizer = StackedAdam(network.parameters, lr, torch.full_like(lr, weight_decay))
    selection = KeepBest(criterion)
    result = loop.train(
        network,
        Objective.of(config.loss),
        rows.features,
        rows.labels,
        rows.batches,
        optimizer,
        selection,
        epochs=config.epochs,
        weights=rows.weights,
        on_progress=on_progress,
        checkpoint=checkpoint,
        group=rows.group,
    )
    best, selected, history = _training_summary(config, lrs, selection, result)
    checkpoints: tuple[Checkpoint, ...] = ()
    advice: tuple[str, ...] = ()
    if not result.interrupted:
        advice = _edge_advice(selected, history)
        if checkpoint is not None:
            checkpoints = (checkpoint,)
            if result.start_epoch < config.epochs:
                # Stored as the last epoch even after early stopping: the same fit then resumes without training.
                final = Checkpoint(checkpoint.path, checkpoint.fingerprint, every=1, is_main=checkpoint.is_main)
                final.save(config.epochs - 1, network, optimizer, selection, result)
    return FitResult(extract_run(network, best), history, selected, result.interrupted, checkpoints, advice)


def _training_summary(
    config: TrainingConfig, lrs: tuple[float, ...], selection: KeepBest, result: loop.TrainingResult
) -> tuple[int, dict[str, Any], list[dict[str, float]]]:
    """Return the index of the best learning rate, the selected configuration and the history of all runs."""
    assert selection.best is not None
    assert selection.best_epoch is not None
    best, epochs = first_smallest(selection.best[0].tolist()), len(result.losses)
    # An interrupted epoch may already be the best one, although it has no row in the history.
    epoch = min(int(selection.best_epoch[0, best]) + 1, epochs)
    losses = torch.stack(result.losses)[:, 0].double().cpu().numpy()
    values = torch.stack(result.criteria)[:, 0].cpu().numpy()
    history = [
        {"lr": rate, "epoch": e + 1, "loss": float(losses[e, k]), config.criterion: float(values[e, k])}
        for k, rate in enumerate(lrs)
        for e in range(len(values))
    ]
    selected = {
        "criterion": config.criterion,
        "value": float(selection.best[0, best]),
        "lr": lrs[best],
        "epoch": epoch,
        "epochs": epochs,
        "loss": float(result.losses[epoch - 1][0, best]),
    }
    return best, selected, history


def _edge_advice(selected: dict[str, Any], history: list[dict[str, float]]) -> tuple[str, ...]:
    """Return sentences about a diverged training, a learning rate at the edge of its grid, and a best last epoch."""
    if not np.isfinite(selected["value"]):
        return ("The training diverged: the scores are not finite. Use a smaller lr, or scale the features.",)
    advice = []
    lr, criterion = selected["lr"], selected["criterion"]
    given = list(dict.fromkeys(row["lr"] for row in history))
    grid = sorted(given)
    # The largest learning rate has converged if its best epoch is not one of the last: a larger one is not needed.
    converged = selected["epoch"] <= MIN_LATE_EPOCH * selected["epochs"]
    if len(grid) > 1 and (lr == grid[0] or (lr == grid[-1] and not converged)):
        next_lr, edge, change = (grid[1], "smallest", "smaller") if lr == grid[0] else (grid[-2], "largest", "larger")
        # Equally good learning rates are no evidence that a value outside the grid is better.
        if min(row[criterion] for row in history if row["lr"] == next_lr) > selected["value"] + MIN_IMPROVEMENT:
            advice.append(
                f"The selected learning rate {lr:g} is the {edge} of lr={given}; a {change} one may be better."
            )
    if selected["epoch"] == selected["epochs"] > 1:
        advice.append(
            f"The best epoch is the last one ({selected['epoch']}): the validation loss was still decreasing. "
            "Increase epochs."
        )
    return tuple(advice)


def first_smallest(values: list[float]) -> int:
    """Return the index of the first value that is smallest up to rounding; NaN is the largest."""
    array = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=np.inf, posinf=np.inf)
    return int(np.flatnonzero(array <= array.min() + MIN_IMPROVEMENT)[0])


class Solver(Protocol):
    """Function that fits a network to training rows and selects hyperparameters on validation rows."""

    def __call__(
        self,
        config: TrainingConfig,
        data: Split,
        on_progress: OnProgress | None = None,
        checkpoint: Checkpoint | None = None,
        on_phase: OnPhase = _no_report,
    ) -> FitResult:
        """Return the fitted network."""


def fit_logistic(
    config: TrainingConfig,
    data: Split,
    on_progress: OnProgress | None = None,
    checkpoint: Checkpoint | None = None,
    on_phase: OnPhase = _no_report,
) -> FitResult:
    """Fit the model "linear" or "average" by Newton steps."""
    return (fit_average if config.model == "average" else fit_newton)(config, data, on_phase)


SOLVERS: dict[str, Solver] = {"closed_form": fit_closed_form, "newton": fit_logistic, "adam": fit_adam}
"""Solvers by name."""
