r"""Input conversion, noise correction and standard errors shared by all metrics.

A corrected metric is a function :math:`\theta(p, w)` of soft labels :math:`p` (usually debiased labels) and row weights
:math:`w`. Its variance is computed from its derivatives:

.. math:: se^2 = \frac{n}{n-1} \sum_i \Big(\frac{\partial\theta}{\partial w_i}\Big)^2
          + \sum_j \Big(\frac{\partial\theta}{\partial\rho_{pos,j}} se_{pos,j}\Big)^2
          + \sum_j \Big(\frac{\partial\theta}{\partial\rho_{neg,j}} se_{neg,j}\Big)^2

The first sum is the infinitesimal jackknife. It equals :math:`sd / \sqrt n` for a mean and the delta method for a
ratio. The other two sums add the uncertainty of estimated noise rates by the delta method.
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

MAX_BLOCK_ENTRIES = 2**18
"""Maximum number of matrix entries per block of rows. Temporary tensors of this size fit in the CPU cache."""


@dataclass(frozen=True)
class Estimate:
    """Estimate of a metric on true labels, computed from noisy labels.

    The value is not clipped. An unbiased estimate can lie outside the range of the metric, most often if there are few
    rows; see ``out_of_range``.

    Parameters
    ----------
    value : float
        Estimated metric. NaN if it cannot be estimated.
    se : float
        Standard error. It contains the sampling error of the rows and, if the noise rates come with standard errors,
        their uncertainty. NaN for a single row.
    status : {"unbiased", "consistent", "approximate"}
        "unbiased": the expected value is the metric on true labels for any number of rows. "consistent": the estimate
        converges to it as the number of rows grows. "approximate": a bias remains that ``se`` does not include.
    bounds : tuple of two floats, default=(-inf, inf)
        Smallest and largest value of the metric on true labels.

    References
    ----------
    .. [1] N. Natarajan, I. S. Dhillon, P. Ravikumar and A. Tewari, "Learning with Noisy Labels", NeurIPS, 2013
       (unbiased estimators of losses under class-conditional noise).
    .. [2] L. A. Jaeckel, "The Infinitesimal Jackknife", Bell Laboratories Memorandum MM 72-1215-11, 1972.

    Examples
    --------
    >>> from ccmn.metrics import Estimate
    >>> Estimate(-0.02, 0.03, "unbiased", bounds=(0.0, 1.0)).out_of_range
    True
    """

    value: float
    se: float
    status: Status
    bounds: tuple[float, float] = field(default=(-math.inf, math.inf), repr=False, compare=False)

    @property
    def out_of_range(self) -> bool:
        """Whether the value is outside ``bounds``; False for NaN."""
        return is_out_of_range(self.value, self.bounds)


def is_out_of_range(value: float, bounds: tuple[float, float]) -> bool:
    """Return whether a value lies outside the range of its metric by more than rounding errors; False for NaN."""
    return value < bounds[0] - ROUNDING_TOLERANCE or value > bounds[1] + ROUNDING_TOLERANCE


@dataclass(frozen=True)
class Metric:
    """Metric in the registry ``METRICS``.

    Parameters
    ----------
    name : str
        Name of the metric in reports and in ``METRICS``.
    function : callable
        ``function(Y, Y_pred)`` or ``function(Y, scores)``. With ``noise=`` it returns an :class:`Estimate`.
    needs : {"labels", "scores"}
        Second argument of ``function``: predicted 0/1 labels or real-valued scores.
    greater_is_better : bool
        Whether larger values are better.
    maximum : float or "n_labels", default=1.0
        Largest value of the metric; the smallest is 0. "n_labels" is the number of labels.

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
        """Return the smallest and the largest value of the metric.

        Parameters
        ----------
        n_labels : int
            Number of labels.

        Returns
        -------
        tuple of two floats
            Lower and upper bound.
        """
        return 0.0, float(n_labels if self.maximum == "n_labels" else self.maximum)


@runtime_checkable
class EstimatedNoise(Protocol):
    """Protocol of estimated noise rates: a noise model and the standard errors of its rates (``NoiseRates``)."""

    @property
    def noise(self) -> ClassConditionalNoise:
        """Noise model with the estimated rates."""
        ...

    @property
    def se_pos(self) -> FloatArray:
        """Standard errors of the false-negative rates, shape (q,)."""
        ...

    @property
    def se_neg(self) -> FloatArray:
        """Standard errors of the false-positive rates, shape (q,)."""
        ...


Noise = NoiseModel | EstimatedNoise
"""Type of the parameter ``noise``: a noise model with known rates, or estimated rates with their uncertainty."""

LabelTransform = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Function (noisy labels, rho_pos, rho_neg, row weights) -> soft labels, differentiable in the last three arguments."""


def debias_transform(Y: Tensor, rho_pos: Tensor, rho_neg: Tensor, weights: Tensor) -> Tensor:
    """Return debiased labels. The row weights are not used."""
    # NaN is inserted at the end. If it took part in the computation, every derivative would be NaN.
    return torch.where(Y.isnan(), torch.nan, debias_labels(Y.nan_to_num(0.0), rho_pos, rho_neg))


def resolve_noise_model(noise: Noise, Y: Tensor) -> NoiseModel:
    """Return the given or estimated noise model after checking that it has as many labels as Y."""
    check_noise_or_rates(noise, (NoiseModel, EstimatedNoise))
    model = noise if isinstance(noise, NoiseModel) else noise.noise
    check_label_width(Y.shape, model.n_labels, "Y")
    return model


def estimate(
    Y: Tensor,
    noise: Noise,
    value: Callable[[Tensor, Tensor], Tensor],
    status: Status,
    transform: LabelTransform = debias_transform,
    *,
    metric: str,
    undefined: str = "the corrected sums are not finite",
    complete_rows: bool = False,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """Return ``value(soft labels, row weights)`` with its standard error, from noisy labels.

    The rates of a transition matrix are treated as known. Errors of different rates are treated as independent. A value
    that cannot be estimated is NaN with a standard error of NaN; a warning names the metric and the reason.

    Parameters
    ----------
    Y : tensor of shape (n, q)
        Noisy labels, NaN where not observed.
    noise : noise model or estimated rates
        Noise of the labels.
    value : callable
        Metric as a function of soft labels and row weights.
    status : {"unbiased", "consistent", "approximate"}
        Status of the estimate if the rates are known.
    transform : callable, default=debias_transform
        Function that replaces noisy labels by soft labels.
    metric : str
        Name of the metric in the warning.
    undefined : str
        Reason in the warning if ``value`` returns NaN.
    complete_rows : bool, default=False
        Whether the metric uses only rows in which every label is observed.
    bounds : tuple of two floats, default=(0.0, 1.0)
        Range of the metric on true labels.

    Returns
    -------
    Estimate
        Value, standard error and status.
    """
    model = resolve_noise_model(noise, Y)
    status = status_with_rates(status, noise)
    observed = ~Y.isnan()
    if not (observed.all(-1) if complete_rows else observed).any():
        undefined = "no row has all labels observed" if complete_rows else "no label is observed"
        return undefined_estimate(metric, undefined, len(Y), status, bounds)
    # Derivatives are needed even if the caller has disabled gradients.
    with torch.inference_mode(False), torch.enable_grad():
        weights = torch.ones(len(Y), dtype=torch.float64, device=Y.device, requires_grad=True)
        rates: tuple[Tensor, ...] = ()
        if isinstance(model, ClassConditionalNoise):
            rates = tuple(torch.tensor(r, device=Y.device, requires_grad=True) for r in (model.rho_pos, model.rho_neg))
        Y = Y.double()
        soft = transform(Y, rates[0], rates[1], weights) if rates else model.debias(Y)
        theta = value(soft, weights)
        slopes = torch.autograd.grad(theta, (weights, *rates), allow_unused=True, materialize_grads=True)
    result = float(theta.detach())
    if math.isnan(result):
        return undefined_estimate(metric, undefined, len(Y), status, bounds)
    return Estimate(result, variance_of_estimate(slopes, noise) ** 0.5, status, bounds)


VERIFIED_METHODS = ("known", "trusted", "dawid")
"""Methods of rate estimation that rest on verified labels or on votes, and not only on a model of the noisy labels."""


def status_with_rates(status: Status, noise: Noise) -> Status:
    """Return the status of an estimate with these rates.

    Uncertain rates are at best consistent. Upper bounds, and rates that rest only on a model of the noisy labels, are
    approximate: under other noise than the model's, more rows do not remove their error.
    """
    if isinstance(noise, NoiseModel):
        return status
    methods = getattr(noise, "method", ())
    unverified = any(not any(name in method.lower() for name in VERIFIED_METHODS) for method in methods)
    if unverified or "upper bound" in getattr(noise, "kind", ()):
        return "approximate"
    uncertain = bool((noise.se_pos > 0).any() or (noise.se_neg > 0).any())
    return "consistent" if uncertain and status == "unbiased" else status


def variance_of_estimate(slopes: tuple[Tensor, ...], noise: Noise) -> float:
    """Return the variance from the derivatives by row weights and, if present, by rho_pos and rho_neg."""
    n = len(slopes[0])
    variance = float(slopes[0].square().sum()) * n / (n - 1) if n > 1 else math.nan
    if not isinstance(noise, NoiseModel):
        for slope, se in zip(slopes[1:], (noise.se_pos, noise.se_neg)):
            error = torch.tensor(se, dtype=torch.float64).to(slope.device)
            variance += float((slope * error).square().sum())
    return variance


def undefined_estimate(metric: str, reason: str, n: int, status: Status, bounds: tuple[float, float]) -> Estimate:
    """Warn that a metric cannot be estimated and return NaN with a standard error of NaN."""
    warnings.warn(f"{metric} cannot be estimated and is NaN (n_samples={n}): {reason}", stacklevel=4)
    return Estimate(math.nan, math.nan, status, bounds)


Value = float | Tensor
"""Value of a metric: a Python float, or a 0-dimensional float64 tensor if an argument is a tensor."""

ToOutput = Callable[[Tensor], Value]
"""Function that converts the computed 0-dimensional tensor to the type that is returned to the caller."""


def read_labels(Y: Labels, Y_pred: Labels) -> tuple[Tensor, Tensor, ToOutput]:
    """Return true and predicted labels as validated bool tensors (n, q), and the output conversion."""
    true, predicted, to_output = _read_pair(Y, Y_pred, "Y_pred")
    check_zero_one(true, "Y")
    check_zero_one(predicted, "Y_pred")
    return true == 1, predicted == 1, to_output


def read_scores(Y: Labels, scores: Any) -> tuple[Tensor, Tensor, ToOutput]:
    """Return true labels (bool) and scores (floating) as validated tensors (n, q), and the output conversion."""
    true, real, to_output = _read_pair(Y, scores, "scores")
    check_zero_one(true, "Y")
    check_no_nan(real, "scores")
    return true == 1, real if real.is_floating_point() else real.double(), to_output


def read_noisy_labels(Y: Labels, Y_pred: Labels, noise: object) -> tuple[Tensor, Tensor]:
    """Return noisy labels in float64 (NaN: not observed) and predicted labels as bool, both validated, (n, q)."""
    # Tensors created in inference mode cannot be differentiated, which standard errors require.
    with torch.inference_mode(False):
        noisy, predicted = _read_noisy_pair(Y, Y_pred, noise, "Y_pred")
        check_zero_one(predicted, "Y_pred")
        return _check_noisy(noisy), predicted == 1


def read_noisy_scores(Y: Labels, scores: Any, noise: object) -> tuple[Tensor, Tensor]:
    """Return noisy labels in float64 (NaN: not observed) and floating scores, both validated, (n, q)."""
    with torch.inference_mode(False):
        noisy, real = _read_noisy_pair(Y, scores, noise, "scores")
        check_no_nan(real, "scores")
        return _check_noisy(noisy), real if real.is_floating_point() else real.double()


def _read_noisy_pair(Y: Labels, second: Any, noise: object, name: str) -> tuple[Tensor, Tensor]:
    """Return both arguments as tensors (n, q) after checking that Y and the noise name the same labels."""
    check_same_labels(("Y", label_names_of(Y)), ("noise", getattr(noise, "label_names", None)))
    noisy, other, _ = _read_pair(Y, second, name)
    return noisy, other


def _check_noisy(noisy: Tensor) -> Tensor:
    """Return noisy labels in float64 after checking that observed values are 0 or 1."""
    noisy = noisy.double()
    check_zero_one(noisy.nan_to_num(0.0), "Y")
    return noisy


def _read_pair(first: Any, second: Any, name: str) -> tuple[Tensor, Tensor, ToOutput]:
    """Return both arguments as tensors (n, q) on one device, and the output conversion."""
    check_same_labels(("Y", label_names_of(first)), (name, label_names_of(second)))
    devices = [given.device for given in (first, second) if isinstance(given, Tensor)]
    check_one_device(devices, ("Y", name))
    tensors = to_tensor(first, "Y"), to_tensor(second, name)
    check_matrix_pair(*tensors, ("Y", name))
    if not devices:
        return *tensors, float
    # If only one argument is a tensor, the other is moved to its device.
    return tensors[0].to(devices[0]), tensors[1].to(devices[0]), lambda value: value


def to_tensor(values: Any, argument: str) -> Tensor:
    """Return a container of numbers as a tensor without gradient."""
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = to_dense_array(values)
        # A DataFrame with columns of several dtypes becomes an object array of numbers.
        array = array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must be a matrix of numbers, with rows of equal length") from None
    check_numeric(array, argument)
    dtype = array.dtype if array.dtype in (np.bool_, np.float32) else np.float64
    # Copy in C order: torch does not accept negative strides, and warns about read-only arrays.
    return torch.from_numpy(np.array(array, dtype=dtype, order="C"))


def map_row_blocks(rows: Callable[[Tensor, Tensor], Tensor], Y: Tensor, other: Tensor) -> Tensor:
    """Return ``rows(Y, other)``, one value per row, computed block by block so that memory use is bounded."""
    size = max(1, MAX_BLOCK_ENTRIES // Y.shape[-1])
    return torch.cat([rows(y, o) for y, o in zip(torch.split(Y, size), torch.split(other, size))])
