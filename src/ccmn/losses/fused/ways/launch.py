"""Launching a kernel without Triton's look-up, which takes longer than most of the kernels do."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torch import Tensor


class Launcher:
    """A kernel, and its compiled forms by the types of its tensors and by the constants compiled into it.

    Kernels are declared so that they depend on nothing else: neither on sizes nor on where a tensor lies.
    """

    def __init__(self, kernel: Any, warps: int) -> None:
        self._kernel, self._warps = kernel, warps
        self._compiled: dict[Hashable, Any] = {}

    def __call__(
        self,
        grid: tuple[int, int],
        tensors: tuple[Tensor | None, ...],
        numbers: tuple[float, ...],
        *constants: Hashable,
    ) -> None:
        """Run ``grid`` programs; constants are those of the signature, in its order."""
        types = tuple(None if t is None else t.dtype for t in tensors)
        key = (tensors[0].device, types, constants)  # type: ignore[union-attr]
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compiled[key] = self._kernel[grid](*tensors, *numbers, *constants, num_warps=self._warps)
        else:
            compiled[(*grid, 1)](*tensors, *numbers, *constants)
