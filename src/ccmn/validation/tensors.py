"""Tensors, as losses take them, and the devices they are on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def check_tensors(outputs: Any, labels: Any) -> None:
    """A loss takes tensors, on one device."""
    for value, argument in ((outputs, "outputs"), (labels, "labels")):
        if not hasattr(value, "requires_grad"):
            raise TypeError(f"{argument} must be a torch tensor; got {type(value).__name__}: use torch.as_tensor(...)")
    if outputs.device != labels.device:
        raise ValueError(f"outputs are on {outputs.device}, labels on {labels.device}: move one to the other")


def check_scores_and_targets(scores: Sequence[int], targets: Sequence[int]) -> None:
    """Shapes (..., q) and (..., q) with the same q."""
    if not scores or not targets or scores[-1] != targets[-1]:
        raise ValueError(
            f"scores and targets must have the labels in the last dimension, as many in both; "
            f"got shapes {tuple(scores)} and {tuple(targets)}"
        )


def check_outputs_and_labels(
    outputs: Sequence[int], labels: Sequence[int], n_outputs: int, n_labels: int | None
) -> None:
    """Shapes (..., n_outputs) and (..., q), rows alike, q the number of labels of the noise model."""
    if not labels or not outputs:
        raise ValueError(
            f"outputs and labels must have the labels in the last dimension; "
            f"got shapes {tuple(outputs)} and {tuple(labels)}"
        )
    q = labels[-1]
    if n_labels is not None and q != n_labels:
        raise ValueError(f"the noise model has {n_labels} labels, but the labels given have shape {tuple(labels)}")
    if outputs[-1] != n_outputs:
        dummy = " (q + 1: column 0 is the dummy label; dummy=False does without)" if n_outputs == q + 1 else ""
        raise ValueError(
            f"for {q} labels this loss needs {n_outputs} outputs{dummy}; got outputs of shape {tuple(outputs)}"
        )
    if outputs[:-1] == labels[:-1]:
        return
    # Labels may lack leading dimensions: many models can be held against one batch of labels.
    rows = tuple(outputs[:-1])
    given = (1,) * (len(outputs) - len(labels)) + tuple(labels[:-1])
    if len(given) != len(rows) or any(g not in (1, r) for g, r in zip(given, rows)):
        raise ValueError(f"outputs and labels must have the same rows; got shapes {tuple(outputs)} and {tuple(labels)}")


def check_soft_labels(labels: Any) -> None:
    """Label values between 0 and 1, or NaN, in a tensor."""
    if ((labels < 0) | (labels > 1)).any():
        low, high = float(labels.nan_to_num(0).min()), float(labels.nan_to_num(0).max())
        remedy = " For -1/+1 labels pass (Y + 1) / 2." if low == -1 else ""
        raise ValueError(
            f"labels must be between 0 and 1 (NaN: not observed); got values from {low:g} to {high:g}.{remedy} "
            "Debiased labels go to ccmn.functional; a loss with noise=... debiases by itself."
        )


def check_device(name: str, cuda_available: bool) -> str:
    """The name of a device that is there; "auto" is an accelerator where there is one."""
    if name == "auto":
        return "cuda" if cuda_available else "cpu"
    kind = name.split(":")[0] if isinstance(name, str) else ""
    if kind not in ("cpu", "cuda", "mps", "xpu"):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or another device of torch; got {name!r}")
    if kind == "cuda" and not cuda_available:
        raise ValueError(f"device={name!r}, but torch sees no CUDA device here: use 'auto' or 'cpu'")
    return name


def check_one_device(devices: Sequence[Any], names: Sequence[str]) -> None:
    """Tensors that meet in one computation are on one device."""
    if len(set(devices)) > 1:
        placed = " and ".join(f"{name} on {device}" for name, device in zip(names, devices))
        raise ValueError(f"tensors must be on one device; got {placed}: move them with .to(device)")
