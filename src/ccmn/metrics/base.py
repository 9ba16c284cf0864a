"""What all metrics share: any container in, tensors to compute on, the answer in kind; and the row of the index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from ccmn._containers import Labels, label_names_of, to_dense_array
from ccmn._validation import (
    check_matrix_pair,
    check_no_nan,
    check_numeric,
    check_one_device,
    check_same_labels,
    check_zero_one,
)

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
