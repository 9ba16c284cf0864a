"""The main job on bundled data: noisy labels in, plain and unbiased models trained, compared on clean test labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ccmn.data.digits import load_digit_scenes
from ccmn.losses import HammingLoss, MultiLabelLoss, RankingLoss
from ccmn.metrics import average_precision, hamming_loss, ranking_loss
from ccmn.noise import ClassConditionalNoise, NoiseModel

MakeLoss = Callable[[NoiseModel | None], MultiLabelLoss]

LOSSES: dict[str, MakeLoss] = {
    "hamming / logistic": lambda noise: HammingLoss("logistic", noise),
    "ranking / sigmoid": lambda noise: RankingLoss("sigmoid", noise),
}


@dataclass(frozen=True)
class DemoRow:
    """One trained model, measured on clean test labels."""

    loss: str
    labels: str
    """"clean" (the ceiling), "plain" (noisy labels taken at their word) or "unbiased" (noisy labels debiased)."""
    hamming_loss: float
    ranking_loss: float
    average_precision: float


@dataclass(frozen=True)
class DemoSetting:
    """What the demonstration ran on."""

    n_train: int
    n_test: int
    noise: ClassConditionalNoise
    wrong_labels: float
    """The share of training labels that were flipped."""


def prepare_demo(n: int, seed: int) -> tuple[DemoSetting, tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The digit scenes, split in two halves of different handwriting, and noisy labels for the first."""
    data = load_digit_scenes(n, random_state=seed)
    X, Y = torch.from_numpy(data.X), torch.from_numpy(data.Y)
    half = n - n // 2
    noise = ClassConditionalNoise.sample(data.q, random_state=seed + 3)
    noise = ClassConditionalNoise(noise.rho_pos, noise.rho_neg, label_names=data.label_names)
    noisy = noise.corrupt(Y[:half], random_state=seed)
    wrong = (noisy != Y[:half]).double().mean().item()
    return DemoSetting(half, n - half, noise, wrong), (X[:half], Y[:half], noisy), (X[half:], Y[half:])


def run_demo(n: int = 8000, epochs: int = 30, seed: int = 0) -> tuple[DemoSetting, Iterator[DemoRow]]:
    """Train a linear model on clean, noisy and debiased labels with either loss; rows come as they are done."""
    setting, (X, clean, noisy), test = prepare_demo(n, seed)

    def rows() -> Iterator[DemoRow]:
        for loss_name, make_loss in LOSSES.items():
            for labels, noise, Y in (
                ("clean", None, clean),
                ("plain", None, noisy),
                ("unbiased", setting.noise, noisy),
            ):
                loss = make_loss(noise)
                model = train_linear(loss, X, Y, epochs=epochs, seed=seed)
                yield DemoRow(loss_name, labels, *_measure(model, loss, *test))

    return setting, rows()


def train_linear(loss: MultiLabelLoss, X: Tensor, Y: Tensor, *, epochs: int, seed: int) -> torch.nn.Linear:
    """Adam on mini-batches: an ordinary PyTorch loop, in which the loss is the only thing that knows of noise."""
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Linear(X.shape[1], loss.n_outputs(Y.shape[1]))
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    for _ in range(epochs):
        order = torch.randperm(len(X), generator=generator)
        for start in range(0, len(X), 100):
            batch = order[start : start + 100]
            optimiser.zero_grad()
            loss(model(X[batch]), Y[batch]).backward()
            optimiser.step()
    return model


@torch.no_grad()
def _measure(model: torch.nn.Linear, loss: MultiLabelLoss, X: Tensor, Y: Tensor) -> tuple[float, float, float]:
    scores = loss.decision(model(X))
    values = hamming_loss(Y, (scores >= 0).long()), ranking_loss(Y, scores), average_precision(Y, scores)
    return float(values[0]), float(values[1]), float(values[2])
