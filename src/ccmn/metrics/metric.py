r"""A metric estimated from noisy labels: the value, how far it may be off, and what kind of estimate it is.

A corrected metric is a function :math:`\theta(p, w)` of soft labels and row weights, and everything about its error
is in its derivatives. Over rows (the infinitesimal jackknife: for a mean exactly :math:`sd / \sqrt n`, for a ratio the
delta method, for the AUC the variance of its projection on rows) and over rates that were estimated:

.. math:: se^2 = \frac{n}{n-1} \sum_i \Big(\frac{\partial\theta}{\partial w_i}\Big)^2
          + \sum_j \Big(\frac{\partial\theta}{\partial\rho_{pos,j}} se_{pos,j}\Big)^2
          + \sum_j \Big(\frac{\partial\theta}{\partial\rho_{neg,j}} se_{neg,j}\Big)^2

What all metrics share: any container in, tensors to compute on, the answer in kind; and the row of the index.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ccmn._containers import Labels, label_names_of, to_dense_array
from ccmn._validation import (
    FloatArray,
    check_label_width,
    check_matrix_pair,
    check_no_nan,
    check_noise_or_rates,
    check_numeric,
    check_one_device,
    check_same_labels,
    check_zero_one,
)
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


Value = float | torch.Tensor
"""A metric's value: a Python float, or a 0-dim float64 tensor where a tensor was handed in."""

Answer = Callable[[torch.Tensor], Value]
"""The way back: from the 0-dim tensor computed to what the caller is given."""

_BLOCK = 2**18
"""Entries worked on at a time: temporaries of this size stay in cache, and memory does not grow with n."""


@dataclass(frozen=True)
class Metric:
    """A row of ``METRICS``.

    Parameters
    ----------
    name : str
        The name in reports and in ``METRICS``.
    function : callable
        ``function(Y, Y_pred)`` or ``function(Y, scores)``; with ``noise=`` an ``Estimate`` from noisy labels.
    needs : "labels" or "scores"
        What stands in second place: predicted 0/1 labels, or real-valued scores.
    greater_is_better : bool
        The direction of improvement.
    maximum : float or "n_labels", default=1.0
        Largest value that the metric can have; the smallest is 0. "n_labels" is the number of labels.

    Examples
    --------
    >>> from ccmn.metrics import METRICS
    >>> METRICS["micro_f1"].bounds(20), METRICS["coverage"].bounds(20)
    ((0.0, 1.0), (0.0, 20.0))
    """

    name: str
    function: Callable[..., Any]
    needs: Literal["labels", "scores"]
    greater_is_better: bool
    maximum: float | Literal["n_labels"] = 1.0

    def bounds(self, n_labels: int) -> tuple[float, float]:
        """Return the smallest and the largest value that the metric can have with this number of labels."""
        return 0.0, float(n_labels if self.maximum == "n_labels" else self.maximum)


def read_labels(Y: Labels, Y_pred: Labels) -> tuple[torch.Tensor, torch.Tensor, Answer]:
    """True and predicted labels as checked bool tensors (n, q), and the way back."""
    true, predicted, answer = _read_pair(Y, Y_pred, "Y_pred")
    check_zero_one(true, "Y")
    check_zero_one(predicted, "Y_pred")
    return true == 1, predicted == 1, answer


def read_scores(Y: Labels, scores: Any) -> tuple[torch.Tensor, torch.Tensor, Answer]:
    """True labels as a checked bool tensor, scores as a floating one, both (n, q), and the way back."""
    true, real, answer = _read_pair(Y, scores, "scores")
    check_zero_one(true, "Y")
    check_no_nan(real, "scores")
    return true == 1, real if real.is_floating_point() else real.double(), answer


def read_noisy_labels(Y: Labels, Y_pred: Labels, noise: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy labels in float64, NaN where not observed, and predicted ones as bool: both checked, (n, q)."""
    # What is made in inference mode cannot be differentiated through, as standard errors ask.
    with torch.inference_mode(False):
        _check_about(noise, Y)
        noisy, predicted, _ = _read_pair(Y, Y_pred, "Y_pred")
        check_zero_one(predicted, "Y_pred")
        return _known_or_nan(noisy), predicted == 1


def read_noisy_scores(Y: Labels, scores: Any, noise: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy labels in float64, NaN where not observed, and floating scores: both checked, (n, q)."""
    with torch.inference_mode(False):
        _check_about(noise, Y)
        noisy, real, _ = _read_pair(Y, scores, "scores")
        check_no_nan(real, "scores")
        return _known_or_nan(noisy), real if real.is_floating_point() else real.double()


def _check_about(noise: object, Y: Labels) -> None:
    """Noise (whatever else is wrong with it) that knows its labels is about those of Y, in their order."""
    check_same_labels(("Y", label_names_of(Y)), ("noise", getattr(noise, "label_names", None)))


def _known_or_nan(noisy: torch.Tensor) -> torch.Tensor:
    noisy = noisy.double()
    check_zero_one(noisy.nan_to_num(0.0), "Y")
    return noisy


def in_blocks(
    rows: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], Y: torch.Tensor, other: torch.Tensor
) -> torch.Tensor:
    """``rows(Y, other)``, one value per row, worked out a block of rows at a time."""
    size = max(1, _BLOCK // Y.shape[-1])
    return torch.cat([rows(y, o) for y, o in zip(torch.split(Y, size), torch.split(other, size))])


def _read_pair(first: Any, second: Any, name: str) -> tuple[torch.Tensor, torch.Tensor, Answer]:
    check_same_labels(("Y", label_names_of(first)), (name, label_names_of(second)))
    devices = [given.device for given in (first, second) if isinstance(given, torch.Tensor)]
    check_one_device(devices, ("Y", name))
    tensors = _to_tensor(first, "Y"), _to_tensor(second, name)
    check_matrix_pair(*tensors, ("Y", name))
    if not devices:
        return *tensors, float
    # An array beside a tensor goes where the tensor is.
    return tensors[0].to(devices[0]), tensors[1].to(devices[0]), lambda value: value


def _to_tensor(values: Any, argument: str) -> torch.Tensor:
    if isinstance(values, torch.Tensor):
        return values.detach()
    try:
        array = to_dense_array(values)
        # A table with columns of several kinds arrives as objects, every one a number.
        array = array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must be a matrix of numbers, with rows of equal length") from None
    check_numeric(array, argument)
    dtype = array.dtype if array.dtype in (np.bool_, np.float32) else np.float64
    # A copy in C order: torch takes neither negative strides nor, without a warning, read-only arrays.
    return torch.from_numpy(np.array(array, dtype=dtype, order="C"))
