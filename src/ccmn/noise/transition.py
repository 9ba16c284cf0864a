"""Multi-class label noise: exactly one label is true, and a q x q transition matrix replaces it by another."""

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
    """Multiplication by the inverse transition matrix, with the matrix and its inverse as buffers."""

    transition: torch.Tensor
    inverse: torch.Tensor

    def __init__(self, transition: FloatArray) -> None:
        super().__init__()
        self.register_buffer("transition", torch.tensor(transition, dtype=torch.float64))
        self.register_buffer("inverse", torch.linalg.inv(self.transition))

    def forward(self, Y_noisy: torch.Tensor) -> torch.Tensor:
        """Return the debiased labels in the dtype of ``Y_noisy``; a NaN makes its whole row NaN."""
        # In float64, because autocast would round a product in a lower precision.
        return (Y_noisy.double() @ self.inverse).to(Y_noisy.dtype)


class TransitionNoise(NoiseModel):
    r"""Noise model for one-hot labels (one class per row) with a transition matrix [1]_.

    .. math:: T_{jk} = P(\text{noisy class } k \mid \text{true class } j), \qquad
              E[\tilde y T^{-1} \mid y] = y T T^{-1} = y

    The labels of a row do not flip independently: one is removed when another is added. Losses over pairs of labels
    take this into account. A row that contains a NaN counts as not observed.

    Parameters
    ----------
    T : array-like of shape (q, q)
        Transition matrix. Rows are true classes and have the sum 1; columns are noisy classes. The matrix must be
        invertible.
    label_names : sequence of str, default=None
        Names of the classes.

    Attributes
    ----------
    n_labels : int
        Number of classes q.
    label_names : tuple of str or None
        Names of the classes.

    References
    ----------
    .. [1] G. Patrini, A. Rozza, A. K. Menon, R. Nock and L. Qu, "Making Deep Neural Networks Robust to Label Noise: A
       Loss Correction Approach", CVPR, 2017.

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
        """Transition matrix ``P(noisy class | true class)``, a read-only float64 array of shape (q, q)."""
        return self._T

    def to_dict(self) -> dict[str, Any]:
        """Return a description that can be stored as JSON.

        Returns
        -------
        dict
            Keys ``"kind"``, ``"T"`` and, if known, ``"label_names"``.
        """
        names = {} if self.label_names is None else {"label_names": list(self.label_names)}
        return {"kind": self.kind, "T": self._T.tolist(), **names}

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls(d["T"], label_names=d.get("label_names"))

    def debiasing(self) -> Debiasing:
        """Return ``debias`` as a PyTorch module that does not check its input.

        Returns
        -------
        Debiasing
            Module with the buffers ``transition`` and ``inverse``.
        """
        return TransitionDebiasing(self._T)

    def _check_labels(self, shape: Any, values: NDArray[Any]) -> None:
        super()._check_labels(shape, values)
        if values.shape == tuple(shape):  # not for CSR, where values are only the stored entries
            check_one_hot(values)

    def _corrupt_array(self, labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        rows = labels.reshape(-1, self.n_labels)
        known = np.asarray(~np.isnan(rows.astype(np.float64)).any(axis=1))
        true = np.nan_to_num(rows.astype(np.float64)).argmax(1)
        # Inverse transform sampling with one uniform number per row; the last class gets the rounding error.
        cumulative = self._T.cumsum(1)[true, :-1]
        drawn = (rng.random((len(rows), 1)) >= cumulative).sum(axis=1)
        noisy = np.where(known[:, None], np.eye(self.n_labels)[drawn], rows)
        return noisy.reshape(labels.shape).astype(labels.dtype)

    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any:
        # The q x q matrix is already in memory, so dense rows of length q are acceptable.
        rows = labels.toarray()
        check_one_hot(rows)
        return type(labels)(self._corrupt_array(rows, rng))

    def _debias_array(self, noisy: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(noisy @ self._inverse, dtype=noisy.dtype)

    def __repr__(self) -> str:
        """Return one line, for the representation of estimators."""
        return f"TransitionNoise({self.n_labels} classes)"

    def __str__(self) -> str:
        """Return the transition matrix as text."""
        rows = np.array2string(self._T, precision=3, suppress_small=True, threshold=100, prefix="  ")
        return f"TransitionNoise({self.n_labels} classes)\n  {rows}"
