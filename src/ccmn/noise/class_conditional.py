"""Class-conditional multi-label noise: every label flips with its own two rates (section 3 of the paper).

``rho_pos[j] = P(noisy_j = 0 | true_j = 1)``, a true label lost (the paper's rho with subscript +1);
``rho_neg[j] = P(noisy_j = 1 | true_j = 0)``, a false label added (subscript -1). Defined here and nowhere else.

What candidate sets and weak labels share: one of the two rates is zero.

Candidate sets: false labels are added, none is lost (partial multi-label learning, section 5 of the paper).

Weak labels: true labels are lost, none is added (learning with missing labels, section 3 of the paper).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse, label_names_of, to_dense_array
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_count,
    check_label_names,
    check_label_values,
    check_rate_sums,
    check_rates,
    check_same_labels,
    name_some,
)
from ccmn.noise.noise_model import Debiasing, NoiseModel

ArrayOrTensor = TypeVar("ArrayOrTensor", FloatArray, torch.Tensor)


def debias_labels(noisy: ArrayOrTensor, rho_pos: ArrayOrTensor, rho_neg: ArrayOrTensor) -> ArrayOrTensor:
    r"""The unbiased label.

    .. math:: p_j = \frac{\tilde y_j - \rho_{neg,j}}{1 - \rho_{pos,j} - \rho_{neg,j}},
              \qquad E[p_j \mid y_j] = y_j

    Linear in the noisy label, so soft labels are fine; NaN stays NaN.
    """
    return (noisy - rho_neg) / (1 - rho_pos - rho_neg)


def flip_labels(
    labels: NDArray[Any], rho_pos: FloatArray, rho_neg: FloatArray, rng: np.random.Generator
) -> NDArray[Any]:
    """Flip each 1 with probability rho_pos and each 0 with probability rho_neg, independently; NaN stays."""
    flip = rng.random(labels.shape) < np.where(labels == 1, rho_pos, rho_neg)
    if np.issubdtype(labels.dtype, np.floating):
        flip &= ~np.isnan(labels)
    return np.where(flip, labels == 0, labels).astype(labels.dtype)


def flip_csr(labels: Any, rho_pos: FloatArray, rho_neg: FloatArray, rng: np.random.Generator) -> Any:
    """``flip_labels`` for CSR, in time and memory of the labels stored before and after.

    Added labels: for every column the rows that would flip if they were negative are drawn first (a binomial
    number of distinct rows); those that hold something already are dropped. Stored NaN stays.
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
    return scipy.sparse.coo_array(
        (
            np.concatenate([value[keep], np.ones(added_row.size)]),
            (
                np.concatenate([stored_row[keep], added_row]),
                np.concatenate([stored_column[keep], added_column]),
            ),
        ),
        shape=(n, q),
    ).tocsr()


class ClassConditionalDebiasing(Debiasing):
    """:func:`debias_labels` with the rates as buffers."""

    rho_pos: torch.Tensor
    rho_neg: torch.Tensor

    def __init__(self, rho_pos: FloatArray, rho_neg: FloatArray) -> None:
        super().__init__()
        self.register_buffer("rho_pos", torch.tensor(rho_pos, dtype=torch.float64))
        self.register_buffer("rho_neg", torch.tensor(rho_neg, dtype=torch.float64))

    def forward(self, noisy: torch.Tensor) -> torch.Tensor:
        # The two constants per label are formed in float64 and rounded once.
        scale = 1 / (1 - self.rho_pos - self.rho_neg)
        return noisy * scale.to(noisy.dtype) - (self.rho_neg * scale).to(noisy.dtype)


class ClassConditionalNoise(NoiseModel):
    """Every label flips independently, with its own two rates.

    Parameters
    ----------
    rho_pos, rho_neg : array of shape (q,), or float
        ``rho_pos[j] = P(noisy 0 | true 1)``, ``rho_neg[j] = P(noisy 1 | true 0)``; their sum must be below 1 for
        every label. A pandas Series gives its index as label names.
    n_labels : int, optional
        Needed when both rates are single numbers.
    label_names : sequence of str, optional

    Examples
    --------
    >>> import numpy as np
    >>> noise = ClassConditionalNoise([0.1, 0.2], [0.3, 0.0], label_names=["sea", "sky"])
    >>> noise
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
        self._rho_pos = check_rates(rho_pos, "rho_pos", n_labels)
        self._rho_neg = check_rates(rho_neg, "rho_neg", n_labels)
        self.n_labels = self._rho_pos.size
        if label_names is None:
            label_names = label_names_of(rho_pos) or label_names_of(rho_neg)
        self.label_names = check_label_names(label_names, self.n_labels)
        check_rate_sums(self._rho_pos, self._rho_neg, self.label_names)
        for rates in (self._rho_pos, self._rho_neg):
            rates.flags.writeable = False

    @property
    def rho_pos(self) -> FloatArray:
        """P(noisy 0 | true 1) per label, float64 (q,)."""
        return self._rho_pos

    @property
    def rho_neg(self) -> FloatArray:
        """P(noisy 1 | true 0) per label, float64 (q,)."""
        return self._rho_neg

    @classmethod
    def from_pairs(cls, Y_true: Labels, Y_noisy: Labels) -> ClassConditionalNoise:
        """Empirical rates from rows whose true and noisy labels are both known (NaN pairs are left out).

        A label with no true positive (or no true negative) says nothing about that rate: it is set to 0, with
        a warning that names the labels.
        """
        rho_pos, rho_neg, names = count_rates(Y_true, Y_noisy)
        return ClassConditionalNoise(rho_pos, rho_neg, label_names=names)

    @classmethod
    def sample(
        cls,
        q: int,
        choices: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5),
        max_sum: float | None = None,
        random_state: RandomState = None,
    ) -> ClassConditionalNoise:
        """The paper's draw: both rates of every label from ``choices``; pairs whose sum reaches 1 are redrawn.

        ``max_sum`` redraws pairs above it as well (0.6: the milder protocol). Redrawing until a pair is allowed is
        a uniform draw from the allowed pairs, which is what is done here.
        """
        rates = check_rates(choices, "choices", None)
        limit = 1 - 1e-9 if max_sum is None else min(max_sum + 1e-9, 1 - 1e-9)
        allowed = np.array([(a, b) for a in rates for b in rates if a + b <= limit])
        if not len(allowed):
            raise ValueError(
                f"no two of the choices {tuple(rates.tolist())} have a sum below 1"
                + (f" and at most max_sum={max_sum:g}" if max_sum is not None else "")
            )
        drawn = allowed[as_generator(random_state).integers(len(allowed), size=check_count(q, "q"))]
        return ClassConditionalNoise(drawn[:, 0], drawn[:, 1])

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: kind, rates, and the label names where known."""
        result: dict[str, Any] = {
            "kind": self.kind,
            "rho_pos": self._rho_pos.tolist(),
            "rho_neg": self._rho_neg.tolist(),
        }
        if self.label_names is not None:
            result["label_names"] = list(self.label_names)
        return result

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls(d["rho_pos"], d["rho_neg"], label_names=d.get("label_names"))

    def debiasing(self) -> Debiasing:
        return ClassConditionalDebiasing(self._rho_pos, self._rho_neg)

    def _corrupt_array(self, labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        return flip_labels(labels, self._rho_pos, self._rho_neg, rng)

    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any:
        return type(labels)(flip_csr(labels, self._rho_pos, self._rho_neg, rng).astype(labels.dtype))

    def _debias_array(self, noisy: NDArray[Any]) -> NDArray[Any]:
        p = debias_labels(noisy, self._rho_pos, self._rho_neg)
        return p.astype(noisy.dtype, copy=False)

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and np.array_equal(self._rho_pos, other._rho_pos)
            and np.array_equal(self._rho_neg, other._rho_neg)
            and self.label_names == other.label_names
        )

    def __hash__(self) -> int:
        return hash((self.kind, self._rho_pos.tobytes(), self._rho_neg.tobytes(), self.label_names))

    def __repr__(self) -> str:
        head = f"{type(self).__name__}({self.n_labels} label{'s' if self.n_labels > 1 else ''})"
        names = self.label_names or tuple(str(j) for j in range(self.n_labels))
        shown = range(self.n_labels) if self.n_labels <= 12 else range(10)
        width = max(5, *(len(names[j]) for j in shown))
        lines = [f"  {'label':<{width}}  rho_pos  rho_neg"]
        lines += [f"  {names[j]:<{width}}  {self._rho_pos[j]:7.3f}  {self._rho_neg[j]:7.3f}" for j in shown]
        if len(shown) < self.n_labels:
            lines.append(f"  ... and {self.n_labels - len(shown)} more")
        return "\n".join([head, *lines])


def count_rates(Y_true: Labels, Y_noisy: Labels) -> tuple[FloatArray, FloatArray, tuple[str, ...] | None]:
    """Flips counted per label: (rho_pos, rho_neg, names)."""
    names = label_names_of(Y_true) or label_names_of(Y_noisy)
    check_same_labels(("Y_true", names), ("Y_noisy", label_names_of(Y_noisy)))
    if is_sparse(Y_true) and is_sparse(Y_noisy):
        counts = _count_sparse(Y_true.tocsr(), Y_noisy.tocsr())
    else:
        counts = _count_dense(to_dense_array(Y_true), to_dense_array(Y_noisy))
    positives, negatives, lost, added = (np.asarray(c, dtype=np.float64).ravel() for c in counts)
    for total, which, rate in ((positives, "positive", "rho_pos"), (negatives, "negative", "rho_neg")):
        if (total == 0).any():
            where = name_some(np.flatnonzero(total == 0), names, total.size)
            warnings.warn(f"no true {which} for {where}: {rate} cannot be counted there and is set to 0", stacklevel=3)
    return lost / np.maximum(positives, 1), added / np.maximum(negatives, 1), names


def _check_pair_shapes(true_shape: tuple[int, ...], noisy_shape: tuple[int, ...]) -> None:
    if true_shape != noisy_shape or len(true_shape) != 2:
        raise ValueError(f"Y_true and Y_noisy must be matrices of one shape (n, q); got {true_shape} and {noisy_shape}")


def _count_dense(true: NDArray[Any], noisy: NDArray[Any]) -> tuple[Any, Any, Any, Any]:
    _check_pair_shapes(true.shape, noisy.shape)
    check_label_values(true, "Y_true")
    check_label_values(noisy, "Y_noisy")
    # Comparisons with NaN are False on both sides, so unobserved pairs drop out by themselves.
    positive, negative = (true == 1) & (noisy == noisy), (true == 0) & (noisy == noisy)
    return (
        positive.sum(0),
        negative.sum(0),
        (positive & (noisy == 0)).sum(0),
        (negative & (noisy == 1)).sum(0),
    )


def _count_sparse(true: Any, noisy: Any) -> tuple[Any, Any, Any, Any]:
    _check_pair_shapes(true.shape, noisy.shape)
    for matrix, argument in ((true, "Y_true"), (noisy, "Y_noisy")):
        check_label_values(matrix.data, argument)
        if np.isnan(matrix.data).any():
            raise ValueError(f"{argument} is sparse and holds NaN; pass dense arrays when labels are unobserved")
    kept = true.multiply(noisy).sum(0)
    positives = np.asarray(true.sum(0))
    return positives, true.shape[0] - positives, positives - kept, np.asarray(noisy.sum(0)) - kept


class OneSidedNoise(ClassConditionalNoise):
    """Labels are only added, or only lost; a subclass says which."""

    rate: ClassVar[str]
    """Which rate is not zero: "rho_pos" or "rho_neg"."""

    broken_promise: ClassVar[str]
    """What it means when pairs show a flip on the other side."""

    def __init__(
        self, rho: ArrayLike, *, n_labels: int | None = None, label_names: Sequence[str] | None = None
    ) -> None:
        names = label_names if label_names is not None else label_names_of(rho)
        # Checked here as well, so that a message speaks of rho, the argument the user typed.
        rates = check_rates(rho, "rho", n_labels)
        zero = np.zeros_like(rates)
        rho_pos, rho_neg = (rates, zero) if self.rate == "rho_pos" else (zero, rates)
        super().__init__(rho_pos, rho_neg, label_names=names)

    @classmethod
    def from_pairs(cls, Y_true: Labels, Y_noisy: Labels) -> Self:
        """Empirical rates; refused when the pairs show a flip on the side that cannot be."""
        rho_pos, rho_neg, names = count_rates(Y_true, Y_noisy)
        rho, other = (rho_pos, rho_neg) if cls.rate == "rho_pos" else (rho_neg, rho_pos)
        if other.any():
            where = name_some(np.flatnonzero(other), names, other.size)
            raise ValueError(
                f"{cls.broken_promise}, but that is not so for {where}; "
                "count both rates with ClassConditionalNoise.from_pairs"
            )
        return cls(rho, label_names=names)

    @classmethod
    def sample(  # type: ignore[override]  # one rate, not two: there is no sum to bound
        cls,
        q: int,
        choices: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
        random_state: RandomState = None,
    ) -> Self:
        """The paper's draw for candidate sets: one rate from ``choices``, the same for every label."""
        rates = check_rates(choices, "choices", None)
        return cls(float(as_generator(random_state).choice(rates)), n_labels=check_count(q, "q"))

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls(d[cls.rate], label_names=d.get("label_names"))


class PartialNoise(OneSidedNoise):
    """Candidate label sets: ``rho_pos = 0``, ``rho_neg = rho``.

    >>> PartialNoise(0.3, n_labels=2).debias([[1, 0]]).round(3)
    array([[ 1.   , -0.429]])
    """

    kind: ClassVar[str] = "partial"
    rate: ClassVar[str] = "rho_neg"
    broken_promise: ClassVar[str] = "candidate sets must hold every true label"


class MissingNoise(OneSidedNoise):
    """Missing positives: ``rho_pos = rho``, ``rho_neg = 0``.

    >>> MissingNoise(0.5, n_labels=2).debias([[1, 0]])
    array([[2., 0.]])
    """

    kind: ClassVar[str] = "missing"
    rate: ClassVar[str] = "rho_pos"
    broken_promise: ClassVar[str] = "weak labels must hold no false label"
