"""Demo on bundled data: models trained on noisy labels with four strategies, compared on true test labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.data import load_digit_scenes
from ccmn.metrics import average_precision, hamming_loss, ranking_loss
from ccmn.models import CCMNClassifier
from ccmn.noise import ClassConditionalNoise, NoiseModel

DEMO_LOSSES = (("hamming", "logistic"), ("ranking", "sigmoid"))
"""Losses and surrogates of the demo."""
STRATEGIES = ("clean", "plain", "unbiased", "estimated")
"""Training strategies: on the true labels (the best possible result), on the noisy labels without noise correction,
corrected with the true rates, and corrected with estimated rates."""


@dataclass(frozen=True, eq=False)
class DemoModel:
    """Trained model with its metrics on true test labels."""

    loss: str
    strategy: str
    hamming_loss: float
    ranking_loss: float
    average_precision: float
    classifier: CCMNClassifier
    scores: NDArray[np.float64]
    """Scores of the test images."""


@dataclass(frozen=True)
class DemoTask:
    """Images of digits: noisy training labels and true test labels, with different handwriting."""

    X: NDArray[Any]
    Y: NDArray[Any]
    Y_noisy: NDArray[Any]
    X_test: NDArray[Any]
    Y_test: NDArray[Any]
    noise: ClassConditionalNoise

    @property
    def wrong_labels(self) -> float:
        """Share of the training labels that were flipped."""
        return float((self.Y_noisy != self.Y).mean())


def make_demo(n: int = 8000, random_state: int = 0) -> DemoTask:
    """Return images of several digits with noisy labels, whose rates are sampled as in the paper.

    Parameters
    ----------
    n : int, default=8000
        Number of images; half of them are test images.
    random_state : int, default=0
        Seed of the images and of the noise.

    Returns
    -------
    DemoTask
        Training and test images with labels.

    Examples
    --------
    >>> task = make_demo(200)
    >>> task.X.shape, task.Y_noisy.shape
    ((100, 384), (100, 10))
    """
    data = load_digit_scenes(n, random_state=random_state)
    half = n - n // 2
    noise = ClassConditionalNoise.sample(data.q, random_state=random_state + 3)
    noise = ClassConditionalNoise(noise.rho_pos, noise.rho_neg, label_names=data.label_names)
    noisy = noise.corrupt(data.Y[:half], random_state=random_state)
    return DemoTask(data.X[:half], data.Y[:half], noisy, data.X[half:], data.Y[half:], noise)


def run_demo(task: DemoTask, epochs: int = 30, random_state: int = 0) -> Iterator[DemoModel]:
    """Train linear models with every loss and strategy.

    Parameters
    ----------
    task : DemoTask
        Images and labels.
    epochs : int, default=30
        Number of epochs.
    random_state : int, default=0
        Seed of the training.

    Yields
    ------
    DemoModel
        Trained model with its metrics on the test images.
    """
    noise: dict[str, NoiseModel | str] = {"unbiased": task.noise, "estimated": "both"}
    for loss, surrogate in DEMO_LOSSES:
        for strategy in STRATEGIES:
            # All pixels have the same unit; standardization would enlarge those that are rarely used.
            settings: dict[str, Any] = {"loss": loss, "surrogate": surrogate, "scale": False, "epochs": epochs}
            clf = CCMNClassifier(noise.get(strategy), random_state=random_state, **settings)
            with warnings.catch_warnings():
                # The caption of the table already says that estimated rates are uncertain.
                warnings.simplefilter("ignore", UserWarning)
                clf.fit(task.X, task.Y if strategy == "clean" else task.Y_noisy)
            if strategy == "estimated":
                noise[strategy] = clf.noise_  # the next loss would estimate the same rates from the same rows
            scores, name = clf.decision_function(task.X_test), f"{loss} / {surrogate}"
            wrong = hamming_loss(task.Y_test, clf.predict(task.X_test))
            order = ranking_loss(task.Y_test, scores), average_precision(task.Y_test, scores)
            yield DemoModel(name, strategy, wrong, *order, clf, scores)
