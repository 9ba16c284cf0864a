"""Class-conditional label noise: each label is flipped with its own pair of rates.

``rho_pos[j] = P(noisy_j = 0 | true_j = 1)`` is the false-negative rate of label j: the probability that a true label
is removed. ``rho_neg[j] = P(noisy_j = 1 | true_j = 0)`` is its false-positive rate: the probability that a false label
is added. The paper writes them rho with subscripts +1 and -1.

Candidate sets and missing labels are the special cases in which one rate is zero (``ccmn.noise.one_sided``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse, label_names_of, to_dense_array
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_count,
    check_label_names,
    check_label_values,
    check_label_width,
    check_rate_sums,
    check_rates,
    check_same_labels,
    name_some,
)
from ccmn._warnings import warn
from ccmn.noise.noise_model import Debiasing, NoiseModel

MAX_OBSERVED_RATE_SUM = 0.99
"""Two observed rates with a sum of 1 or more are scaled down to this sum, because they cannot be inverted."""

_MIN_PRIOR = 1e-6
"""Probabilities are clipped to [eps, 1 - eps] before Bayes' rule."""

ArrayOrTensor = TypeVar("ArrayOrTensor", FloatArray, Tensor)


def debias_labels(noisy: ArrayOrTensor, rho_pos: ArrayOrTensor, rho_neg: ArrayOrTensor) -> ArrayOrTensor:
    r"""Return the debiased labels.

    .. math:: p_j = \frac{\tilde y_j - \rho_{neg,j}}{1 - \rho_{pos,j} - \rho_{neg,j}},
              \qquad E[p_j \mid y_j] = y_j

    The map is affine in the noisy label, so it also applies to soft labels and probabilities. NaN stays NaN.

    Parameters
    ----------
    noisy : array or Tensor
        Noisy labels.
    rho_pos, rho_neg : array or Tensor
        Noise rates, broadcastable to the shape of ``noisy``.

    Returns
    -------
    array or Tensor
        Debiased labels.
    """
    return (noisy - rho_neg) / (1 - rho_pos - rho_neg)


def limit_rate_sums(rho_pos: FloatArray, rho_neg: FloatArray, max_sum: float) -> tuple[FloatArray, FloatArray]:
    """Return the rates; pairs with a sum above ``max_sum`` are scaled down to this sum.

    >>> limit_rate_sums(np.array([0.2, 0.6]), np.array([0.1, 0.6]), 0.9)
    (array([0.2 , 0.45]), array([0.1 , 0.45]))
    """
    scale = max_sum / np.maximum(rho_pos + rho_neg, max_sum)
    return rho_pos * scale, rho_neg * scale


def flip_labels(
    labels: NDArray[Any], rho_pos: FloatArray, rho_neg: FloatArray, rng: np.random.Generator
) -> NDArray[Any]:
    """Flip each 1 with probability ``rho_pos`` and each 0 with probability ``rho_neg``; NaN stays NaN."""
    flip = rng.random(labels.shape) < np.where(labels == 1, rho_pos, rho_neg)
    if np.issubdtype(labels.dtype, np.floating):
        flip &= ~np.isnan(labels)
    return np.where(flip, labels == 0, labels).astype(labels.dtype)


def _flip_csr(labels: Any, rho_pos: FloatArray, rho_neg: FloatArray, rng: np.random.Generator) -> Any:
    """Flip CSR labels in time and memory proportional to the entries stored before and after.

    Added labels are sampled as follows. For every label, a binomial number of distinct rows is drawn as if all rows
    were negative. Rows with a stored entry are then dropped. Stored NaN stays NaN.
    """
    n, q = labels.shape
    labels = labels.astype(np.float64)
    labels.sum_duplicates()
    coo = labels.tocoo()
    stored_row, stored_column, value = coo.coords[0], coo.coords[1], coo.data
    threshold = np.where(value == 1, rho_pos[stored_column], rho_neg[stored_column])
    flip = (rng.random(value.size) < threshold) & ~np.isnan(value)
    value = np.where(flip, value == 0, value)

    counts = rng.binomial(n, rho_neg)
    added_row = np.concatenate([rng.choice(n, size=k, replace=False, shuffle=False) for k in counts])
    added_column = np.repeat(np.arange(q), counts)
    taken = np.isin(added_row * q + added_column, stored_row.astype(np.int64) * q + stored_column)
    added_row, added_column = added_row[~taken], added_column[~taken]

    keep = value != 0
    rows = np.concatenate([stored_row[keep], added_row])
    columns = np.concatenate([stored_column[keep], added_column])
    values = np.concatenate([value[keep], np.ones(added_row.size)])
    return scipy.sparse.coo_array((values, (rows, columns)), shape=(n, q)).tocsr()


class ClassConditionalDebiasing(Debiasing):
    """Debiasing map of class-conditional noise, ``p = scale * y - offset``."""

    rho_pos: Tensor
    rho_neg: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(self, rho_pos: FloatArray, rho_neg: FloatArray) -> None:
        super().__init__()
        self.register_buffer("rho_pos", torch.tensor(rho_pos, dtype=torch.float64))
        self.register_buffer("rho_neg", torch.tensor(rho_neg, dtype=torch.float64))
        self._set_coefficients()
        self.register_load_state_dict_post_hook(_update_coefficients)  # type: ignore[no-untyped-call]

    def _set_coefficients(self) -> None:
        """Compute scale and offset from the debiased values of 0 and 1."""
        at_zero, at_one = (debias_labels(torch.full_like(self.rho_pos, y), self.rho_pos, self.rho_neg) for y in (0, 1))
        self.register_buffer("scale", at_one - at_zero, persistent=False)
        self.register_buffer("offset", -at_zero, persistent=False)

    def forward(self, Y_noisy: Tensor) -> Tensor:
        """Return the debiased labels in the dtype of ``Y_noisy``; NaN stays NaN."""
        scale, offset = self.affine(Y_noisy.dtype)
        return Y_noisy * scale - offset

    def affine(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return scale and offset of the debiasing map, computed in float64 and rounded once to ``dtype``."""
        return self.scale.to(dtype), self.offset.to(dtype)


def _update_coefficients(debiasing: ClassConditionalDebiasing, _: Any) -> None:
    debiasing._set_coefficients()


class ClassConditionalNoise(NoiseModel):
    """Noise model in which each label flips independently, with its own pair of rates [1]_.

    Parameters
    ----------
    rho_pos : float or array-like of shape (q,)
        False-negative rates ``P(noisy 0 | true 1)``. A pandas Series also sets the label names.
    rho_neg : float or array-like of shape (q,)
        False-positive rates ``P(noisy 1 | true 0)``. The two rates of a label must have a sum below 1.
    n_labels : int, default=None
        Number of labels. Required when both rates are single numbers.
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
    PartialNoise : Noise that only adds false labels.
    MissingNoise : Noise that only removes true labels.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.

    Examples
    --------
    >>> import numpy as np
    >>> noise = ClassConditionalNoise([0.1, 0.2], [0.3, 0.0], label_names=["sea", "sky"])
    >>> noise
    ClassConditionalNoise(2 labels, rho_pos 0.1 to 0.2, rho_neg 0 to 0.3)
    >>> print(noise)
    ClassConditionalNoise(2 labels)
      label  rho_pos  rho_neg
      sea      0.100    0.300
      sky      0.200    0.000
    >>> noise.debias(np.array([[1, 0]]))
    array([[1.16666667, 0.        ]])
    """

    kind: ClassVar[str] = "class_conditional"
    flips_independent: ClassVar[bool] = True

    def __init__(
        self,
        rho_pos: ArrayLike,
        rho_neg: ArrayLike,
        *,
        n_labels: int | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        if n_labels is None:
            n_labels = next((int(np.size(r)) for r in (rho_pos, rho_neg) if np.ndim(r) == 1), None)
        else:
            n_labels = check_count(n_labels, "n_labels")
        if label_names is None:
            label_names = label_names_of(rho_pos) or label_names_of(rho_neg)
        rates = check_rates(rho_pos, "rho_pos", n_labels), check_rates(rho_neg, "rho_neg", n_labels)
        for array in rates:
            array.flags.writeable = False
        self._rho_pos, self._rho_neg = rates
        self.n_labels = rates[0].size
        self.label_names = check_label_names(label_names, self.n_labels)
        check_rate_sums(*rates, self.label_names)

    @property
    def rho_pos(self) -> FloatArray:
        """False-negative rates ``P(noisy 0 | true 1)``, a read-only float64 array, shape (q,)."""
        return self._rho_pos

    @property
    def rho_neg(self) -> FloatArray:
        """False-positive rates ``P(noisy 1 | true 0)``, a read-only float64 array, shape (q,)."""
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

    def _corrupt_array(self, labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        return flip_labels(labels, self._rho_pos, self._rho_neg, rng)

    def _debias_array(self, noisy: NDArray[Any]) -> NDArray[Any]:
        return debias_labels(noisy, self._rho_pos, self._rho_neg).astype(noisy.dtype, copy=False)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same type, rates and label names."""
        return (
            type(other) is type(self)
            and np.array_equal(self._rho_pos, other._rho_pos)
            and np.array_equal(self._rho_neg, other._rho_neg)
            and self.label_names == other.label_names
        )

    def __hash__(self) -> int:
        """Return a hash of the rates and label names."""
        return hash((self.kind, self._rho_pos.tobytes(), self._rho_neg.tobytes(), self.label_names))

    @classmethod
    def from_pairs(cls, Y_true: Labels, Y_noisy: Labels) -> ClassConditionalNoise:
        """Return the observed flip rates of rows with known true and noisy labels.

        A rate that cannot be observed, because ``Y_true`` contains no positive (or no negative) sample of the label, is
        set to 0. Two rates of a label with a sum of 1 or more are scaled down, because they cannot be inverted. Both
        cases give a warning with the names of the labels.

        Parameters
        ----------
        Y_true : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            True labels 0 or 1, or NaN.
        Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            Noisy labels of the same rows. Labels that are NaN in either argument are ignored.

        Returns
        -------
        ClassConditionalNoise
            Noise model with the observed rates.

        Examples
        --------
        >>> print(ClassConditionalNoise.from_pairs([[1], [1], [0], [0]], [[1], [0], [0], [0]]))
        ClassConditionalNoise(1 label)
          label  rho_pos  rho_neg
          0        0.500    0.000
        """
        rho_pos, rho_neg, names = observed_rates(Y_true, Y_noisy)
        return ClassConditionalNoise(rho_pos, rho_neg, label_names=names)

    @classmethod
    def sample(
        cls,
        q: int,
        choices: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5),
        max_sum: float | None = None,
        random_state: RandomState = None,
    ) -> ClassConditionalNoise:
        """Return a noise model with random rates, as in the experiments of the paper.

        The two rates of every label are drawn uniformly from all pairs of ``choices`` with a sum below 1.

        Parameters
        ----------
        q : int
            Number of labels.
        choices : sequence of float, default=(0.1, 0.2, 0.3, 0.4, 0.5)
            Possible rates.
        max_sum : float or None, default=None
            Largest allowed sum of the two rates of a label. The moderate-noise experiments use 0.6.
        random_state : int, Generator or None, default=None
            Source of randomness.

        Returns
        -------
        ClassConditionalNoise
            Noise model with q labels.

        Examples
        --------
        >>> noise = ClassConditionalNoise.sample(4, max_sum=0.6, random_state=0)
        >>> bool((noise.rho_pos + noise.rho_neg <= 0.6 + 1e-9).all())
        True
        """
        rates = check_rates(choices, "choices", None)
        limit = 1 - 1e-9 if max_sum is None else min(max_sum + 1e-9, 1 - 1e-9)
        allowed = np.array([(a, b) for a in rates for b in rates if a + b <= limit])
        if not len(allowed):
            bound = f" and at most max_sum={max_sum:g}" if max_sum is not None else ""
            raise ValueError(f"choices must contain two rates with a sum below 1{bound}; got {tuple(rates.tolist())}")
        drawn = allowed[as_generator(random_state).integers(len(allowed), size=check_count(q, "q"))]
        return ClassConditionalNoise(drawn[:, 0], drawn[:, 1])

    def debiasing(self) -> Debiasing:
        """Return ``debias`` as a PyTorch module that does not check its input.

        Returns
        -------
        Debiasing
            Module with the buffers ``rho_pos`` and ``rho_neg``.
        """
        return ClassConditionalDebiasing(self._rho_pos, self._rho_neg)

    def posterior(self, Y_noisy: Labels, pred_proba: Any) -> FloatArray:
        r"""Return the probabilities of the true labels given the noisy labels, by Bayes' rule.

        .. math:: P(y_j = 1 \mid \tilde y_j = 1, x) = \frac{(1 - \rho_{pos,j}) \eta_j}{g_j}, \qquad
                  P(y_j = 1 \mid \tilde y_j = 0, x) = \frac{\rho_{pos,j}\, \eta_j}{1 - g_j}

        Here :math:`\eta_j = P(y_j = 1 \mid x)` and :math:`g_j = \rho_{neg,j} + (1 - \rho_{pos,j} - \rho_{neg,j})
        \eta_j`. This is the E step of the EM algorithm for noisy labels [1]_, [2]_. Like debiased labels, the result
        has the expectation :math:`\eta_j` given x, and its variance is smaller. Unlike debiased labels, it is biased if
        :math:`\eta_j` is wrong.

        Parameters
        ----------
        Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (..., q)
            Noisy labels: 0, 1, soft labels in [0, 1], or NaN (not observed), which stays NaN.
        pred_proba : array or Tensor of shape (..., q)
            Probabilities of the true labels given the features, of models that were not trained on the row, such as
            ``cross_fit_proba(..., noise=noise).pred_proba``.

        Returns
        -------
        ndarray of float64, shape (..., q)
            Probabilities of the true labels.

        References
        ----------
        .. [1] A. P. Dawid and A. M. Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM
           Algorithm", Applied Statistics 28(1), 1979.
        .. [2] V. Mnih and G. E. Hinton, "Learning to Label Aerial Images from Noisy Data", ICML, 2012.

        Examples
        --------
        >>> import numpy as np
        >>> noise = ClassConditionalNoise([0.5, 0.5], [0.1, 0.1])
        >>> noise.posterior(np.array([[1, 0]]), np.array([[0.5, 0.5]])).round(3)
        array([[0.833, 0.357]])
        """
        noisy = to_dense_array(Y_noisy).astype(np.float64)
        check_label_width(noisy.shape, self.n_labels)
        if ((noisy < 0) | (noisy > 1)).any():
            raise ValueError("Y_noisy must be between 0 and 1 (NaN: not observed); got other values")
        prior = to_dense_array(pred_proba).astype(np.float64)
        if prior.shape != noisy.shape or not ((prior >= 0) & (prior <= 1)).all():
            raise ValueError(f"pred_proba must be probabilities of shape {noisy.shape}; got shape {prior.shape}")
        # The limits avoid 0 / 0 for a label that has probability 0 under the model.
        prior = np.clip(prior, _MIN_PRIOR, 1 - _MIN_PRIOR)
        noisy_proba = self._rho_neg + (1 - self._rho_pos - self._rho_neg) * prior
        if_one, if_zero = (1 - self._rho_pos) * prior / noisy_proba, self._rho_pos * prior / (1 - noisy_proba)
        posterior: FloatArray = noisy * if_one + (1 - noisy) * if_zero
        return posterior

    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any:
        return type(labels)(_flip_csr(labels, self._rho_pos, self._rho_neg, rng).astype(labels.dtype))

    def __repr__(self) -> str:
        """Return one line with the ranges of the rates, for the representation of estimators."""
        ranges = ", ".join(
            f"{name} {rates.min():.2g}" + (f" to {rates.max():.2g}" if rates.max() > rates.min() else "")
            for name, rates in (("rho_pos", self._rho_pos), ("rho_neg", self._rho_neg))
        )
        return f"{type(self).__name__}({self._count()}, {ranges})"

    def _count(self) -> str:
        return f"{self.n_labels} label{'s' if self.n_labels > 1 else ''}"

    def __str__(self) -> str:
        """Return the rates as a table."""
        head = f"{type(self).__name__}({self._count()})"
        names = self.label_names or tuple(str(j) for j in range(self.n_labels))
        shown = range(self.n_labels) if self.n_labels <= 12 else range(10)
        width = max(5, *(len(names[j]) for j in shown))
        lines = [f"  {'label':<{width}}  rho_pos  rho_neg"]
        lines += [f"  {names[j]:<{width}}  {self._rho_pos[j]:7.3f}  {self._rho_neg[j]:7.3f}" for j in shown]
        if len(shown) < self.n_labels:
            lines.append(f"  ... and {self.n_labels - len(shown)} more")
        return "\n".join([head, *lines])


def observed_rates(Y_true: Labels, Y_noisy: Labels) -> tuple[FloatArray, FloatArray, tuple[str, ...] | None]:
    """Return the observed rho_pos and rho_neg and the label names; warn about rates that must be changed."""
    names = label_names_of(Y_true) or label_names_of(Y_noisy)
    check_same_labels(("Y_true", names), ("Y_noisy", label_names_of(Y_noisy)))
    if is_sparse(Y_true) and is_sparse(Y_noisy):
        counts = _count_sparse(Y_true.tocsr(), Y_noisy.tocsr())
    else:
        counts = _count_dense(to_dense_array(Y_true), to_dense_array(Y_noisy))
    positives, negatives, removed, added = (np.asarray(c, dtype=np.float64).ravel() for c in counts)
    for total, which, rate in ((positives, "positive", "rho_pos"), (negatives, "negative", "rho_neg")):
        if (total == 0).any():
            where = name_some(np.flatnonzero(total == 0), names, total.size)
            warn(f"Y_true has no {which} sample for {where}: {rate} is set to 0")
    rho_pos, rho_neg = removed / np.maximum(positives, 1), added / np.maximum(negatives, 1)
    total = rho_pos + rho_neg
    too_large = total > 1 - 1e-9
    if too_large.any():
        where = name_some(np.flatnonzero(too_large), names, total.size)
        warn(
            f"Observed rates have a sum of 1 or more for {where}: they are scaled down to a sum of "
            f"{MAX_OBSERVED_RATE_SUM}. The noisy labels contain no information about the true ones; use more "
            "rows, or drop the labels."
        )
        factor = np.where(too_large, MAX_OBSERVED_RATE_SUM / np.maximum(total, 1e-9), 1.0)
        rho_pos, rho_neg = rho_pos * factor, rho_neg * factor
    return rho_pos, rho_neg, names


def _check_pair_shapes(true_shape: tuple[int, ...], noisy_shape: tuple[int, ...]) -> None:
    if true_shape != noisy_shape or len(true_shape) != 2:
        raise ValueError(f"Y_true and Y_noisy must have the same shape (n, q); got {true_shape} and {noisy_shape}")


def _count_dense(true: NDArray[Any], noisy: NDArray[Any]) -> tuple[Any, Any, Any, Any]:
    """Return, per label, the numbers of 1s in ``true``, of 0s in ``true``, of removed labels and of added labels."""
    _check_pair_shapes(true.shape, noisy.shape)
    check_label_values(true, "Y_true")
    check_label_values(noisy, "Y_noisy")
    # Comparisons with NaN are False, so pairs with a NaN are not counted.
    positive, negative = (true == 1) & (noisy == noisy), (true == 0) & (noisy == noisy)
    return (
        positive.sum(0),
        negative.sum(0),
        (positive & (noisy == 0)).sum(0),
        (negative & (noisy == 1)).sum(0),
    )


def _count_sparse(true: Any, noisy: Any) -> tuple[Any, Any, Any, Any]:
    """Return the same numbers for CSR matrices."""
    _check_pair_shapes(true.shape, noisy.shape)
    for matrix, argument in ((true, "Y_true"), (noisy, "Y_noisy")):
        check_label_values(matrix.data, argument)
        if np.isnan(matrix.data).any():
            raise ValueError(f"{argument} must not contain NaN when it is sparse; pass dense arrays instead")
    kept = true.multiply(noisy).sum(0)
    positives = np.asarray(true.sum(0))
    return positives, true.shape[0] - positives, positives - kept, np.asarray(noisy.sum(0)) - kept
