"""A long fit that can be resumed: everything the loop needs, in one safetensors file, written atomically."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ccmn.training.networks import Network
from ccmn.training.optimizer import StackedAdam
from ccmn.training.selection import Selection

if TYPE_CHECKING:
    from ccmn.training.loop import TrainingResult


class Checkpoint:
    """Saves the state of a training every few epochs, and goes on from it.

    Parameters
    ----------
    path : path of the file
    fingerprint : str
        Says what is trained on what; a file with another fingerprint is refused rather than continued.
    every : int
        Epochs between two savings.
    writes : bool
        Of several processes that train together one writes; all read.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, *, every: int = 5, writes: bool = True) -> None:
        self.path, self.fingerprint, self.every, self.writes = Path(path), fingerprint, every, writes

    @property
    def _part(self) -> Path:
        """The next one, while it is being written; a kill may leave it behind."""
        return self.path.with_name(self.path.name + ".part")

    def save(
        self, epoch: int, network: Network, optimiser: StackedAdam, selection: Selection, result: TrainingResult
    ) -> None:
        """After an epoch, if it is time."""
        if (epoch + 1) % self.every or not self.writes:
            return
        tensors = {f"weights.{i}": p.values.detach() for i, p in enumerate(network.parameters)}
        tensors |= {f"network_buffer.{i}": b for i, b in enumerate(network.buffers)}
        tensors |= {f"first.{i}": t for i, t in enumerate(optimiser.first)}
        tensors |= {f"second.{i}": t for i, t in enumerate(optimiser.second)}
        tensors |= {f"selection.{name}": t for name, t in selection.state().items()}
        tensors |= {"steps": optimiser.steps, "losses": torch.stack(result.losses)}
        if result.criteria:
            tensors["criteria"] = torch.stack(result.criteria)
        tensors = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
        part = self._part
        self.path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, part, metadata={"fingerprint": self.fingerprint, "epoch": str(epoch)})
        # On the disk before it takes the place of the last one: after a power cut, too, one of the two is whole.
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, self.path)

    def resume(self, network: Network, optimiser: StackedAdam, selection: Selection, result: TrainingResult) -> int:
        """Put the saved state back, if there is one; the epoch to go on with."""
        if not self.path.exists():
            return 0
        tensors, metadata = self._read()
        if metadata.get("fingerprint") != self.fingerprint:
            raise ValueError(
                f"the checkpoint {self.path} belongs to another fit (other data, labels or parameters): "
                "delete it to start anew, or name another file"
            )
        device = network.parameters[0].values.device
        tensors = {name: t.to(device) for name, t in tensors.items()}
        with torch.no_grad():
            for i, parameter in enumerate(network.parameters):
                parameter.values.copy_(tensors[f"weights.{i}"])
                optimiser.first[i].copy_(tensors[f"first.{i}"])
                optimiser.second[i].copy_(tensors[f"second.{i}"])
            optimiser.steps.copy_(tensors["steps"])
            for i, buffer in enumerate(network.buffers):
                buffer.copy_(tensors[f"network_buffer.{i}"])
        prefix = "selection."
        selection.load_state({k[len(prefix) :]: t for k, t in tensors.items() if k.startswith(prefix)})
        result.losses = list(tensors["losses"].unbind(0))
        result.criteria = list(tensors["criteria"].unbind(0)) if "criteria" in tensors else []
        return int(metadata["epoch"]) + 1

    def of(self, part: str) -> Checkpoint:
        """The checkpoint of one of several trainings that follow each other."""
        name = self.path.with_name(f"{self.path.name}.{part}")
        return Checkpoint(name, f"{self.fingerprint} {part}", every=self.every, writes=self.writes)

    def remove(self) -> None:
        """The fit is done: nothing is left to resume."""
        if self.writes:
            self.path.unlink(missing_ok=True)
            self._part.unlink(missing_ok=True)

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            with safe_open(self.path, "pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{self.path} is not a whole checkpoint ({error}): delete it to start anew") from None
