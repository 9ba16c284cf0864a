"""Noise rates per row: what noise that depends on the score or on the source of a row is for given rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from ccmn._validation import FloatArray, check_label_names, check_row_rates
from ccmn.noise.class_conditional import debias_labels, flip_labels
from ccmn.noise.noise_model import Debiasing, NoiseModel


class RowDebiasing(Debiasing):
    """Debiasing map of the labels of given rows, with the rates (n, q) as buffers."""

    rho_pos: torch.Tensor
    rho_neg: torch.Tensor

    def __init__(self, rho_pos: FloatArray, rho_neg: FloatArray) -> None:
        super().__init__()
        self.register_buffer("rho_pos", torch.tensor(rho_pos, dtype=torch.float64))
        self.register_buffer("rho_neg", torch.tensor(rho_neg, dtype=torch.float64))

    def forward(self, Y_noisy: torch.Tensor) -> torch.Tensor:
        """Return the debiased labels in the dtype of ``Y_noisy``; NaN stays NaN."""
        return debias_labels(Y_noisy.double(), self.rho_pos, self.rho_neg).to(Y_noisy.dtype)


class RowNoise(NoiseModel):
    r"""Noise model with separate rates for every label of every row.

    .. math:: p_{ij} = \frac{\tilde y_{ij} - \rho_{neg,\,ij}}{1 - \rho_{pos,\,ij} - \rho_{neg,\,ij}}

    Each label is debiased with its own rates, so :math:`E[p \mid y] = y` holds in every row. The model applies to the
    labels of exactly these rows. ``ScoreDependentNoise.at`` and ``GroupedNoise.at`` return it, for metrics and audits.

    Parameters
    ----------
    rho_pos : array-like of shape (n, q)
        False-negative rates ``P(noisy 0 | true 1)``.
    rho_neg : array-like of shape (n, q)
        False-positive rates ``P(noisy 1 | true 0)``. The two rates of an entry must have a sum below 1.
    label_names : sequence of str, default=None
        Names of the labels.

    Attributes
    ----------
    n_labels : int
        Number of labels q.
    label_names : tuple of str or None
        Names of the labels.

    See Also
    --------
    ScoreDependentNoise : Rates that depend on the predicted probability.
    GroupedNoise : Rates that depend on the source of a row.

    Examples
    --------
    >>> noise = RowNoise([[0.0], [0.5]], [[0.0], [0.1]])
    >>> noise.debias([[1], [1]])
    array([[1.  ],
           [2.25]])
    """

    kind: ClassVar[str] = "rows"
    flips_independent: ClassVar[bool] = True

    def __init__(self, rho_pos: ArrayLike, rho_neg: ArrayLike, *, label_names: Sequence[str] | None = None) -> None:
        self._rho_pos, self._rho_neg = check_row_rates(rho_pos, rho_neg)
        self.n_labels = self._rho_pos.shape[1]
        self.label_names = check_label_names(label_names, self.n_labels)
        for rates in (self._rho_pos, self._rho_neg):
            rates.flags.writeable = False

    @property
    def rho_pos(self) -> FloatArray:
        """False-negative rates ``P(noisy 0 | true 1)``, a read-only float64 array of shape (n, q)."""
        return self._rho_pos

    @property
    def rho_neg(self) -> FloatArray:
        """False-positive rates ``P(noisy 1 | true 0)``, a read-only float64 array of shape (n, q)."""
        return self._rho_neg

    def to_dict(self) -> dict[str, Any]:
        """Return a description that can be stored as JSON.

        Returns
        -------
        dict
            Keys ``"kind"``, ``"rho_pos"``, ``"rho_neg"`` and, if known, ``"label_names"``.
        """
        names = {} if self.label_names is None else {"label_names": list(self.label_names)}
        return {"kind": self.kind, "rho_pos": self._rho_pos.tolist(), "rho_neg": self._rho_neg.tolist(), **names}

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls(d["rho_pos"], d["rho_neg"], label_names=d.get("label_names"))

    def debiasing(self) -> Debiasing:
        """Return ``debias`` as a PyTorch module for labels of all rows, which does not check its input.

        Returns
        -------
        Debiasing
            Module with the buffers ``rho_pos`` and ``rho_neg``.
        """
        return RowDebiasing(self._rho_pos, self._rho_neg)

    def _check_labels(self, shape: Any, values: NDArray[Any]) -> None:
        super()._check_labels(shape, values)
        if tuple(shape) != self._rho_pos.shape:
            raise ValueError(
                f"Expected labels of the rows that the rates belong to, {self._rho_pos.shape}; got {shape}"
            )

    def _corrupt_array(self, labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        return flip_labels(labels, self._rho_pos, self._rho_neg, rng)

    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any:
        # The rates are dense (n, q) arrays, so dense labels are acceptable.
        return type(labels)(self._corrupt_array(labels.toarray(), rng))

    def _debias_array(self, noisy: NDArray[Any]) -> NDArray[Any]:
        return debias_labels(noisy, self._rho_pos, self._rho_neg).astype(noisy.dtype, copy=False)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same rates and label names."""
        return (
            isinstance(other, RowNoise)
            and np.array_equal(self._rho_pos, other._rho_pos)
            and np.array_equal(self._rho_neg, other._rho_neg)
            and self.label_names == other.label_names
        )

    def __hash__(self) -> int:
        """Return a hash of the rates and label names."""
        return hash((self.kind, self._rho_pos.tobytes(), self._rho_neg.tobytes(), self.label_names))

    def __repr__(self) -> str:
        """Return one line with the mean rates, for the representation of estimators."""
        n, q = self._rho_pos.shape
        rates = f"mean rho_pos {self._rho_pos.mean():.3f}, mean rho_neg {self._rho_neg.mean():.3f}"
        return f"RowNoise({n} rows, {q} labels, {rates})"
