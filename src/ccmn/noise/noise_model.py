"""Base class of the noise models: corrupt true labels, debias noisy labels, read and write descriptions."""

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
    """Debiasing map of a noise model as a PyTorch module, with the noise rates as buffers.

    The buffers stay float64 when the module is cast: ``model.half()`` moves the rates, but does not round them.
    """

    def _apply(self, fn: Any, recurse: bool = True) -> Debiasing:
        for name, buffer in self.named_buffers(recurse=False):
            probe = fn(torch.empty(0, device=buffer.device))
            setattr(self, name, buffer.to(probe.device))
        return self

    @abstractmethod
    def forward(self, Y_noisy: torch.Tensor) -> torch.Tensor:
        """Return the debiased labels in the dtype of the noisy labels (..., q); NaN stays NaN."""


class Described:
    """Base class of objects that ``to_dict`` describes and ``from_dict`` reads.

    ``kind`` is the name of the class in ``to_dict``, ``stored`` are the arrays in it, and ``arguments`` those that the
    constructor takes.
    """

    kind: ClassVar[str]
    stored: ClassVar[tuple[str, ...]]
    arguments: ClassVar[tuple[str, ...]]
    n_labels: int
    """Number of labels q."""
    label_names: tuple[str, ...] | None
    """Names of the labels, or None."""
    _kinds: ClassVar[dict[str, type[Described]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            Described._kinds[cls.kind] = cls

    def to_dict(self) -> dict[str, Any]:
        """Return a description that can be stored as JSON.

        Returns
        -------
        dict
            Key ``"kind"``, the rates or matrices and, if known, ``"label_names"``. ``from_dict`` reads it.
        """
        names = {} if self.label_names is None else {"label_names": list(self.label_names)}
        return {"kind": self.kind, **{name: getattr(self, name).tolist() for name in self.stored}, **names}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Self:
        """Return the noise model of a description.

        Parameters
        ----------
        d : dict
            Result of ``to_dict``.

        Returns
        -------
        NoiseModel or GroupedNoise
            Noise model of the class that ``d["kind"]`` names.

        Raises
        ------
        ValueError
            If ``d`` is not a valid description, or describes a noise model that is not an instance of this class.
        """
        kinds = {kind: model for kind, model in Described._kinds.items() if issubclass(model, cls)}
        if not isinstance(d, dict) or d.get("kind") not in tuple(kinds):
            given = repr(d.get("kind")) if isinstance(d, dict) else type(d).__name__
            raise ValueError(f"Expected a description of {cls.__name__} with 'kind' {', '.join(kinds)}; got {given}")
        try:
            return kinds[d["kind"]]._from_fields(d)
        except KeyError as missing:
            raise ValueError(f"Description of {d['kind']} noise has no field {missing}") from None
        except (TypeError, AttributeError, LookupError, OverflowError) as error:
            raise ValueError(f"Description of {d['kind']} noise has an invalid field: {error}") from None

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls(*(d[name] for name in cls.arguments), label_names=d.get("label_names"))  # type: ignore[call-arg]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))


class NoiseModel(Described, ABC):
    """Base class of noise models that apply to all rows alike.

    A noise model corrupts true labels, and debiases noisy labels by an affine map with
    ``E[debias(Y_noisy) | Y] = Y``. A loss that is multilinear in the labels becomes unbiased when its labels are
    replaced by debiased labels. Noise models do not depend on losses.
    """

    flips_independent: ClassVar[bool]
    """Whether the labels of a row flip independently given the true labels. Losses over label pairs use it."""

    def _check_labels(self, shape: Any, values: NDArray[Any]) -> None:
        """Check the number of labels and the label values; ``values`` are only the stored ones for CSR."""
        check_label_width(shape, self.n_labels)
        check_label_values(values)

    def corrupt(self, Y: Labels, random_state: RandomState = None) -> Labels:
        """Flip true labels at random.

        Parameters
        ----------
        Y : array, Tensor, DataFrame or CSR matrix of shape (..., q)
            True labels 0 or 1. NaN (not observed) stays NaN.
        random_state : int, Generator or None, default=None
            Source of randomness. The same integer gives the same flips in every dense container. CSR matrices use
            another sampling algorithm, with time and memory proportional to the number of stored entries, and get
            other flips.

        Returns
        -------
        array, Tensor, DataFrame or CSR matrix of shape (..., q)
            Noisy labels in the container and dtype of ``Y``.
        """
        rng = as_generator(random_state)
        if is_sparse(Y):
            Y = Y.tocsr()
            self._check_labels(Y.shape, Y.data)
            return self._corrupt_csr(Y, rng)
        check_same_labels(("labels", label_names_of(Y)), ("the noise model", self.label_names))
        array, rewrap = unwrap(Y)
        self._check_labels(array.shape, array)
        return rewrap(self._corrupt_array(array, rng))

    def debias(self, Y_noisy: Labels) -> Labels:
        """Return real-valued labels whose expectation given the true labels is the true labels.

        Parameters
        ----------
        Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (..., q)
            Noisy labels 0 or 1. NaN (not observed) stays NaN.

        Returns
        -------
        array, Tensor or DataFrame of shape (..., q)
            Debiased labels. They are often outside [0, 1]; clipping them would make them biased. CSR input gives a
            dense array, because the debiased value of 0 is not 0. Convert large CSR matrices in batches.
        """
        if is_sparse(Y_noisy):
            Y_noisy = Y_noisy.toarray()
        if isinstance(Y_noisy, torch.Tensor):
            self._check_labels(Y_noisy.shape, Y_noisy.detach().cpu().float().numpy())
            real = Y_noisy if Y_noisy.is_floating_point() else Y_noisy.to(torch.get_default_dtype())
            return self.debiasing().to(real.device)(real)
        check_same_labels(("labels", label_names_of(Y_noisy)), ("the noise model", self.label_names))
        array, rewrap = unwrap(Y_noisy)
        self._check_labels(array.shape, array)
        dtype = np.float32 if array.dtype == np.float32 else np.float64  # also of other byte orders and long double
        return rewrap(self.debiasing()(torch.tensor(np.ascontiguousarray(array, dtype))).numpy())

    @abstractmethod
    def debiasing(self) -> Debiasing:
        """Return ``debias`` as a PyTorch module that does not check its input, with the noise rates as buffers."""

    @abstractmethod
    def _corrupt_array(self, labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]: ...

    @abstractmethod
    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any: ...
