"""The main job on bundled data: noisy labels in, models trained on them in four ways, compared on clean test labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.data.digits import load_digit_scenes
from ccmn.metrics import average_precision, hamming_loss, ranking_loss
from ccmn.models import CCMNClassifier
from ccmn.noise import ClassConditionalNoise, NoiseModel

LOSSES = (("hamming", "logistic"), ("ranking", "sigmoid"))
WAYS = ("clean", "plain", "unbiased", "estimated")
"""True labels (the ceiling); noisy labels at their word; debiased with the true rates; with estimated rates."""


@dataclass(frozen=True)
class DemoRow:
    """One trained model, measured on clean test labels."""

    loss: str
    way: str
    hamming_loss: float
    ranking_loss: float
    average_precision: float


@dataclass(frozen=True, eq=False)
class DemoModel:
    """A row, and the model that it measures."""

    row: DemoRow
    classifier: CCMNClassifier
    scores: NDArray[np.float64]
    """Of the test pictures."""


@dataclass(frozen=True)
class DemoTask:
    """Pictures of digits, split in two halves of different handwriting, and noisy labels for the first."""

    X: NDArray[Any]
    Y: NDArray[Any]
    Y_noisy: NDArray[Any]
    X_test: NDArray[Any]
    Y_test: NDArray[Any]
    noise: ClassConditionalNoise

    @property
    def wrong_labels(self) -> float:
        """The share of training labels that were flipped."""
        return float((self.Y_noisy != self.Y).mean())


def make_demo(n: int = 8000, seed: int = 0) -> DemoTask:
    """Digit scenes with the rates of every label drawn as in the paper."""
    data = load_digit_scenes(n, random_state=seed)
    half = n - n // 2
    noise = ClassConditionalNoise.sample(data.q, random_state=seed + 3)
    noise = ClassConditionalNoise(noise.rho_pos, noise.rho_neg, label_names=data.label_names)
    noisy = noise.corrupt(data.Y[:half], random_state=seed)
    return DemoTask(data.X[:half], data.Y[:half], noisy, data.X[half:], data.Y[half:], noise)


def run_demo(task: DemoTask, epochs: int = 30, seed: int = 0) -> Iterator[DemoModel]:
    """Linear models by either loss and every way, as they are done."""
    ways: dict[str, NoiseModel | str] = {"unbiased": task.noise, "estimated": "estimate"}
    for loss, surrogate in LOSSES:
        for way in WAYS:
            clf = CCMNClassifier(ways.get(way), loss, surrogate, epochs=epochs, random_state=seed)
            with warnings.catch_warnings():
                # That estimated rates are bounds is said in the table's caption, once.
                warnings.simplefilter("ignore", UserWarning)
                clf.fit(task.X, task.Y if way == "clean" else task.Y_noisy)
            if way == "estimated":
                ways[way] = clf.noise_  # the same rows and seed: the next loss would estimate the same
            scores, predicted = clf.decision_function(task.X_test), clf.predict(task.X_test)
            values = (
                hamming_loss(task.Y_test, predicted),
                ranking_loss(task.Y_test, scores),
                average_precision(task.Y_test, scores),
            )
            row = DemoRow(f"{loss} / {surrogate}", way, *(float(np.asarray(v)) for v in values))
            yield DemoModel(row, clf, scores)
