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

from ccmn import _files
from ccmn._files import atomic_write, check_file, remove_stale
from ccmn.training.networks import Network, UserNetwork
from ccmn.training.optimizer import StackedAdam
from ccmn.training.selection import Selection

if TYPE_CHECKING:
    from ccmn.training.loop import TrainingResult


class Checkpoint:
    """File with the state of a training run, written atomically every few epochs.

    Parameters
    ----------
    path : path-like
        File. Folders that do not exist are created.
    fingerprint : str
        Identifies data and parameters of the training run. A file with a different fingerprint raises a ValueError.
    every : int, default=5
        Number of epochs between two writes.
    is_main : bool, default=True
        Whether this process writes. If several ranks train together, only rank 0 writes and all ranks read.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, *, every: int = 5, is_main: bool = True) -> None:
        self.path, self.fingerprint, self.every, self.is_main = Path(path), fingerprint, every, is_main

    def save(
        self, epoch: int, network: Network, optimizer: StackedAdam, selection: Selection, result: TrainingResult
    ) -> None:
        """Write the state after an epoch if the number of epochs is a multiple of ``every``.

        Raises
        ------
        OSError
            If the file cannot be written, for example because the disk is full. The previous file is kept.
        """
        if (epoch + 1) % self.every or not self.is_main:
            return
        tensors = {f"weights.{i}": p.values.detach() for i, p in enumerate(network.parameters)}
        tensors |= {f"network_buffer.{i}": b for i, b in enumerate(network.buffers)}
        tensors |= {f"first.{i}": t for i, t in enumerate(optimizer.first)}
        tensors |= {f"second.{i}": t for i, t in enumerate(optimizer.second)}
        tensors |= {f"selection.{name}": t for name, t in selection.state().items()}
        tensors |= {"steps": optimizer.steps, "losses": torch.stack(result.losses)}
        if result.criteria:
            tensors["criteria"] = torch.stack(result.criteria)
        if isinstance(network, UserNetwork):
            # Layers such as dropout use the global random generator.
            tensors["random_state"] = torch.get_rng_state()
            if network.parameters[0].values.is_cuda:
                tensors["cuda_random_state"] = torch.cuda.get_rng_state(network.parameters[0].values.device)
        tensors = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
        content = save(tensors, metadata={"fingerprint": self.fingerprint, "epoch": str(epoch)})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as stream:
            stream.write(content)

    def resume(self, network: Network, optimizer: StackedAdam, selection: Selection, result: TrainingResult) -> int:
        """Restore the saved state, if there is one; return the number of the next epoch.

        Raises
        ------
        ValueError
            If the file is damaged or belongs to a different fit.
        """
        if not self.path.exists():
            return 0
        try:
            with safe_open(check_file(self.path), "pt") as file:
                tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"checkpoint {self.path} is damaged ({error}); delete it to start from the beginning"
            ) from None
        if metadata.get("fingerprint") != self.fingerprint:
            raise ValueError(
                f"checkpoint {self.path} belongs to a different fit (data, labels or parameters differ); delete it to "
                "start from the beginning, or use another file"
            )
        try:
            self._restore(tensors, network, optimizer, selection, result)
            epoch, finished = metadata["epoch"], len(result.losses)
            # A fit that stopped early is stored with its last possible epoch, so that it does not continue.
            if not re.fullmatch("[0-9]{1,9}", epoch) or int(epoch) + 1 < finished:
                raise TypeError(f"expected at least epoch {finished - 1}; got {epoch[:20]!r}")
            best = tensors.get("selection.best_epoch")
            if best is not None and not ((best >= -1) & (best < finished)).all():
                raise TypeError(f"expected a best epoch below {finished}")
            return int(epoch) + 1
        except (KeyError, IndexError, TypeError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"checkpoint {self.path} is damaged ({reason}); delete it to start from the beginning"
            ) from None

    def _restore(
        self,
        tensors: dict[str, torch.Tensor],
        network: Network,
        optimizer: StackedAdam,
        selection: Selection,
        result: TrainingResult,
    ) -> None:
        """Copy the saved state into the objects of a training run."""
        shapes = [tuple(p.values.shape) for p in network.parameters]
        stored = [tuple(tensors[f"weights.{i}"].shape) for i in range(sum(k.startswith("weights.") for k in tensors))]
        if shapes != stored:
            raise ValueError(
                f"checkpoint {self.path} belongs to a different network: expected weights of the shapes {shapes}; got "
                f"{stored}. Delete the file to start from the beginning, or use another file."
            )
        device = network.parameters[0].values.device
        if "random_state" in tensors:
            torch.set_rng_state(tensors.pop("random_state"))
        if "cuda_random_state" in tensors:
            torch.cuda.set_rng_state(tensors.pop("cuda_random_state"), device)
        tensors = {name: t.to(device) for name, t in tensors.items()}
        with torch.no_grad():
            for i, parameter in enumerate(network.parameters):
                parameter.values.copy_(tensors[f"weights.{i}"])
                optimizer.first[i].copy_(tensors[f"first.{i}"])
                optimizer.second[i].copy_(tensors[f"second.{i}"])
            optimizer.steps.copy_(tensors["steps"])
            for i, buffer in enumerate(network.buffers):
                buffer.copy_(tensors[f"network_buffer.{i}"])
        prefix = "selection."
        selection.load_state({k[len(prefix) :]: t for k, t in tensors.items() if k.startswith(prefix)})
        result.losses = list(tensors["losses"].unbind(0))
        result.criteria = list(tensors["criteria"].unbind(0)) if "criteria" in tensors else []

    def of(self, part: str) -> Checkpoint:
        """Return the checkpoint of one of several training runs that follow one another."""
        name = self.path.with_name(f"{self.path.name}.{part}")
        return Checkpoint(name, f"{self.fingerprint} {part}", every=self.every, is_main=self.is_main)

    def remove(self) -> None:
        """Delete the file, and temporary files that a killed process has left next to it."""
        if not self.is_main:
            return
        self.path.unlink(missing_ok=True)
        remove_stale(self.path)


def fit_fingerprint(params: Mapping[str, Any], noise: Mapping[str, Any], *values: Any) -> str:
    """Return a text that identifies a fit: its parameters, its noise rates and every value of its data.

    Parameters
    ----------
    params : mapping
        Parameters of the estimator. ``noise`` and ``verbose`` are ignored.
    noise : mapping
        Description of the resolved noise model, all digits of which count.
    *values : array, sparse matrix, bytes or other object
        Data of the fit. Objects other than arrays count by their ``repr``.
    """
    # The address of a function differs between processes.
    named = [
        (name, re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)))
        for name, value in sorted(params.items())
        if name not in ("noise", "verbose")
    ]
    return _files.fingerprint(named, json.dumps(noise), *("none" if value is None else value for value in values))
