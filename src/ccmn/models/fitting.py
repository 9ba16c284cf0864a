"""From labels and features in memory to one fitted network: the loop or the closed form, the best by validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from ccmn.data.containers import is_sparse
from ccmn.losses import MultiLabelLoss
from ccmn.models.choosing import HeldOut, criterion_of
from ccmn.models.fitted import FittedNetwork, MakeModule, run_of
from ccmn.training import (
    NETWORKS,
    Batches,
    DenseLabels,
    KeepBest,
    LabelRows,
    Network,
    Objective,
    Progress,
    Ranks,
    Rows,
    SharedAdam,
    SharedBatches,
    SparseLabels,
    StackedAdam,
    TrainingResult,
    UserNetwork,
    ridge_path,
    train,
)
from ccmn.training.batches import Features
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.closed_form import l2_path
from ccmn.training.logistic import LogisticPath

SURE_GAIN = 0.5
"""Standard errors by which a label's risk must fall on validation rows for a smaller l2 to be taken."""

Labels = NDArray[np.float32] | SparseLabels
"""Labels (n, q): debiased ones, or as the loss takes them; NaN where not observed."""


@dataclass
class Sample:
    """Rows with their debiased labels p (n, q), NaN where not observed."""

    X: Any
    p: Labels
    weights: NDArray[np.float64] | None

    def labels_of(self, labels: slice) -> NDArray[np.float32]:
        """The debiased labels of some columns."""
        return self.p.columns(labels) if isinstance(self.p, SparseLabels) else self.p[:, labels]

    def dense_labels(self) -> NDArray[np.float32]:
        """All debiased labels: for a sample of few rows."""
        if not isinstance(self.p, SparseLabels):
            return self.p
        return self.p.gather(torch.arange(self.p.shape[0]).unsqueeze(0))[0].numpy()

    def take(self, rows: NDArray[Any]) -> Sample:
        return Sample(self.X[rows], self.p[rows], None if self.weights is None else self.weights[rows])


@dataclass(frozen=True)
class Recipe:
    """How to train: everything but the data."""

    loss: MultiLabelLoss
    raw_labels: bool
    """Does the loss debias by itself (forward likelihood, transition matrix)?"""
    model: str | MakeModule
    lr: tuple[float, ...]
    epochs: int
    batch_size: int
    weight_decay: float
    criterion: str
    patience: int | None
    device: torch.device
    dtype: torch.dtype
    autocast: bool
    seed: int


@dataclass
class Fitted:
    """The winner, what it was chosen by, and the rows of ``history_``."""

    network: FittedNetwork
    history: list[dict[str, float]]
    interrupted: bool = False


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
    choice = np.array([_first_smallest(list(column)) for column in np.stack(risks).T])
    weights, bias = path.solution(choice)
    history = [
        {"l2": float(path.l2[i]), recipe.criterion: criteria[i], "labels": int((choice == i).sum())}
        for i in range(len(criteria))
    ]
    arrays = {"weight": weights.astype(np.float32), "bias": bias.astype(np.float32)}
    return Fitted(FittedNetwork("linear", arrays), history)


def fit_logistic_path(recipe: Recipe, training: Sample, validation: Sample) -> Fitted:
    """An l2 path by L-BFGS, from the largest down; every label with its own l2, by validation rows.

    They are compared by the (unbiased) square risk of the probabilities: the logistic risk itself has no lower bound
    under debiased labels, and would be led astray by noise. A smaller l2 has to be better by ``SURE_GAIN`` standard
    errors; a label for which none has been for two l2 is done. One history row per l2, with the criterion that all
    labels have at their best l2 so far.
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
    for i, lam in enumerate(l2):
        active = np.flatnonzero(choice >= i - 2)
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
    return Fitted(FittedNetwork("linear", arrays), history)


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
    p, weights = torch.from_numpy(_dense(validation)), _tensor(validation.weights)
    return lambda scores: criterion_of(recipe.criterion, p, scores, weights)


def _tensor(weights: NDArray[np.float64] | None) -> Tensor | None:
    return None if weights is None else torch.from_numpy(weights)


@dataclass(frozen=True)
class Training:
    """What the loop is given of the rows to train on: in memory, or a stream of them."""

    features: Features
    labels: LabelRows
    batches: Batches
    q: int
    weights: Tensor | None = None
    ranks: Ranks = field(default_factory=Ranks)


def in_memory(recipe: Recipe, training: Sample, labels: Labels) -> Training:
    """Rows in memory; of several processes each takes its share of every batch."""
    device, dtype, ranks = recipe.device, recipe.dtype, Ranks.current()
    rows = Rows([np.arange(training.X.shape[0])], recipe.batch_size, [recipe.seed], device=device)
    return Training(
        Features(training.X, dtype=dtype, device=device),
        label_rows(labels, device, dtype),
        rows if ranks.world == 1 else SharedBatches(rows, ranks),
        labels.shape[1],
        _mean_one(training.weights, device, dtype),
        ranks,
    )


def fit_loop(
    recipe: Recipe,
    training: Training,
    held_out: HeldOut,
    tell: Callable[[Progress], None] | None,
    checkpoint: Checkpoint | None,
) -> Fitted:
    """All learning rates at once (one after the other for a user's own network); the best by validation."""
    n_features, n_outputs = training.features.d, recipe.loss.n_outputs(training.q)
    if isinstance(recipe.model, str):
        seeds = [[recipe.seed] * len(recipe.lr)]
        network = NETWORKS[recipe.model](n_features, n_outputs, seeds, dtype=recipe.dtype, device=recipe.device)
        return _fit_stack(recipe, recipe.lr, network, training, held_out, tell, checkpoint)
    best: Fitted | None = None
    history: list[dict[str, float]] = []
    for lr in recipe.lr:
        with torch.random.fork_rng():
            torch.manual_seed(recipe.seed)
            module = recipe.model(n_features, n_outputs).to(recipe.device)
            own = None if checkpoint is None else checkpoint.of(f"lr{lr:g}")
            try:
                part = _fit_stack(recipe, (lr,), UserNetwork(module), training, held_out, tell, own)
            except KeyboardInterrupt:
                if best is None:
                    raise
                return Fitted(best.network, history, interrupted=True)
        history += part.history
        if best is None or _best_of(part, recipe) < _best_of(best, recipe) - KeepBest.smallest_gain:
            best = part
        if part.interrupted:
            break
    assert best is not None
    if checkpoint is not None and not part.interrupted:
        for lr in recipe.lr:
            checkpoint.of(f"lr{lr:g}").remove()
    return Fitted(best.network, history, best.interrupted or part.interrupted)


def _fit_stack(
    recipe: Recipe,
    lrs: tuple[float, ...],
    network: Network,
    training: Training,
    held_out: HeldOut,
    tell: Callable[[Progress], None] | None,
    checkpoint: Checkpoint | None,
) -> Fitted:
    lr = torch.tensor([lrs], dtype=recipe.dtype, device=recipe.device)
    selection = KeepBest(lambda net: held_out.criterion(recipe.criterion, net, recipe.loss), patience=recipe.patience)
    result = train(
        network,
        Objective.of(recipe.loss),
        training.features,
        training.labels,
        training.batches,
        _optimiser(network, lr, recipe.weight_decay, training.ranks),
        selection,
        epochs=recipe.epochs,
        weights=training.weights,
        tell=tell,
        checkpoint=checkpoint,
        autocast=recipe.autocast,
    )
    assert selection.best is not None
    best = _first_smallest(selection.best[0].tolist())
    return Fitted(run_of(network, best), _history(result, lrs, recipe.criterion), result.interrupted)


def _optimiser(network: Network, lr: Tensor, weight_decay: float, ranks: Ranks) -> StackedAdam:
    decay = torch.full_like(lr, weight_decay)
    if ranks.world == 1:
        return StackedAdam(network.parameters, lr, decay)
    return SharedAdam(ranks, network.parameters, lr, decay)


def _mean_one(weights: NDArray[np.float64] | None, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """Row weights scaled to a mean of 1, so that batches of any size weigh their rows alike."""
    if weights is None:
        return None
    return torch.from_numpy(weights / weights.mean()).to(device, dtype)


def held_out_rows(recipe: Recipe, validation: Sample) -> HeldOut:
    """The rows to choose by, as the loop looks at them."""
    weights = _tensor(validation.weights)
    return HeldOut(
        Features(validation.X, dtype=recipe.dtype, device=recipe.device),
        label_rows(validation.p, recipe.device, torch.float32),
        None if weights is None else weights.to(recipe.device),
        Ranks.current(),
    )


def label_rows(labels: Labels, device: torch.device, dtype: torch.dtype) -> LabelRows:
    """Labels in memory, as the loop takes them."""
    if isinstance(labels, SparseLabels):
        return labels.to(device, dtype)
    return DenseLabels(torch.from_numpy(labels).to(device, dtype))


def _history(result: TrainingResult, lrs: tuple[float, ...], criterion: str) -> list[dict[str, float]]:
    losses = torch.stack(result.losses)[:, 0].double().cpu().numpy()
    values = torch.stack(result.criteria)[:, 0].cpu().numpy()
    return [
        {"lr": lr, "epoch": epoch + 1, "loss": float(losses[epoch, k]), criterion: float(values[epoch, k])}
        for k, lr in enumerate(lrs)
        for epoch in range(len(values))
    ]


def _best_of(fitted: Fitted, recipe: Recipe) -> float:
    return min(row[recipe.criterion] for row in fitted.history)


def _first_smallest(values: list[float]) -> int:
    """The first of those that differ from the smallest by no more than rounding; NaN is worst."""
    array = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=np.inf)
    return int(np.flatnonzero(array <= array.min() + KeepBest.smallest_gain)[0])
