"""What the kernels read, and what every way of summing returns."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ccmn.losses.surrogates import Surrogate


class Batch(NamedTuple):
    """Outputs and labels as they were given, and two constants per label: p = scale y - offset."""

    outputs: Tensor
    """(rows, columns), contiguous."""
    labels: Tensor
    """(label rows, q), contiguous: they repeat themselves over the rows of the outputs."""
    scale: Tensor | None
    offset: Tensor | None
    dummy: bool
    surrogate: Surrogate

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self[:4]

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers ``columns`` and ``label_rows`` of a kernel."""
        return self.outputs.shape[1], self.labels.shape[0]

    @property
    def kind(self) -> tuple[str, int, int]:
        """The constants PHI, DUMMY and DEBIAS of a kernel."""
        return self.surrogate.name, int(self.dummy), int(self.scale is not None)

    def floats(self, *shape: int) -> Tensor:
        """Room for float32 numbers on the device of the batch."""
        return torch.empty(shape, dtype=torch.float32, device=self.outputs.device)


class Behind(NamedTuple):
    """What comes from behind the value in a backward pass: one number for all rows, or one for each."""

    grad: Tensor
    share: float
    """What each row's value has in the reduced one."""
    by_row: bool


class Way(Protocol):
    """A way of summing pairs."""

    def values(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The loss of every row, (rows,), and what the gradient is made from."""

    def gradient(self, batch: Batch, kept: Tensor | None, behind: Behind) -> Tensor:
        """The gradient in the type of the outputs."""
