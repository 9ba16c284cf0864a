"""A metric estimated from noisy labels: the value, how far it may be off, and what kind of estimate it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from ccmn.noise import NoiseModel
from ccmn.validation import check_label_width, check_noise


@dataclass(frozen=True)
class Estimate:
    """An estimate of a clean metric. It may lie outside [0, 1] on few rows: that is the price of being unbiased."""

    value: float
    se: float
    """Standard error over rows; the rates are taken as known."""
    status: Literal["unbiased", "consistent", "approximate"]


def debias_true(Y: torch.Tensor, noise: NoiseModel) -> torch.Tensor:
    """Debiased labels (n, q) in float64 from checked noisy ones."""
    check_noise(noise, NoiseModel)
    check_label_width(Y.shape, noise.n_labels, "Y")
    p: torch.Tensor = noise.debias(Y.double())
    return p


def estimate_mean(rows: torch.Tensor) -> Estimate:
    """The mean of unbiased values of rows, which is unbiased."""
    n = len(rows)
    return Estimate(float(rows.mean()), float(rows.std() / n**0.5) if n > 1 else float("nan"), "unbiased")


def estimate_ratio(above: torch.Tensor, below: torch.Tensor) -> Estimate:
    """The ratio of two sums over rows, unbiased each: consistent. Standard error by the delta method."""
    n, total = len(above), float(below.sum())
    if total <= 0:
        return Estimate(float("nan"), float("nan"), "consistent")
    value = float(above.sum()) / total
    spread = float((above - value * below).square().sum()) ** 0.5 / total
    return Estimate(value, spread * (n / (n - 1)) ** 0.5 if n > 1 else float("nan"), "consistent")
