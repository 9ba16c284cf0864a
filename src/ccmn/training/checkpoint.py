"""Checkpoints: the state of a training run in one safetensors file, from which the same run resumes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ccmn._files import atomic_write, check_file, fingerprint
from ccmn.training.networks import Network, StackedAdam, UserNetwork
from ccmn.training.selection import KeepBest

if TYPE_CHECKING:
    from ccmn.training.loop import TrainingResult


class Checkpoint:
    """File with the state of a training run, written atomically every few epochs and after the last one.

    ``fit`` identifies data and parameters of the run; a file of a different fit raises a ValueError. If several ranks
    train together, only rank 0 writes (``is_main``) and all read.
    """

    def __init__(self, path: str | os.PathLike[str], fit: str, *, every: int = 5, is_main: bool = True) -> None:
        self.path, self.fit, self.every, self.is_main = Path(path), fit, every, is_main

    def save(self, network: Network, optimizer: StackedAdam, selection: KeepBest, result: TrainingResult) -> None:
        """Write the state after the last epoch of ``result``; if that fails, the previous file is kept."""
        if not self.is_main:
            return
        tensors = _state(network, optimizer)
        tensors |= {f"best.{i}": t for i, t in enumerate(selection.weights[0] + selection.buffers)}
        tensors |= {"losses": torch.stack(result.losses), "criteria": torch.stack(result.criteria)}
        tensors |= {"best_value": selection.value, "best_epoch": selection.epoch}
        if isinstance(network, UserNetwork):
            # Layers such as dropout use the global random generator.
            tensors["random_state"] = torch.get_rng_state()
            if optimizer.steps.is_cuda:
                tensors["cuda_random_state"] = torch.cuda.get_rng_state(optimizer.steps.device)
        copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as stream:
            stream.write(save(copies, metadata={"fit": self.fit}))

    def resume(self, network: Network, optimizer: StackedAdam, selection: KeepBest, result: TrainingResult) -> None:
        """Restore the saved state, if there is one; a damaged file or that of a different fit is a ValueError."""
        if not self.path.exists():
            return
        try:
            with safe_open(check_file(self.path), "pt", device=str(optimizer.steps.device)) as file:
                tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
            if metadata.get("fit") != self.fit:
                raise ValueError(
                    f"checkpoint {self.path} belongs to a different fit (data, labels or parameters differ); delete it "
                    "to start from the beginning, or use another file"
                )
            state = _state(network, optimizer)
            shapes, stored = ({name: tuple(some[name].shape) for name in state} for some in (state, tensors))
            if shapes != stored:
                raise ValueError(
                    f"checkpoint {self.path} belongs to a different network: expected the shapes {shapes}; got "
                    f"{stored}. Delete the file to start from the beginning, or use another file."
                )
            for name, tensor in state.items():
                tensor.detach().copy_(tensors[name])
            result.losses, result.criteria = (list(tensors[name].unbind(0)) for name in ("losses", "criteria"))
            selection.value, selection.epoch = tensors["best_value"], tensors["best_epoch"]
            finished = len(result.criteria)
            if finished != len(result.losses) or not ((selection.epoch >= 0) & (selection.epoch < finished)).all():
                raise TypeError(f"expected a best epoch below {len(result.losses)}")
            count = len(network.parameters)
            kept = [tensors[f"best.{i}"] for i in range(count + len(network.buffers))]
            selection.weights, selection.buffers = [kept[:count]], kept[count:]
            if "random_state" in tensors:
                torch.set_rng_state(tensors["random_state"].cpu())
            if "cuda_random_state" in tensors:
                torch.cuda.set_rng_state(tensors["cuda_random_state"].cpu(), optimizer.steps.device)
        except (KeyError, IndexError, TypeError, RuntimeError, SafetensorError, OSError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"checkpoint {self.path} is damaged ({reason}); delete it to start from the beginning"
            ) from None

    def of(self, part: str) -> Checkpoint:
        """Return the checkpoint of one of several training runs that follow one another."""
        name = self.path.with_name(f"{self.path.name}.{part}")
        return Checkpoint(name, f"{self.fit} {part}", every=self.every, is_main=self.is_main)

    def remove(self) -> None:
        """Delete the file."""
        if self.is_main:
            self.path.unlink(missing_ok=True)


def _state(network: Network, optimizer: StackedAdam) -> dict[str, torch.Tensor]:
    state = {f"weights.{i}": p.values for i, p in enumerate(network.parameters)}
    state |= {f"buffer.{i}": b for i, b in enumerate(network.buffers)}
    state |= {f"first.{i}": t for i, t in enumerate(optimizer.first)}
    return state | {f"second.{i}": t for i, t in enumerate(optimizer.second)} | {"steps": optimizer.steps}


def fit_fingerprint(params: Mapping[str, Any], noise: Mapping[str, Any], *values: Any) -> str:
    """Return a text that identifies a fit: its parameters, its noise rates and every value of its data.

    All parameters but ``noise`` and ``verbose`` count, all digits of the noise model, and arrays by their values.
    """
    # The address of a function differs between processes.
    named = [
        (name, re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)))
        for name, value in sorted(params.items())
        if name not in ("noise", "verbose")
    ]
    return fingerprint(named, json.dumps(noise), *("none" if value is None else value for value in values))
