"""Multi-class noise: exactly one label is true, and it turns into another by a q x q transition matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from ccmn._validation import FloatArray, check_label_names, check_one_hot, check_transition
from ccmn.noise.noise_model import Debiasing, NoiseModel


class TransitionDebiasing(Debiasing):
    """Multiplication by the inverse transition matrix, kept as a buffer with the matrix itself."""

    transition: torch.Tensor
    inverse: torch.Tensor

    def __init__(self, transition: FloatArray) -> None:
        super().__init__()
        self.register_buffer("transition", torch.tensor(transition, dtype=torch.float64))
        self.register_buffer("inverse", torch.linalg.inv(self.transition))

    def forward(self, noisy: torch.Tensor) -> torch.Tensor:
        # float64: autocast would round the product, and NaN spreads over its row, as it must.
        return (noisy.double() @ self.inverse).to(noisy.dtype)


class TransitionNoise(NoiseModel):
    r"""The single-label case: one-hot label vectors under a transition matrix.

    .. math:: T_{jk} = P(\text{noisy class } k \mid \text{true class } j), \qquad
              E[\tilde y T^{-1} \mid y] = y T T^{-1} = y

    Labels of one row do not flip independently here (one goes on as another goes off), which losses over pairs of
    labels take into account. A row with a NaN is not observed as a whole.

    Parameters
    ----------
    T : array of shape (q, q)
        Rows are true classes and sum to 1; columns are noisy classes. Singular matrices are refused.
    label_names : sequence of str, optional

    Examples
    --------
    >>> noise = TransitionNoise([[0.9, 0.1], [0.2, 0.8]])
    >>> noise.debias([[1, 0]]).round(4)
    array([[ 1.1429, -0.1429]])
    """

    kind: ClassVar[str] = "transition"
    flips_independent: ClassVar[bool] = False

    def __init__(self, T: ArrayLike, *, label_names: Sequence[str] | None = None) -> None:
        self._T = check_transition(T)
        self._inverse = np.linalg.inv(self._T)
        self.n_labels = len(self._T)
        self.label_names = check_label_names(label_names, self.n_labels)

    @property
    def T(self) -> FloatArray:
        """P(noisy class | true class), rows true, float64 (q, q)."""
        return self._T

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: kind, matrix, and the label names where known."""
        names = {} if self.label_names is None else {"label_names": list(self.label_names)}
        return {"kind": self.kind, "T": self._T.tolist(), **names}

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls(d["T"], label_names=d.get("label_names"))

    def debiasing(self) -> Debiasing:
        return TransitionDebiasing(self._T)

    def _check(self, shape: Any, values: NDArray[Any]) -> None:
        super()._check(shape, values)
        if values.shape == tuple(shape):  # of CSR only the stored values come here
            check_one_hot(values)

    def _corrupt_array(self, labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        rows = labels.reshape(-1, self.n_labels)
        known = np.asarray(~np.isnan(rows.astype(np.float64)).any(axis=1))
        true = np.nan_to_num(rows.astype(np.float64)).argmax(1)
        # Inverse of the cumulative distribution, one uniform draw per row; the last class takes rounding's rest.
        cumulative = self._T.cumsum(1)[true, :-1]
        drawn = (rng.random((len(rows), 1)) >= cumulative).sum(axis=1)
        noisy = np.where(known[:, None], np.eye(self.n_labels)[drawn], rows)
        return noisy.reshape(labels.shape).astype(labels.dtype)

    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any:
        # q x q is in memory already, so rows of q are small enough to take densely.
        rows = labels.toarray()
        check_one_hot(rows)
        return type(labels)(self._corrupt_array(rows, rng))

    def _debias_array(self, noisy: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(noisy @ self._inverse, dtype=noisy.dtype)

    def __repr__(self) -> str:
        rows = np.array2string(self._T, precision=3, suppress_small=True, threshold=100, prefix="  ")
        return f"TransitionNoise({self.n_labels} classes)\n  {rows}"
