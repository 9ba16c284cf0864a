"""What every noise model can do: corrupt true labels, and debias noisy ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse, label_names_of, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import check_label_values, check_label_width, check_same_labels


class Debiasing(torch.nn.Module, ABC):
    """The debiasing map of a noise model on tensors, with the rates as buffers.

    The buffers stay float64 whatever the module is cast to: ``model.half()`` must move the rates, not round them.
    """

    def _apply(self, fn: Any, recurse: bool = True) -> Debiasing:
        for name, buffer in self.named_buffers(recurse=False):
            probe = fn(torch.empty(0, device=buffer.device))
            setattr(self, name, buffer.to(probe.device))
        return self

    @abstractmethod
    def forward(self, noisy: torch.Tensor) -> torch.Tensor:
        """Debiased labels, in the dtype of ``noisy``; NaN stays NaN."""


class NoiseModel(ABC):
    """How labels go wrong.

    A noise model knows two things and nothing about losses: how to corrupt true labels, and the one linear map
    ``debias`` with ``E[debias(noisy) | true] = true``. Every loss that is multilinear in the labels becomes
    unbiased under it by putting ``debias(noisy)`` for the labels.
    """

    kind: ClassVar[str]
    """The name in ``to_dict``."""

    flips_independent: ClassVar[bool]
    """Do labels of one row flip independently, given the true ones? Losses over pairs need to know."""

    n_labels: int
    label_names: tuple[str, ...] | None

    _kinds: ClassVar[dict[str, type[NoiseModel]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            NoiseModel._kinds[cls.kind] = cls

    def corrupt(self, labels: Labels, random_state: RandomState = None) -> Labels:
        """Flip true labels at random, as this model says.

        Parameters
        ----------
        labels : array, tensor, DataFrame or CSR of shape (..., q) with values 0, 1 or NaN
            The true labels. NaN (not observed) stays NaN.
        random_state : int, Generator or None
            The same seed gives the same flips in every dense container. (CSR is drawn another way, in time and
            memory proportional to what is stored, and gives other flips.)

        Returns
        -------
        The same kind of container, shape and dtype.
        """
        rng = as_generator(random_state)
        if is_sparse(labels):
            labels = labels.tocsr()
            self._check(labels.shape, labels.data)
            return self._corrupt_csr(labels, rng)
        check_same_labels(("labels", label_names_of(labels)), ("the noise model", self.label_names))
        array, rewrap = unwrap(labels)
        self._check(array.shape, array)
        return rewrap(self._corrupt_array(array, rng))

    def debias(self, noisy: Labels) -> Labels:
        """Real-valued labels ``p`` with ``E[p | true labels] = true labels``.

        They lie outside [0, 1], and that is the point: clipping them would undo the correction. NaN stays NaN.
        CSR comes back dense, since the debiased 0 is not 0; hand over batches.
        """
        if is_sparse(noisy):
            noisy = noisy.toarray()
        if isinstance(noisy, torch.Tensor):
            self._check(noisy.shape, noisy.detach().cpu().float().numpy())
            real = noisy if noisy.is_floating_point() else noisy.to(torch.get_default_dtype())
            module = self.debiasing().to(real.device)
            result: torch.Tensor = module(real)
            return result
        check_same_labels(("labels", label_names_of(noisy)), ("the noise model", self.label_names))
        array, rewrap = unwrap(noisy)
        self._check(array.shape, array)
        if array.dtype != np.float32:
            array = array.astype(np.float64)
        return rewrap(self._debias_array(array))

    @abstractmethod
    def debiasing(self) -> Debiasing:
        """``debias`` as a torch module: no checks, any device, the rates as state."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON-safe description; ``from_dict`` reads it back."""

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Self:
        """The inverse of ``to_dict``: the noise model described, of the kind described."""
        if not isinstance(d, dict) or d.get("kind") not in tuple(NoiseModel._kinds):
            given = repr(d.get("kind")) if isinstance(d, dict) else type(d).__name__
            raise ValueError(
                f"not the description of a noise model: 'kind' must be one of "
                f"{', '.join(NoiseModel._kinds)}; got {given}"
            )
        try:
            noise = NoiseModel._kinds[d["kind"]]._from_fields(d)
        except KeyError as missing:
            raise ValueError(f"the description of {d['kind']} noise lacks {missing}") from None
        if not isinstance(noise, cls):
            raise ValueError(f"the noise described is {type(noise).__name__}, not {cls.__name__}")
        return noise

    @classmethod
    @abstractmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self: ...

    @abstractmethod
    def _corrupt_array(self, labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]: ...

    @abstractmethod
    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any: ...

    @abstractmethod
    def _debias_array(self, noisy: NDArray[Any]) -> NDArray[Any]: ...

    def _check(self, shape: Any, values: NDArray[Any]) -> None:
        check_label_width(shape, self.n_labels)
        check_label_values(values)
