"""Random splits with injected label noise, shared by the benchmarks of noise rates."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ccmn.data import load_dataset
from ccmn.estimation import METHODS
from ccmn.estimation.estimate import uses_likelihood
from ccmn.estimation.evidence import Evidence, Trusted, fit_surfaces
from ccmn.estimation.noise_rates import LabelRates
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

DATASETS = ("yeast", "scene", "mirflickr", "enron")
MIN_POSITIVES = 30
"""Labels with fewer true positives are estimated, but not evaluated."""
FIRST_DRAW = 100
"""First seed of the reported draws; methods were developed on draws 1 to 3 and 120 to 145."""
TRUSTED_SAMPLES = 5
"""Random samples of trusted rows per draw: one is not enough to measure coverage, because all labels share it."""
NOISE_TYPES = {"partial": "partial", "missing": "missing"}


@dataclass(frozen=True)
class Draw:
    """Training and test rows with a noise model; ``Y`` and ``noisy`` are the true and noisy training labels."""

    name: str
    setting: str
    number: int
    X: object
    Y: np.ndarray
    noisy: np.ndarray
    noise: ClassConditionalNoise
    X_test: object
    Y_test: np.ndarray
    trusted: np.ndarray
    """Row numbers of shape (TRUSTED_SAMPLES, 200)."""

    @property
    def counted(self) -> np.ndarray:
        """Return the labels that are evaluated."""
        return np.flatnonzero(self.Y.sum(0) >= MIN_POSITIVES)

    def evidence(self) -> Evidence:
        noise_type = (NOISE_TYPES.get(self.setting, "both"),) * self.Y.shape[1]
        return Evidence(Y=self.noisy.astype(float), noise_type=noise_type, X=self.X, seed=self.number)


def make_draw(name: str, setting: str, number: int) -> Draw:
    """Split a dataset at random (70 % training rows) and add noise to the training labels.

    ``setting`` is "three" (both rates 0.1, 0.2 or 0.3), "sum" (rates 0.1 to 0.5 with sum at most 0.6), "partial" or
    "missing" (rates 0.1 to 0.4 of one kind), "undeclared" (as "missing", but with the noise type "both"), or
    "clean" (no noise).
    """
    data = load_dataset(name)
    Y = np.asarray(data.Y).astype(int)
    n, q = Y.shape
    rng = np.random.default_rng([FIRST_DRAW + number, sorted(DATASETS).index(name)])
    order = rng.permutation(n)
    train, test = np.sort(order[: int(0.7 * n)]), np.sort(order[int(0.7 * n) :])
    noise = {
        "three": lambda: ClassConditionalNoise(rng.choice([0.1, 0.2, 0.3], q), rng.choice([0.1, 0.2, 0.3], q)),
        "sum": lambda: ClassConditionalNoise.sample(q, max_sum=0.6, random_state=rng),
        "partial": lambda: PartialNoise(rng.choice([0.1, 0.2, 0.3, 0.4], q)),
        "missing": lambda: MissingNoise(rng.choice([0.1, 0.2, 0.3, 0.4], q)),
        "undeclared": lambda: MissingNoise(rng.choice([0.1, 0.2, 0.3, 0.4], q)),
        "clean": lambda: ClassConditionalNoise(0.0, 0.0, n_labels=q),
    }[setting]()
    noisy = noise.corrupt(Y[train], random_state=rng)
    trusted = np.stack([rng.permutation(train.size)[:200] for _ in range(TRUSTED_SAMPLES)])
    return Draw(name, setting, number, data.X[train], Y[train], noisy, noise, data.X[test], Y[test], trusted)


def with_trusted(evidence: Evidence, draw: Draw, many: int, sample: int = 0) -> Evidence:
    """Return the evidence with ``many`` trusted rows; cached likelihoods are reused, they do not depend on them."""
    rows = draw.trusted[sample, :many]
    surfaces = evidence.surfaces or fit_surfaces(evidence)
    return replace(evidence, trusted=Trusted(rows, draw.Y[rows].astype(float)) if many else None, surfaces=surfaces)


def estimate(evidence: Evidence, method: str = "auto") -> list[LabelRates]:
    if evidence.surfaces is None and uses_likelihood(evidence, method):
        evidence = replace(evidence, surfaces=fit_surfaces(evidence))
    return METHODS[method](evidence)


def write_csv(path: str, rows: list[dict[str, object]]) -> None:
    """Write rows with equal keys to a CSV file."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
