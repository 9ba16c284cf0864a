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
from ccmn._messages import warn
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_count,
    check_label_values,
    check_label_width,
    check_names,
    check_rate_sums,
    check_rates,
    check_same_labels,
    name_some,
)
from ccmn.noise.noise_model import Debiasing, NoiseModel

MAX_OBSERVED_RATE_SUM = 0.99
"""Two observed rates with a larger sum are scaled down to this sum, because they can hardly be inverted."""

_MIN_PRIOR = 1e-6
"""Probabilities are clipped to [eps, 1 - eps] before Bayes' rule."""

ArrayOrTensor = TypeVar("ArrayOrTensor", FloatArray, Tensor)


def debias_labels(noisy: ArrayOrTensor, rho_pos: ArrayOrTensor, rho_neg: ArrayOrTensor) -> ArrayOrTensor:
    r"""Return the debiased labels.

    .. math:: p_j = \frac{\tilde y_j - \rho_{neg,j}}{1 - \rho_{pos,j} - \rho_{neg,j}},
              \qquad E[p_j \mid y_j] = y_j

    The map is affine in the noisy label, so it also applies to soft labels and probabilities. NaN stays NaN. The rates
    are broadcast to the shape of ``noisy``.
    """
    return (noisy - rho_neg) / (1 - rho_pos - rho_neg)


def limit_rate_sums(rho_pos: FloatArray, rho_neg: FloatArray, max_sum: float) -> tuple[FloatArray, FloatArray]:
    """Return the rates; pairs with a sum above ``max_sum`` are scaled down to this sum.

    >>> limit_rate_sums(np.array([0.2, 0.6]), np.array([0.1, 0.6]), 0.9)
    (array([0.2 , 0.45]), array([0.1 , 0.45]))
    """
    scale = max_sum / np.maximum(rho_pos + rho_neg, max_sum)
    return rho_pos * scale, rho_neg * scale


class ClassConditionalDebiasing(Debiasing):
    """Debiasing map of class-conditional noise, ``p = scale * y - offset``."""

    rho_pos: Tensor
    rho_neg: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(self, rho_pos: FloatArray, rho_neg: FloatArray) -> None:
        super().__init__()
        at_zero, at_one = (debias_labels(np.full_like(rho_pos, y), rho_pos, rho_neg) for y in (0, 1))
        coefficients = {"rho_pos": rho_pos, "rho_neg": rho_neg, "scale": at_one - at_zero, "offset": -at_zero}
        for name, values in coefficients.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    def forward(self, Y_noisy: Tensor) -> Tensor:
        """Return the debiased labels in the dtype of ``Y_noisy``; NaN stays NaN."""
        return Y_noisy * self.scale.to(Y_noisy.dtype) - self.offset.to(Y_noisy.dtype)

    def affine(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return scale and offset of the debiasing map, computed in float64 and rounded once to ``dtype``."""
        return self.scale.to(dtype), self.offset.to(dtype)


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
    rho_pos, rho_neg : ndarray of float64, shape (q,)
        Both rates of every label, read-only.

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
    >>> noise.debias(np.array([[1, 0]]))
    array([[1.16666667, 0.        ]])
    """

    kind: ClassVar[str] = "class_conditional"
    stored: ClassVar[tuple[str, ...]] = ("rho_pos", "rho_neg")
    arguments: ClassVar[tuple[str, ...]] = ("rho_pos", "rho_neg")
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
        self.rho_pos, self.rho_neg = rates
        self.n_labels = rates[0].size
        self.label_names = check_names(label_names, self.n_labels)
        check_rate_sums(*rates, self.label_names)

    def _corrupt_array(self, labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        """Flip each 1 with probability ``rho_pos`` and each 0 with probability ``rho_neg``; NaN stays NaN."""
        flip = (rng.random(labels.shape) < np.where(labels == 1, self.rho_pos, self.rho_neg)) & (labels == labels)
        return np.where(flip, labels == 0, labels).astype(labels.dtype)

    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any:
        """Flip CSR labels in time and memory proportional to the entries stored before and after.

        Added labels are sampled as follows. For every label, a binomial number of distinct rows is drawn as if all rows
        were negative. Rows with a stored entry are then dropped. Stored NaN stays NaN.
        """
        n, q = labels.shape
        stored = labels.astype(np.float64)
        stored.sum_duplicates()
        (row, column), value = stored.tocoo().coords, stored.data
        rates = np.where(value == 1, self.rho_pos[column], self.rho_neg[column])
        flip = (rng.random(value.size) < rates) & ~np.isnan(value)

        counts = rng.binomial(n, self.rho_neg)
        added_row = np.concatenate([rng.choice(n, size=k, replace=False, shuffle=False) for k in counts])
        added_column = np.repeat(np.arange(q), counts)
        new = ~np.isin(added_row * q + added_column, row.astype(np.int64) * q + column)

        places = np.concatenate([row, added_row[new]]), np.concatenate([column, added_column[new]])
        values = np.concatenate([np.where(flip, value == 0, value), np.ones(new.sum())])
        flipped = scipy.sparse.csr_array((values, places), shape=(n, q))
        flipped.eliminate_zeros()
        return type(labels)(flipped.astype(labels.dtype))

    @classmethod
    def from_pairs(cls, Y_true: Labels, Y_noisy: Labels) -> Self:
        """Return the observed flip rates of rows with known true and noisy labels.

        A rate that cannot be observed, because ``Y_true`` contains no positive (or no negative) sample of the label, is
        set to 0. Rates of a label with a sum near 1 or above are scaled down, because they cannot be inverted. Both
        cases give a warning with the names of the labels.

        Parameters
        ----------
        Y_true : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            True labels 0 or 1, or NaN.
        Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            Noisy labels of the same rows. Labels that are NaN in either argument are ignored.

        Returns
        -------
        ClassConditionalNoise, PartialNoise or MissingNoise
            Noise model of this class with the observed rates.

        Raises
        ------
        ValueError
            If the pairs contain flips that the noise model does not have.

        Examples
        --------
        >>> ClassConditionalNoise.from_pairs([[1], [1], [0], [0]], [[1], [0], [0], [0]])
        ClassConditionalNoise(1 label, rho_pos 0.5, rho_neg 0)
        """
        names = label_names_of(Y_true) or label_names_of(Y_noisy)
        check_same_labels(("Y_true", names), ("Y_noisy", label_names_of(Y_noisy)))
        positives, negatives, removed, added = _count_flips(Y_true, Y_noisy)
        for total, which, rate in ((positives, "positive", "rho_pos"), (negatives, "negative", "rho_neg")):
            if (total == 0).any():
                where = name_some(np.flatnonzero(total == 0), names, total.size)
                warn(f"Y_true has no {which} sample for {where}: {rate} is set to 0")
        rho_pos, rho_neg = removed / np.maximum(positives, 1), added / np.maximum(negatives, 1)
        too_large = np.flatnonzero(rho_pos + rho_neg > MAX_OBSERVED_RATE_SUM)
        if too_large.size:
            warn(
                f"Observed rates have a sum above {MAX_OBSERVED_RATE_SUM} for "
                f"{name_some(too_large, names, rho_pos.size)}: they are scaled down to this sum. The noisy labels "
                "contain no information about the true ones; use more rows, or drop the labels.",
            )
        return cls._from_rates(*limit_rate_sums(rho_pos, rho_neg, MAX_OBSERVED_RATE_SUM), names)

    @classmethod
    def _from_rates(cls, rho_pos: FloatArray, rho_neg: FloatArray, names: tuple[str, ...] | None) -> Self:
        return cls(rho_pos, rho_neg, label_names=names)

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
        """Return ``debias`` as a PyTorch module, with the buffers ``rho_pos`` and ``rho_neg``."""
        return ClassConditionalDebiasing(self.rho_pos, self.rho_neg)

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
        noisy_proba = self.rho_neg + (1 - self.rho_pos - self.rho_neg) * prior
        if_one, if_zero = (1 - self.rho_pos) * prior / noisy_proba, self.rho_pos * prior / (1 - noisy_proba)
        return np.asarray(noisy * if_one + (1 - noisy) * if_zero)

    def __repr__(self) -> str:
        ranges = ", ".join(
            f"{name} {rates.min():.2g}" + (f" to {rates.max():.2g}" if rates.max() > rates.min() else "")
            for name, rates in (("rho_pos", self.rho_pos), ("rho_neg", self.rho_neg))
        )
        return f"{type(self).__name__}({self.n_labels} label{'s' if self.n_labels > 1 else ''}, {ranges})"


def _count_flips(Y_true: Labels, Y_noisy: Labels) -> list[FloatArray]:
    """Return, per label, the numbers of true 1s, of true 0s, of removed labels and of added labels."""
    sparse = is_sparse(Y_true) and is_sparse(Y_noisy)
    true: Any
    noisy: Any
    true, noisy = (scipy.sparse.csr_array(Y) if sparse else to_dense_array(Y) for Y in (Y_true, Y_noisy))
    if true.shape != noisy.shape or true.ndim != 2:
        raise ValueError(f"Y_true and Y_noisy must have the same shape (n, q); got {true.shape} and {noisy.shape}")
    for matrix, argument in ((true, "Y_true"), (noisy, "Y_noisy")):
        check_label_values(matrix.data if sparse else matrix, argument)
        if sparse and np.isnan(matrix.data).any():
            raise ValueError(f"{argument} must not contain NaN when it is sparse; pass dense arrays instead")
    rows: Any = true.shape[0]
    if not sparse:
        known = (true == true) & (noisy == noisy)
        true, noisy = np.where(known, true, 0.0), np.where(known, noisy, 0.0)
        rows = known.sum(0)
    positives, kept, given = true.sum(0), (true * noisy).sum(0), noisy.sum(0)
    counts = positives, rows - positives, positives - kept, given - kept
    return [np.asarray(count, dtype=np.float64) for count in counts]
