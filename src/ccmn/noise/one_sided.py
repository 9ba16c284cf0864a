"""Class-conditional noise in which one rate is zero: candidate sets and missing labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import Self

from ccmn._containers import label_names_of
from ccmn._messages import warn
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_count, check_rates, check_real, name_some
from ccmn.noise.class_conditional import ClassConditionalNoise


class _OneRateNoise(ClassConditionalNoise):
    """Class-conditional noise with one rate per label; ``violation`` tells why pairs with other flips are rejected."""

    violation: ClassVar[str]

    def __init__(
        self, rho: ArrayLike, *, n_labels: int | None = None, label_names: Sequence[str] | None = None
    ) -> None:
        names = label_names if label_names is not None else label_names_of(rho)
        # Checked here so that error messages name the parameter rho.
        rates = check_rates(rho, "rho", n_labels)
        zero = np.zeros_like(rates)
        rho_pos, rho_neg = (rates, zero) if self.arguments == ("rho_pos",) else (zero, rates)
        super().__init__(rho_pos, rho_neg, label_names=names)

    @classmethod
    def _from_rates(cls, rho_pos: FloatArray, rho_neg: FloatArray, names: tuple[str, ...] | None) -> Self:
        (rate,) = cls.arguments
        rho, excluded = (rho_pos, rho_neg) if rate == "rho_pos" else (rho_neg, rho_pos)
        if excluded.any():
            where = name_some(np.flatnonzero(excluded), names, excluded.size)
            raise ValueError(f"{cls.violation} for {where}; use ClassConditionalNoise.from_pairs for both rates")
        return cls(rho, label_names=names)

    @classmethod
    def sample(  # type: ignore[override]  # one rate has no sum to bound
        cls,
        q: int,
        choices: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
        random_state: RandomState = None,
    ) -> Self:
        """Return a noise model with one random rate for all labels, as in the experiments of the paper.

        Parameters
        ----------
        q : int
            Number of labels.
        choices : sequence of float, default=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
            Possible rates.
        random_state : int, Generator or None, default=None
            Source of randomness.

        Returns
        -------
        PartialNoise or MissingNoise
            Noise model with q labels.
        """
        rates = check_rates(choices, "choices", None)
        return cls(float(as_generator(random_state).choice(rates)), n_labels=check_count(q, "q"))


class PartialNoise(_OneRateNoise):
    """Noise model that only adds false labels (candidate label sets): ``rho_pos = 0``, ``rho_neg = rho``.

    Parameters
    ----------
    rho : float or array-like of shape (q,)
        False-positive rates ``P(noisy 1 | true 0)``, below 1. A pandas Series also sets the label names.
    n_labels : int, default=None
        Number of labels. Required when ``rho`` is a single number.
    label_names : sequence of str, default=None
        Names of the labels.

    See Also
    --------
    ClassConditionalNoise : Noise with both rates.

    Examples
    --------
    >>> PartialNoise(0.3, n_labels=2).debias([[1, 0]]).round(3)
    array([[ 1.   , -0.429]])
    """

    kind: ClassVar[str] = "partial"
    arguments: ClassVar[tuple[str, ...]] = ("rho_neg",)
    violation: ClassVar[str] = "Y_noisy must contain every true label (candidate sets), but labels were removed"


class MissingNoise(_OneRateNoise):
    """Noise model that only removes true labels: ``rho_pos = rho``, ``rho_neg = 0``.

    Parameters
    ----------
    rho : float or array-like of shape (q,)
        False-negative rates ``P(noisy 0 | true 1)``, below 1. A pandas Series also sets the label names.
    n_labels : int, default=None
        Number of labels. Required when ``rho`` is a single number.
    label_names : sequence of str, default=None
        Names of the labels.

    See Also
    --------
    ClassConditionalNoise : Noise with both rates.

    Examples
    --------
    >>> MissingNoise(0.5, n_labels=2).debias([[1, 0]])
    array([[2., 0.]])
    """

    kind: ClassVar[str] = "missing"
    arguments: ClassVar[tuple[str, ...]] = ("rho_pos",)
    violation: ClassVar[str] = "Y_noisy must contain no false label (missing labels only), but labels were added"


def propensity_noise(
    counts: ArrayLike, A: float = 0.55, B: float = 1.5, *, n_samples: int | None = None
) -> MissingNoise:
    r"""Return missing-label noise whose rates follow from the frequencies of the labels, by the model of [1]_.

    .. math:: 1 - \rho_{pos,j} = \pi_j = \frac{1}{1 + C (N_j + B)^{-A}}, \qquad C = (\log N - 1) (B + 1)^A

    Here :math:`N_j` is the number of samples with label j and N the number of samples. The propensity :math:`\pi_j` is
    the probability that a true label is observed; it is smaller for rare labels. Only observed labels are counted, so
    the model is an assumption about the data and cannot be checked with them. :math:`C` is set to 0 if it is negative
    (N < 3).

    Parameters
    ----------
    counts : array-like of shape (q,)
        Number of training samples with each label. A pandas Series also sets the label names.
    A, B : float, default=0.55 and 1.5
        Parameters of the model. [1]_ fits A = 0.5, B = 0.4 for Wikipedia and A = 0.6, B = 2.6 for Amazon, and
        recommends the default for other data.
    n_samples : int, default=None
        Number of training samples N. ``None`` uses the sum of the counts, with a warning: it is correct if every sample
        has one label, and too large otherwise, which makes the propensities slightly too small.

    Returns
    -------
    MissingNoise
        Noise model with one rate per label.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu and M. Varma, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking
       and Other Missing Label Applications", KDD, 2016.

    Examples
    --------
    >>> noise = propensity_noise([1, 100, 10_000], n_samples=20_000)
    >>> noise.rho_pos.round(2)
    array([0.9 , 0.54, 0.09])
    """
    values = np.asarray(counts, dtype=np.float64)
    if values.ndim != 1 or not values.size or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"counts must be one number of at least 0 per label, shape (q,); got shape {values.shape}")
    check_real(A, "A", 0.0, np.inf)
    check_real(B, "B", 0.0, np.inf)
    if n_samples is None:
        warn("n_samples is not given: the sum of the counts is used as the number of samples")
        n_samples = max(1, int(values.sum()))
    elif check_count(n_samples, "n_samples") < values.max():
        raise ValueError(f"n_samples must be at least the largest count ({values.max():g}); got {n_samples}")
    constant = max(0.0, np.log(n_samples) - 1) * (B + 1) ** A
    propensity = 1 / (1 + constant * (values + B) ** -A)
    return MissingNoise(1 - propensity, label_names=label_names_of(counts))
