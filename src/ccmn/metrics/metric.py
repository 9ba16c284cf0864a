r"""Input conversion, noise correction and standard errors shared by all metrics.

A corrected metric is a function :math:`\theta(p, w)` of soft labels p (usually debiased labels) and row weights w. Its
variance is computed from its derivatives:

.. math:: se^2 = \frac{n}{n-1} \sum_i \Big(\frac{\partial\theta}{\partial w_i}\Big)^2
          + \sum_j \Big(\frac{\partial\theta}{\partial\rho_{pos,j}} se_{pos,j}\Big)^2
          + \sum_j \Big(\frac{\partial\theta}{\partial\rho_{neg,j}} se_{neg,j}\Big)^2

The first sum is the infinitesimal jackknife: :math:`sd / \sqrt n` for a mean, the delta method for a ratio. The others
add the uncertainty of estimated noise rates by the delta method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ccmn._containers import Labels, label_names_of, to_dense_array
from ccmn._messages import warn
from ccmn._validation import (
    FloatArray,
    check_label_width,
    check_matrix_pair,
    check_no_nan,
    check_noise_or_rates,
    check_numeric,
    check_same_labels,
    check_zero_one,
)
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.noise.class_conditional import debias_labels

Status = Literal["unbiased", "consistent", "approximate"]

MAX_BLOCK_ENTRIES = 2**18
"""Maximum number of matrix entries per block of rows. Temporary tensors of this size fit in the CPU cache."""


class Estimate(float):
    """Estimate of a metric on true labels, computed from noisy labels: a float with a standard error and a status.

    The value is not clipped: with few rows, an unbiased estimate can lie outside the range of the metric.

    Parameters
    ----------
    value : float
        Estimated metric. NaN if it cannot be estimated.
    se : float
        Standard error by the sampling of rows and, if rates are estimated, by their errors. NaN for a single row.
    status : {"unbiased", "consistent", "approximate"}
        "unbiased": the expected value is the metric on true labels for any number of rows. "consistent": the estimate
        converges to it as the number of rows grows. "approximate": a bias remains that ``se`` does not include.

    References
    ----------
    .. [1] N. Natarajan et al., "Learning with Noisy Labels", NeurIPS, 2013.
    .. [2] L. A. Jaeckel, "The Infinitesimal Jackknife", Bell Laboratories Memorandum MM 72-1215-11, 1972.

    Examples
    --------
    >>> from ccmn.metrics import Estimate
    >>> found = Estimate(0.12, 0.03, "unbiased")
    >>> print(f"{found:.3f} +- {found.se:.3f}, {found.status}")
    0.120 +- 0.030, unbiased
    """

    se: float
    status: Status

    def __new__(cls, value: float, se: float, status: Status) -> Estimate:
        """Return the value with its standard error and status."""
        self = super().__new__(cls, value)
        self.se, self.status = se, status
        return self

    @property
    def value(self) -> float:
        """The estimate as a plain float."""
        return float(self)

    def __getnewargs__(self) -> tuple[float, float, Status]:  # type: ignore[override]
        return float(self), self.se, self.status

    def __repr__(self) -> str:
        return f"Estimate(value={float(self)!r}, se={self.se!r}, status={self.status!r})"


@dataclass(frozen=True)
class Metric:
    """Metric in the registry ``METRICS``, whose smallest value is 0 and the largest ``maximum``.

    ``function(Y, Y_pred)`` or ``function(Y, scores)``, by ``needs``, returns an :class:`Estimate` if ``noise=`` is
    given.

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
        """Return the smallest and the largest value of the metric."""
        return 0.0, float(n_labels if self.maximum == "n_labels" else self.maximum)


@runtime_checkable
class EstimatedNoise(Protocol):
    """Protocol of estimated noise rates (``NoiseRates``): a noise model, and the standard errors (q,) of its rates."""

    @property
    def noise(self) -> ClassConditionalNoise:
        """Noise model with the estimated rates."""

    @property
    def se_pos(self) -> FloatArray:
        """Standard errors of the false-negative rates."""

    @property
    def se_neg(self) -> FloatArray:
        """Standard errors of the false-positive rates."""


Noise = NoiseModel | EstimatedNoise
"""Type of the parameter ``noise``: a noise model with known rates, or estimated rates with their uncertainty."""


def debias_transform(Y: Tensor, rho_pos: Tensor, rho_neg: Tensor, weights: Tensor) -> Tensor:
    """Return debiased labels. The row weights are not used."""
    # NaN is inserted at the end. If it took part in the computation, every derivative would be NaN.
    return torch.where(Y.isnan(), torch.nan, debias_labels(Y.nan_to_num(0.0), rho_pos, rho_neg))


class Form(NamedTuple):
    """Form of a metric for debiased labels.

    ``value`` is a function (soft labels, second argument of the metric, row weights) -> metric, NaN if it is undefined
    for the reason ``undefined``. ``status`` is that of the estimate if the rates are known. With ``complete_rows``,
    only rows are used in which every label is observed. ``transform`` is a function (noisy labels, rho_pos, rho_neg,
    row weights) -> soft labels, differentiable in the last three arguments.
    """

    value: Callable[[Tensor, Tensor, Tensor], Tensor]
    status: Status
    undefined: str = ""
    complete_rows: bool = False
    transform: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = debias_transform


def evaluate(
    metric: str,
    Y: Labels,
    second: Any,
    noise: Noise | None,
    form: Form | Callable[[Tensor, Tensor, NoiseModel], Form],
    plain: Callable[[Tensor, Tensor], Tensor] | None = None,
    needs: Literal["labels", "scores"] = "scores",
) -> float:
    """Return a metric of true labels or, with ``noise``, its estimate from noisy labels.

    ``form`` is the form for debiased labels, or a function (noisy labels, ``second``, noise model) that selects it.
    ``plain`` computes the metric of true labels of type bool; by default it is the form with p = y.
    """
    # Tensors of inference mode cannot be differentiated, which standard errors require.
    with torch.inference_mode(False):
        labels, other = read_pair(Y, second, noise, needs)
        if noise is None and plain is not None:
            return float(plain(labels == 1, other))
        known = ClassConditionalNoise(0.0, 0.0, n_labels=labels.shape[1]) if noise is None else noise
        model = resolve_noise_model(known, labels)
        chosen = form if isinstance(form, Form) else form(labels, other, model)

        def theta(weights: Tensor, rates: Sequence[Tensor]) -> Tensor:
            soft = chosen.transform(labels, rates[0], rates[1], weights) if rates else model.debias(labels)
            return chosen.value(soft, other, weights)

        weights = torch.ones(len(labels), dtype=torch.float64, device=labels.device)
        reason, observed = chosen.undefined, ~labels.isnan()
        if noise is None:
            found = float(chosen.value(labels, other, weights))
        elif not (observed.all(-1) if chosen.complete_rows else observed).any():
            found = Estimate(math.nan, math.nan, status_with_rates(chosen.status, noise))
            reason = "no row has all labels observed" if chosen.complete_rows else "no label is observed"
        else:
            found = differentiate(theta, noise, weights, chosen.status)
    if math.isnan(found):
        warn(f"{metric} cannot be estimated and is NaN (n_samples={len(labels)}): {reason}")
    return found


def differentiate(
    value: Callable[[Tensor, Sequence[Tensor]], Tensor], noise: Noise, weights: Tensor, status: Status
) -> Estimate:
    """Return the estimate for a function of row weights (n,) and both rates, with the standard error from its slopes.

    The rates are an empty list if the noise model has no rates per label.
    """
    model = noise if isinstance(noise, NoiseModel) else noise.noise
    # Derivatives are needed even if the caller has disabled gradients.
    with torch.enable_grad():
        weights = weights.clone().requires_grad_()
        known = (model.rho_pos, model.rho_neg) if isinstance(model, ClassConditionalNoise) else ()
        rates = [torch.tensor(rate, device=weights.device, requires_grad=True) for rate in known]
        theta = value(weights, rates)
        slopes = torch.autograd.grad(theta, (weights, *rates), allow_unused=True, materialize_grads=True)
    n = len(weights)
    variance = float(slopes[0].square().sum()) * n / (n - 1) if n > 1 else math.nan
    if not isinstance(noise, NoiseModel):
        for slope, error in zip(slopes[1:], (noise.se_pos, noise.se_neg)):
            variance += float((slope * torch.tensor(error, dtype=torch.float64).to(slope.device)).square().sum())
    se = math.nan if theta.isnan() else variance**0.5
    return Estimate(float(theta.detach()), se, status_with_rates(status, noise))


def resolve_noise_model(noise: Noise, Y: Any, name: str = "Y") -> NoiseModel:
    """Return the given or estimated noise model after checking that it has as many labels as the matrix Y."""
    check_noise_or_rates(noise, (NoiseModel, EstimatedNoise))
    model = noise if isinstance(noise, NoiseModel) else noise.noise
    check_label_width(Y.shape, model.n_labels, name)
    return model


def status_with_rates(status: Status, noise: Noise) -> Status:
    """Return the status with these rates: approximate if they are estimated, from a model that can be wrong."""
    uncertain = not isinstance(noise, NoiseModel) and bool((noise.se_pos > 0).any() or (noise.se_neg > 0).any())
    return "approximate" if uncertain else status


def read_pair(Y: Labels, second: Any, noise: object, needs: str, first: str = "Y") -> tuple[Tensor, Tensor]:
    """Return both arguments of a metric as checked tensors (n, q): labels in float64, predictions as bool or scores."""
    name = "Y_pred" if needs == "labels" else "scores"
    names = label_names_of(Y)
    check_same_labels((first, names), ("noise", getattr(noise, "label_names", None)))
    check_same_labels((first, names), (name, label_names_of(second)))
    devices = [given.device for given in (Y, second) if isinstance(given, Tensor)]
    if len(set(devices)) > 1:
        raise ValueError(
            f"{first} and {name} must be on one device; got {devices[0]} and {devices[1]}: use .to(device)"
        )
    labels, other = to_tensor(Y, first), to_tensor(second, name)
    check_matrix_pair(labels, other, (first, name))
    if devices:  # if only one argument is a tensor, the other is moved to its device
        labels, other = labels.to(devices[0]), other.to(devices[0])
    check_zero_one(labels if noise is None else labels.double().nan_to_num(0.0), first)
    if needs == "labels":
        check_zero_one(other, "Y_pred")
        return labels.double(), other == 1
    check_no_nan(other, "scores")
    return labels.double(), other if other.is_floating_point() else other.double()


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


def mean_of_row_blocks(rows: Callable[[Tensor, Tensor], Tensor], Y: Tensor, other: Tensor) -> Tensor:
    """Return the mean of ``rows(Y, other)``, one value per row, computed block by block to bound the memory."""
    size = max(1, MAX_BLOCK_ENTRIES // Y.shape[-1])
    return torch.cat([rows(y, o) for y, o in zip(torch.split(Y, size), torch.split(other, size))]).mean()
