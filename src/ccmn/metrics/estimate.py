r"""A metric estimated from noisy labels: the value, how far it may be off, and what kind of estimate it is.

A corrected metric is a function :math:`\theta(p, w)` of soft labels and row weights, and everything about its error
is in its derivatives. Over rows (the infinitesimal jackknife: for a mean exactly :math:`sd / \sqrt n`, for a ratio the
delta method, for the AUC the variance of its projection on rows) and over rates that were estimated:

.. math:: se^2 = \frac{n}{n-1} \sum_i \Big(\frac{\partial\theta}{\partial w_i}\Big)^2
          + \sum_j \Big(\frac{\partial\theta}{\partial\rho_{pos,j}} se_{pos,j}\Big)^2
          + \sum_j \Big(\frac{\partial\theta}{\partial\rho_{neg,j}} se_{neg,j}\Big)^2
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from ccmn._validation import FloatArray, check_label_width, check_noise_or_rates
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.noise.class_conditional import debias_labels

Status = Literal["unbiased", "consistent", "approximate"]

ROUNDING_TOLERANCE = 1e-9
"""Values that exceed the range of their metric by at most this much count as inside: sums in float64 are inexact."""


@dataclass(frozen=True)
class Estimate:
    """Estimate of a metric on clean labels, from noisy labels.

    An unbiased estimate can lie outside the range of the metric, most often on few rows; ``out_of_range`` tells.

    Examples
    --------
    >>> Estimate(-0.02, 0.03, "unbiased", bounds=(0.0, 1.0)).out_of_range
    True
    """

    value: float
    se: float
    """Standard error over rows; and over the rates, where they come with standard errors of their own."""
    status: Status
    """"unbiased": right on average, whatever the number of rows; "consistent": right in the limit of many rows;
    "approximate": not even that, by an error that ``se`` does not know of."""
    bounds: tuple[float, float] = field(default=(-math.inf, math.inf), repr=False, compare=False)
    """Smallest and largest value that the metric can have on clean labels."""

    @property
    def out_of_range(self) -> bool:
        """Whether the value is outside ``bounds``; False for NaN."""
        return is_out_of_range(self.value, self.bounds)


def is_out_of_range(value: float, bounds: tuple[float, float]) -> bool:
    """Return whether a value lies outside the range of its metric by more than rounding errors; False for NaN."""
    return value < bounds[0] - ROUNDING_TOLERANCE or value > bounds[1] + ROUNDING_TOLERANCE


@runtime_checkable
class EstimatedNoise(Protocol):
    """Rates that were estimated: a noise model, and how far each of its rates may be off (``NoiseRates``)."""

    @property
    def noise(self) -> ClassConditionalNoise: ...
    @property
    def se_pos(self) -> FloatArray: ...
    @property
    def se_neg(self) -> FloatArray: ...


Noise = NoiseModel | EstimatedNoise
"""What a metric takes as ``noise``: a model taken at its word, or estimated rates with their standard errors."""

Soften = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(noisy labels, rho_pos, rho_neg, row weights) -> soft labels, differentiable in the last three."""


def model_of(noise: Noise, Y: Tensor) -> NoiseModel:
    """The noise model that is given or was estimated, for as many labels as there are in Y."""
    check_noise_or_rates(noise, (NoiseModel, EstimatedNoise))
    model = noise if isinstance(noise, NoiseModel) else noise.noise
    check_label_width(Y.shape, model.n_labels, "Y")
    return model


def debias(Y: Tensor, rho_pos: Tensor, rho_neg: Tensor, weights: Tensor) -> Tensor:
    """Debiased labels; rows are not looked at together, so their weights do not matter."""
    # NaN is put back at the end: through it every derivative would be NaN, even times 0.
    return torch.where(Y.isnan(), torch.nan, debias_labels(Y.nan_to_num(0.0), rho_pos, rho_neg))


def estimate(
    Y: Tensor,
    noise: Noise,
    value: Callable[[Tensor, Tensor], Tensor],
    status: Status,
    soften: Soften = debias,
    *,
    metric: str,
    undefined: str = "the corrected sums are not finite",
    complete_rows: bool = False,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """Return ``value(soft labels, row weights)`` with its standard error, from noisy labels (n, q).

    The rates of a transition matrix are taken as known, and errors of different rates as independent of each other.
    A value that cannot be estimated is NaN with a standard error of NaN; a warning names the metric and the reason.

    Parameters
    ----------
    Y : tensor of shape (n, q)
        Noisy labels, NaN where not observed.
    noise : noise model or estimated rates
    value : callable
        Metric as a function of soft labels and row weights.
    status : {"unbiased", "consistent", "approximate"}
        Status of the estimate if the rates are known.
    soften : callable, default=debias
        Function that replaces noisy labels by soft labels.
    metric : str
        Name of the metric in the warning.
    undefined : str
        Reason in the warning if ``value`` returns NaN.
    complete_rows : bool, default=False
        Whether the metric uses only rows in which every label is observed.
    bounds : tuple of two floats, default=(0.0, 1.0)
        Range of the metric on clean labels.
    """
    model = model_of(noise, Y)
    status = _with_these_rates(status, noise)
    seen = ~Y.isnan()
    if not (seen.all(-1) if complete_rows else seen).any():
        undefined = "no row has all labels observed" if complete_rows else "no label is observed"
        return _undefined(metric, undefined, len(Y), status, bounds)
    # Derivatives are needed here whatever mode the caller is in.
    with torch.inference_mode(False), torch.enable_grad():
        weights = torch.ones(len(Y), dtype=torch.float64, device=Y.device, requires_grad=True)
        rates = _rates(model, Y)
        Y = Y.double()
        soft = soften(Y, rates[0], rates[1], weights) if rates else model.debias(Y)
        theta = value(soft, weights)
        slopes = torch.autograd.grad(theta, (weights, *rates), allow_unused=True, materialize_grads=True)
    found = float(theta.detach())
    if math.isnan(found):
        return _undefined(metric, undefined, len(Y), status, bounds)
    variance = _over_rows(slopes[0]) + _over_rates(slopes[1:], noise)
    return Estimate(found, variance**0.5, status, bounds)


def _undefined(metric: str, reason: str, n: int, status: Status, bounds: tuple[float, float]) -> Estimate:
    """Warn that a metric cannot be estimated, and return NaN with a standard error of NaN."""
    warnings.warn(f"{metric} cannot be estimated and is NaN (n_samples={n}): {reason}", stacklevel=4)
    return Estimate(math.nan, math.nan, status, bounds)


def _with_these_rates(status: Status, noise: Noise) -> Status:
    """Rates that are estimates leave nothing unbiased; those that are upper bounds leave nothing consistent."""
    if isinstance(noise, NoiseModel):
        return status
    if "upper bound" in getattr(noise, "kind", ()):
        return "approximate"
    uncertain = bool((noise.se_pos > 0).any() or (noise.se_neg > 0).any())
    return "consistent" if uncertain and status == "unbiased" else status


def _rates(model: NoiseModel, Y: Tensor) -> tuple[Tensor, ...]:
    """(rho_pos, rho_neg) to differentiate by, where the model has them."""
    if not isinstance(model, ClassConditionalNoise):
        return ()
    return tuple(torch.tensor(r, device=Y.device, requires_grad=True) for r in (model.rho_pos, model.rho_neg))


def _over_rows(slope: Tensor) -> float:
    n = len(slope)
    return float(slope.square().sum()) * n / (n - 1) if n > 1 else float("nan")


def _over_rates(slopes: tuple[Tensor, ...], noise: Noise) -> float:
    if isinstance(noise, NoiseModel):
        return 0.0
    errors = (torch.tensor(se, dtype=torch.float64).to(slopes[0].device) for se in (noise.se_pos, noise.se_neg))
    return float(sum((slope * se).square().sum() for slope, se in zip(slopes, errors)))
