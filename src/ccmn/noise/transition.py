"""Multi-class label noise: exactly one label is true, and a q x q transition matrix replaces it by another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ccmn._containers import Labels, label_names_of, to_dense_array
from ccmn._validation import FloatArray, check_names, check_one_hot, check_same_labels, check_transition
from ccmn.noise.noise_model import Debiasing, NoiseModel

PSEUDO_ROWS = 10
"""Weight of the common share of correct rows in ``from_pairs``, in rows of each class."""


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
    T : ndarray of float64, shape (q, q)
        Transition matrix ``P(noisy class | true class)``, read-only.

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
    stored: ClassVar[tuple[str, ...]] = ("T",)
    arguments: ClassVar[tuple[str, ...]] = ("T",)
    flips_independent: ClassVar[bool] = False

    def __init__(self, T: ArrayLike, *, label_names: Sequence[str] | None = None) -> None:
        self.T = check_transition(T)
        self.n_labels = len(self.T)
        self.label_names = check_names(label_names, self.n_labels)

    @classmethod
    def from_pairs(cls, Y_true: Labels, Y_noisy: Labels) -> TransitionNoise:
        r"""Return the transition matrix counted on rows with known true and noisy classes, with shrinkage.

        Ten rows are added to the counts of every class, with the share of correct rows of all classes and equal
        numbers of all errors: with few rows, the inverse of the matrix of plain shares has large errors.

        Parameters
        ----------
        Y_true : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            One-hot true classes.
        Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            One-hot noisy classes of the same rows. Rows with NaN in either argument are ignored.

        Returns
        -------
        TransitionNoise
            Noise model with the shrunk matrix.

        Examples
        --------
        >>> import numpy as np
        >>> true, noisy = np.eye(3)[[0, 0, 0, 1, 1, 1, 2, 2, 2]], np.eye(3)[[0, 0, 1, 1, 1, 1, 2, 2, 0]]
        >>> TransitionNoise.from_pairs(true, noisy).T.round(2)
        array([[0.73, 0.17, 0.1 ],
               [0.1 , 0.81, 0.1 ],
               [0.17, 0.1 , 0.73]])
        """
        names = label_names_of(Y_true) or label_names_of(Y_noisy)
        check_same_labels(("Y_true", names), ("Y_noisy", label_names_of(Y_noisy)))
        true, noisy = (to_dense_array(Y).astype(np.float64) for Y in (Y_true, Y_noisy))
        if true.shape != noisy.shape or true.ndim != 2 or true.shape[1] < 2:
            raise ValueError(
                "Y_true and Y_noisy must be one-hot matrices of the same shape (n, q) with at least two classes; got "
                f"{true.shape} and {noisy.shape}"
            )
        for values in (true, noisy):
            check_one_hot(values)
        known = ~(np.isnan(true) | np.isnan(noisy)).any(1)
        if not known.any():
            raise ValueError("Y_true and Y_noisy have no row in which both classes are known")
        counts = true[known].T @ noisy[known]
        correct, q = (np.trace(counts) + 0.5) / (counts.sum() + 1), len(counts)
        common = np.where(np.eye(q, dtype=bool), correct, (1 - correct) / (q - 1))
        total = counts + PSEUDO_ROWS * common
        return cls(total / total.sum(1, keepdims=True), label_names=names)

    def debiasing(self) -> Debiasing:
        """Return ``debias`` as a PyTorch module, with the buffers ``transition`` and ``inverse``."""
        return TransitionDebiasing(self.T)

    def _check_labels(self, shape: Any, values: NDArray[Any]) -> None:
        super()._check_labels(shape, values)
        if values.shape == tuple(shape):  # not for CSR, where values are only the stored entries
            check_one_hot(values)

    def _corrupt_array(self, labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        rows = labels.reshape(-1, self.n_labels)
        known = np.asarray(~np.isnan(rows.astype(np.float64)).any(axis=1))
        true = np.nan_to_num(rows.astype(np.float64)).argmax(1)
        # Inverse transform sampling with one uniform number per row; the last class gets the rounding error.
        cumulative = self.T.cumsum(1)[true, :-1]
        drawn = (rng.random((len(rows), 1)) >= cumulative).sum(axis=1)
        noisy = np.where(known[:, None], np.eye(self.n_labels)[drawn], rows)
        return noisy.reshape(labels.shape).astype(labels.dtype)

    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any:
        # The q x q matrix is already in memory, so dense rows of length q are acceptable.
        rows = labels.toarray()
        check_one_hot(rows)
        return type(labels)(self._corrupt_array(rows, rng))

    def __repr__(self) -> str:
        return f"TransitionNoise({self.n_labels} classes)"
