"""The parameters of CCMNClassifier as a recipe: which loss, criterion, batches, device and precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ccmn._validation import check_device
from ccmn.losses import ForwardLoss, HammingLoss, MultiLabelLoss, RankingLoss
from ccmn.models.fitting import Recipe
from ccmn.models.plugin import PluginLoss
from ccmn.models.targets import Targets
from ccmn.noise import NoiseModel

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier

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
