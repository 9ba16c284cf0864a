"""Solvers: closed form, L-BFGS and Adam. Each turns a configuration and two samples into a fitted network.

The closed form and L-BFGS compute a path of l2 weights and select one for each label on the validation rows. Adam
trains all learning rates at the same time and selects learning rate and epoch on the validation rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn.losses import MultiLabelLoss
from ccmn.models.predictor import FittedNetwork, MakeModule, extract_run
from ccmn.models.training_data import Labels, Sample
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
from ccmn.training.lbfgs import LogisticPath, can_decompose
from ccmn.training.ridge import MAX_DECOMPOSITION_SIZE, l2_path, limit_threads
from ccmn.training.selection import MIN_IMPROVEMENT, ValidationCriterion, criterion_of_scores

MAX_LBFGS_ROWS = 5000
"""Up to this number of rows, "auto" prefers L-BFGS to Adam (docs/training.md has the measurements)."""
MIN_RISK_DECREASE = 0.5
"""Standard errors by which the validation risk of a label must decrease for a smaller l2 weight to be selected."""
MIN_EXTRA_DEGREES = 5
"""Degrees of freedom that smaller l2 weights must add without an improvement before the path of a label ends."""
MIN_EDGE_DECREASE = 1e-3
"""A label counts as selecting the end of the path if its square risk decreases by more than this in the last step."""
MIN_LATE_EPOCH = 0.9
"""A larger learning rate is advised if the best epoch is after this share of the epochs. In 5 synthetic fits with an
earlier best epoch at the learning rate 0.05, the largest one, adding 0.2 decreased the test loss once."""
MIN_L2 = 1e-10
"""The l2 path ends here for ``weight_decay=0``; a smaller l2 weight does not change the solution."""

OnProgress = Callable[[EpochProgress], None]


@dataclass(frozen=True)
class TrainingConfig:
    """Configuration of a fit: everything except the data."""

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
    weight_decay: float
    criterion: str
    """Validation criterion, a key of ``ccmn.training.selection.CRITERIA``."""
    patience: int | None
    device: torch.device
    dtype: torch.dtype
    autocast: bool
    seed: int


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
    """Sentences of one warning about a selection at the edge of its grid."""


# -- Choice of the solver

_LINEAR = (
    "model='linear', loss='hamming', surrogate={!r}, correction=None, and labels that are dense and observed everywhere"
)
REQUIREMENTS = {
    "closed_form": f"solver='closed_form' requires {_LINEAR.format('square')}; use solver='auto'",
    "lbfgs": f"solver='lbfgs' requires {_LINEAR.format('logistic')}, and at most {MAX_DECOMPOSITION_SIZE} rows or "
    "features (for sparse X at most that many features, and 256 MB as a dense array); use solver='auto'",
}
"""Error messages of the solvers that need all rows in memory."""


def choose_solver(config: TrainingConfig, train: Sample, valid: Sample) -> str:
    """Return the requested solver, or for "auto" the fastest one that supports this configuration and data."""
    supported = config.model == "linear" and config.loss_name == "hamming" and config.loss.correction is None
    # The closed form and L-BFGS need all labels of all rows as dense arrays.
    supported = supported and isinstance(train.p, np.ndarray) and isinstance(valid.p, np.ndarray)
    supported = supported and not np.isnan(train.dense_labels()).any()
    possible = {
        "closed_form": supported and config.surrogate == "square",
        "lbfgs": supported and config.surrogate == "logistic" and can_decompose(train.X),
    }
    if config.solver != "auto":
        if not possible.get(config.solver, True):
            raise ValueError(REQUIREMENTS[config.solver])
        return config.solver
    if possible["closed_form"]:
        return "closed_form"
    return "lbfgs" if possible["lbfgs"] and train.X.shape[0] <= MAX_LBFGS_ROWS else "adam"


# -- Closed form and L-BFGS


def fit_closed_form(
    config: TrainingConfig,
    train: Sample,
    valid: Sample,
    on_progress: OnProgress | None = None,
    checkpoint: Checkpoint | None = None,
) -> FitResult:
    """Compute a ridge path; select the l2 weight of each label by its (unbiased) square risk on validation rows.

    Labels differ in the amount of noise and therefore in the best l2 weight. The square risk varies less than the
    Hamming loss if labels are rare or noisy. The history has one row per l2 weight.
    """
    p, p_valid = train.dense_labels().astype(np.float64), valid.dense_labels()
    # Above the mean squared norm of a row, only the bias is not shrunk to zero.
    l2 = l2_path(config.weight_decay, 2 * _mean_squared_norm(train))
    with limit_threads(train.X):
        path = ridge_path(train.X, p, l2, train.weights)
        target, observed = 2 * np.nan_to_num(p_valid.astype(np.float64)) - 1, ~np.isnan(p_valid)
        risks, criteria = [], []
        for scores in path.scores(valid.X):
            # The square loss of each label except for a constant.
            risks.append(_column_means(scores**2 - 2 * scores * target, observed, valid.weights))
            criteria.append(_criterion(config, valid, scores))
        choice = np.array([first_smallest(list(column)) for column in np.stack(risks).T])
        weights, bias = path.solution(choice)
        value = _criterion(config, valid, np.asarray(valid.X @ weights) + bias)
    at_edge = (choice == len(path.l2) - 1) & (risks[-2] - risks[-1] > MIN_EDGE_DECREASE)
    return _path_result(config, path.l2, criteria, value, choice, at_edge, weights, bias)


def fit_lbfgs(
    config: TrainingConfig,
    train: Sample,
    valid: Sample,
    on_progress: OnProgress | None = None,
    checkpoint: Checkpoint | None = None,
) -> FitResult:
    """Compute an l2 path by L-BFGS from the largest weight; select the l2 weight of each label on validation rows.

    Weights are compared by the (unbiased) square risk of the probabilities: the logistic risk has no lower bound for
    debiased labels. A smaller l2 weight must be better by ``MIN_RISK_DECREASE`` standard errors. The path of a label
    ends after two l2 weights without improvement that have added ``MIN_EXTRA_DEGREES`` degrees of freedom or half of
    all; otherwise one feature of large scale could end it. The history has one row per l2 weight, with the criterion
    of all labels at their best l2 weight so far.
    """
    p, p_valid = train.dense_labels().astype(np.float64), valid.dense_labels().astype(np.float64)
    q = p.shape[1]
    with limit_threads(train.X):
        path = LogisticPath(train.X, p, train.weights)
        # A quarter of the mean squared norm of a row bounds the curvature. Above it, only the bias is not shrunk to 0.
        l2 = l2_path(config.weight_decay, _mean_squared_norm(train) / 2)
        rotated = path.rotate(valid.X)
        weights, bias = path.weights.copy(), path.bias.copy()
        scores = path.scores(rotated, np.arange(q))
        choice = np.zeros(q, dtype=np.intp)
        criteria: list[float] = []
        degrees = np.array([path.degrees_of_freedom(float(lam)) for lam in l2])
        enough = min(MIN_EXTRA_DEGREES, path.basis.shape[1] / 2)
        for i, lam in enumerate(l2):
            active = np.flatnonzero((choice >= i - 2) | (degrees[max(i - 1, 0)] - degrees[choice] < enough))
            if not len(active):
                break
            path.solve(float(lam), active)
            new_scores = path.scores(rotated, active)
            better = _risk_decreases(new_scores, scores[:, active], p_valid[:, active], valid.weights)
            improved = active[better]
            choice[improved], scores[:, improved] = i, new_scores[:, better]
            weights[:, improved], bias[improved] = path.weights[:, improved], path.bias[improved]
            criteria.append(_criterion(config, valid, scores))
        weights = path.basis @ weights
    at_edge = choice == len(l2) - 1
    return _path_result(config, l2, criteria, criteria[-1], choice, at_edge, weights, bias - path.x_mean @ weights)


def _path_result(
    config: TrainingConfig,
    l2: NDArray[np.float64],
    criteria: list[float],
    value: float,
    choice: NDArray[np.intp],
    at_edge: NDArray[np.bool_],
    weights: NDArray[np.float64],
    bias: NDArray[np.float64],
) -> FitResult:
    """Return the result of an l2 path from the criterion of every l2 weight and the selection of every label."""
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
            f"The smallest l2 of the path, weight_decay={smallest:g}, is selected for {count} of {len(at_edge)} "
            "labels; a smaller weight_decay may be better.",
        )
    arrays = {"weight": weights.astype(np.float32), "bias": bias.astype(np.float32)}
    return FitResult(FittedNetwork("linear", arrays), history, selected, advice=advice)


def _criterion(config: TrainingConfig, valid: Sample, scores: NDArray[Any]) -> float:
    """Return the validation criterion of scores (n, q)."""
    weights = None if valid.weights is None else torch.from_numpy(valid.weights)
    p = torch.from_numpy(valid.dense_labels())
    return float(criterion_of_scores(config.criterion, p, torch.from_numpy(scores), weights))


def _mean_squared_norm(sample: Sample) -> float:
    """Return the mean squared norm of a row."""
    X = sample.X
    squares = np.asarray(X.multiply(X).sum(1)).ravel() if is_sparse(X) else np.square(X, dtype=np.float64).sum(1)
    return float(np.average(squares, weights=sample.weights))


def _risk_decreases(
    scores: NDArray[np.float32],
    previous: NDArray[np.float32],
    p: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
) -> NDArray[np.bool_]:
    """Return for which labels the square risk of the probabilities, the mean of (p - sigma(f))^2, has decreased."""
    observed = ~np.isnan(p)
    new, old = expit(scores.astype(np.float64)), expit(previous.astype(np.float64))
    decreases = (old - new) * (old + new - 2 * np.nan_to_num(p))
    decrease = _column_means(decreases, observed, weights)
    variance = _column_means((decreases - decrease) ** 2, observed, weights)
    share = observed * (1.0 if weights is None else weights[:, None])
    n_rows = share.sum(0) ** 2 / np.maximum((share**2).sum(0), np.finfo(np.float64).tiny)  # Kish's effective number
    error = np.sqrt(variance / np.maximum(n_rows, 1))
    return np.asarray(decrease > np.maximum(MIN_RISK_DECREASE * error, MIN_IMPROVEMENT))


def _column_means(
    values: NDArray[np.float64], observed: NDArray[np.bool_], weights: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return the weighted mean of every column over its observed rows."""
    share = observed if weights is None else observed * weights[:, None]
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


def rows_in_memory(config: TrainingConfig, sample: Sample) -> TrainingRows:
    """Return the rows of a sample in shuffled batches, of which every rank takes a share."""
    device, dtype, group = config.device, config.dtype, ProcessGroup.current()
    rows = Rows([np.arange(sample.X.shape[0])], config.batch_size, [config.seed], device=device)
    weights = None
    if sample.weights is not None:
        # Weights with a mean of 1: the learning rate does not depend on their scale.
        weights = torch.from_numpy(sample.weights / sample.weights.mean()).to(device, dtype)
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
    train: Sample | TrainingRows,
    valid: Sample,
    on_progress: OnProgress | None = None,
    checkpoint: Checkpoint | None = None,
) -> FitResult:
    """Train all learning rates at the same time, or one after the other for a module of the user; select the best."""
    rows = train if isinstance(train, TrainingRows) else rows_in_memory(config, train)
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
        return _train_network(config, config.lr, network, rows, criterion, on_progress, checkpoint)
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
    optimizer = StackedAdam(network.parameters, lr, torch.full_like(lr, config.weight_decay))
    selection = KeepBest(criterion, patience=config.patience)
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
        autocast=config.autocast,
    )
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
        train: Sample,
        valid: Sample,
        on_progress: OnProgress | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> FitResult:
        """Return the fitted network."""


SOLVERS: dict[str, Solver] = {"closed_form": fit_closed_form, "lbfgs": fit_lbfgs, "adam": fit_adam}
"""Solvers by name."""
