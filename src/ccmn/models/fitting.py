"""What epochs, learning rates and l2 are chosen by: criteria on held-out rows, worked out a block of rows at a time.

From labels and features in memory to one fitted network by the loop, the best by validation.

The parameters of CCMNClassifier as a recipe: which loss, criterion, batches, device and precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn._validation import check_device
from ccmn.losses import ForwardLoss, HammingLoss, MultiLabelLoss, RankingLoss
from ccmn.metrics.corrected_metrics import Sums, hamming_sums, one_error_sums, pooled_ranking_sums
from ccmn.models.plugin import PluginLoss
from ccmn.models.predictor import FittedNetwork, MakeModule, run_of
from ccmn.models.training_data import Labels, Sample, Targets
from ccmn.noise import NoiseModel
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
    train,
)
from ccmn.training.batches import Features
from ccmn.training.checkpoint import Checkpoint

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier


ENTRIES_AT_ONCE = 1 << 20
"""Scores in memory at once: some ten float64 temporaries of this size are made of them."""
ROWS_AT_ONCE = 8192


def _hamming(p: Tensor, scores: Tensor, weights: Tensor | None) -> Sums:
    return hamming_sums(p, scores >= 0, weights)


Part = Callable[[Tensor, Tensor, Tensor | None], Sums]
"""(debiased labels (n, q), scores (..., n, q), row weights) -> a quotient of sums over rows."""

CRITERIA: dict[str, tuple[Part, ...]] = {
    "hamming_loss": (_hamming,),
    # The order of the labels and the cut between them: the ranking loss alone would not look at the cut.
    "ranking_and_hamming_loss": (pooled_ranking_sums, _hamming),
    "one_error": (one_error_sums,),
}
"""The sum of these quotients is what is chosen by; smaller is better."""


def criterion_of(name: str, p: Tensor, scores: Tensor, weights: Tensor | None) -> Tensor:
    """The criterion of whole scores (..., n, q): (...)."""
    return _value([part(p, scores, weights) for part in CRITERIA[name]], ~_finite(scores))


@dataclass(frozen=True)
class HeldOut:
    """The rows that a training is judged on.

    Parameters
    ----------
    features, labels : the rows, their labels debiased
    weights : tensor (n,) or None
    ranks : of several processes each looks at some of the rows
    """

    features: Features
    labels: LabelRows
    weights: Tensor | None = None
    ranks: Ranks = field(default_factory=Ranks)

    def criterion(self, name: str, network: Network, loss: MultiLabelLoss) -> Tensor:
        """The criterion of every run, (G, K), for G = 1."""
        shape, device = (network.groups, network.runs), self.features.device
        wrong = torch.zeros(len(CRITERIA[name]) + 1, *shape, dtype=torch.float64, device=device)
        total = torch.zeros(len(CRITERIA[name]), dtype=torch.float64, device=device)
        for rows in self._blocks(network.runs):
            p = self.labels.gather(rows)[0]
            scores = loss.decision(network.outputs(self.features.gather(rows)))
            weights = None if self.weights is None else self.weights[rows[0]]
            for i, part in enumerate(CRITERIA[name]):
                sums = part(p, scores, weights)
                wrong[i] += sums.wrong
                total[i] += sums.total
            wrong[-1] += ~_finite(scores)
        self.ranks.add_up(wrong)
        self.ranks.add_up(total)
        return _value([Sums(w, t) for w, t in zip(wrong, total)], wrong[-1] > 0)

    def _blocks(self, runs: int) -> Iterator[Tensor]:
        """Row numbers (1, B)."""
        rows = torch.arange(self.features.n, device=self.features.device).unsqueeze(0)
        q = self.labels.gather(rows[:, :1]).shape[-1]
        size = max(1, min(ROWS_AT_ONCE, ENTRIES_AT_ONCE // (q * runs)))
        yield from torch.split(rows, size, 1)[self.ranks.rank :: self.ranks.world]


def _value(sums: list[Sums], diverged: Tensor) -> Tensor:
    # No pairs on balance (every label constant, few noisy rows): no order to look at, but still a cut.
    parts = [torch.where(s.total > 0, s.ratio(), 0.0) for s in sums]
    # A run that diverged predicts nothing (NaN >= 0 is false), which must not pass for being right.
    return torch.stack(parts).sum(0).masked_fill(diverged, torch.inf)


def _finite(scores: Tensor) -> Tensor:
    """Are all scores of a run finite?"""
    return scores.isfinite().all(-1).all(-1)


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
    """A fitted network, the rows of ``history_``, and the configuration selected on the validation set."""

    network: FittedNetwork
    history: list[dict[str, float]]
    selected: dict[str, Any]
    """The value of ``selected_``."""
    interrupted: bool = False
    checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints of a completed fit, which are deleted when the model has been saved."""
    advice: tuple[str, ...] = ()
    """Sentences about a selection at the edge of its grid, for one warning."""


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
                return Fitted(best.network, history, best.selected, interrupted=True)
        history += part.history
        if best is None or part.selected["value"] < best.selected["value"] - KeepBest.smallest_gain:
            best = part
        if part.interrupted:
            break
    assert best is not None
    interrupted = best.interrupted or part.interrupted
    checkpoints: tuple[Checkpoint, ...] = ()
    if checkpoint is not None and not interrupted:
        checkpoints = tuple(checkpoint.of(f"lr{lr:g}") for lr in recipe.lr)
    advice = () if interrupted else _edge_advice(best.selected, history)
    return Fitted(best.network, history, best.selected, interrupted, checkpoints, advice)


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
    epochs_trained = 0

    def criterion(net: Network) -> Tensor:
        nonlocal epochs_trained
        epochs_trained += 1
        return held_out.criterion(recipe.criterion, net, recipe.loss)

    selection = KeepBest(criterion, patience=recipe.patience)
    optimizer = _optimiser(network, lr, recipe.weight_decay, training.ranks)
    result = train(
        network,
        Objective.of(recipe.loss),
        training.features,
        training.labels,
        training.batches,
        optimizer,
        selection,
        epochs=recipe.epochs,
        weights=training.weights,
        tell=tell,
        checkpoint=checkpoint,
        autocast=recipe.autocast,
    )
    assert selection.best is not None
    assert selection.best_epoch is not None
    best = first_smallest(selection.best[0].tolist())
    # An interrupted epoch may already be the best one but has no row in the history.
    epoch = min(int(selection.best_epoch[0, best]) + 1, result.epochs)
    selected = {
        "criterion": recipe.criterion,
        "value": float(selection.best[0, best]),
        "lr": lrs[best],
        "epoch": epoch,
        "epochs": result.epochs,
        "loss": float(result.losses[epoch - 1][0, best]),
    }
    checkpoints: tuple[Checkpoint, ...] = ()
    if checkpoint is not None and not result.interrupted:
        checkpoints = (checkpoint,)
        if epochs_trained:
            # Stored as the last epoch even after early stopping: the same fit then resumes without training.
            final = Checkpoint(checkpoint.path, checkpoint.fingerprint, every=1, writes=checkpoint.writes)
            final.save(recipe.epochs - 1, network, optimizer, selection, result)
    history = _history(result, lrs, recipe.criterion)
    advice = () if result.interrupted else _edge_advice(selected, history)
    return Fitted(run_of(network, best), history, selected, result.interrupted, checkpoints, advice)


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
    weights = validation.weights_tensor()
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


def _edge_advice(selected: dict[str, Any], history: list[dict[str, float]]) -> tuple[str, ...]:
    """Return a sentence for a selected learning rate at the edge of its grid and one if the last epoch is the best."""
    advice = []
    lr, criterion = selected["lr"], selected["criterion"]
    given = list(dict.fromkeys(row["lr"] for row in history))
    grid = sorted(given)
    if len(grid) > 1 and lr in (grid[0], grid[-1]):
        next_lr, edge, change = (grid[1], "smallest", "smaller") if lr == grid[0] else (grid[-2], "largest", "larger")
        # Equally good learning rates are no evidence that a value outside the grid is better.
        if min(row[criterion] for row in history if row["lr"] == next_lr) > selected["value"] + KeepBest.smallest_gain:
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
    """The first of those that differ from the smallest by no more than rounding; NaN is worst."""
    array = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=np.inf)
    return int(np.flatnonzero(array <= array.min() + KeepBest.smallest_gain)[0])


FEW_ROWS = 256
"""Up to this many rows a batch is all of them."""


def recipe_of(clf: CCMNClassifier, noise: NoiseModel, targets: Targets, n: int, seed: int) -> Recipe:
    """How to train on n rows whose labels went wrong by ``noise``."""
    loss, raw = make_loss(clf, noise)
    criterion = "ranking_and_hamming_loss" if clf.loss == "ranking" and targets.q > 1 else "hamming_loss"
    if targets.kind == "multiclass":
        criterion = "one_error"
    device = torch.device(check_device(clf.device, torch.cuda.is_available()))
    # Few rows cost nothing in float64, and there no result depends on how sums happen to round.
    exact = n <= FEW_ROWS and isinstance(clf.model, str) and device.type == "cpu"
    return Recipe(
        loss=loss,
        raw_labels=raw,
        model=clf.model,
        lr=tuple(float(x) for x in np.atleast_1d(np.asarray(clf.lr, dtype=np.float64))),
        epochs=clf.epochs,
        batch_size=_usual_batch(n) if isinstance(clf.batch_size, str) else int(clf.batch_size),
        weight_decay=float(clf.weight_decay),
        criterion=criterion,
        patience=clf.patience,
        device=device,
        dtype=torch.float64 if exact else torch.float32,
        autocast=bool(clf.autocast) and device.type != "cpu",
        seed=seed,
    )


def make_loss(clf: CCMNClassifier, noise: NoiseModel) -> tuple[MultiLabelLoss, bool]:
    """The loss, and whether it takes noisy labels (and not debiased ones)."""
    if clf.loss == "forward":
        return ForwardLoss(noise), True  # type: ignore[arg-type]
    if clf.loss == "plugin":
        return PluginLoss(noise), True  # type: ignore[arg-type]
    # A transition matrix moves labels together: the ranking loss must know.
    own = None if noise.flips_independent else noise
    kind = HammingLoss if clf.loss == "hamming" else RankingLoss
    return kind(clf.surrogate, own, correction=clf.correction, flood_level=clf.flood_level), own is not None


def _usual_batch(n: int) -> int:
    if n <= FEW_ROWS:
        return n
    return 100 if n <= 5000 else 400
