"""Noise whose rates depend on the row: on its group, or on the predicted probability of its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse, label_names_of, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_groups,
    check_label_width,
    check_probabilities,
    check_row_rates,
    check_same_labels,
)
from ccmn.noise.class_conditional import (
    MAX_OBSERVED_RATE_SUM,
    ClassConditionalNoise,
    RateDebiasing,
    RateNoise,
    debias_labels,
    limit_rate_sums,
)
from ccmn.noise.noise_model import BaseNoise, Debiasing


class RowDebiasing(RateDebiasing):
    """Debiasing map of the labels of given rows, with rates of shape (n, q)."""

    def forward(self, Y_noisy: Tensor) -> Tensor:
        """Return the debiased labels in the dtype of ``Y_noisy``; NaN stays NaN."""
        return debias_labels(Y_noisy.double(), self.rho_pos, self.rho_neg).to(Y_noisy.dtype)


class RowNoise(RateNoise):
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

    def __init__(self, rho_pos: ArrayLike, rho_neg: ArrayLike, *, label_names: Sequence[str] | None = None) -> None:
        super().__init__(*check_row_rates(rho_pos, rho_neg), label_names=label_names)

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

    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any:
        # The rates are dense (n, q) arrays, so dense labels are acceptable.
        return type(labels)(self._corrupt_array(labels.toarray(), rng))

    def __repr__(self) -> str:
        """Return one line with the mean rates, for the representation of estimators."""
        n, q = self._rho_pos.shape
        rates = f"mean rho_pos {self._rho_pos.mean():.3f}, mean rho_neg {self._rho_neg.mean():.3f}"
        return f"RowNoise({n} rows, {q} labels, {rates})"


class RowDependentNoise(BaseNoise):
    """Base class of noise that is class-conditional given a condition of the row: its group or its score.

    The attribute ``models`` maps each condition to its noise model. The method ``at`` of a subclass returns the
    ``RowNoise`` of given rows.
    """

    condition: ClassVar[str]
    """Name of the condition in error messages."""

    def __init__(self, models: Mapping[Any, ClassConditionalNoise]) -> None:
        name, condition = type(self).__name__, self.condition
        if not models:
            raise ValueError(f"{name} requires at least one {condition}, {{{condition}: ClassConditionalNoise(...)}}")
        wrong = next((m for m in models.values() if not isinstance(m, ClassConditionalNoise)), None)
        if wrong is not None:
            raise TypeError(f"Expected a ClassConditionalNoise for each {condition}; got {type(wrong).__name__}")
        labels = {(m.n_labels, m.label_names) for m in models.values()}
        if len(labels) > 1:
            raise ValueError(f"The noise models of all {condition}s must have the same labels with the same names")
        self.models = dict(models)
        self.n_labels, self.label_names = labels.pop()

    def to_dict(self) -> dict[str, Any]:
        """Return a description that can be stored as JSON if the keys of ``models`` can.

        Returns
        -------
        dict
            Keys ``"kind"`` and ``"models"``, a list of ``[key, description]``.
        """
        return {"kind": self.kind, "models": [[key, model.to_dict()] for key, model in self.models.items()]}

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls({key: ClassConditionalNoise.from_dict(model) for key, model in d["models"]})

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same type and models."""
        return type(other) is type(self) and self.models == other.models

    def __hash__(self) -> int:
        """Return a hash of the models."""
        return hash(tuple(self.models.items()))

    def __repr__(self) -> str:
        """Return one line, for the representation of estimators."""
        return f"{type(self).__name__}({len(self.models)} {self.condition}s, {self.n_labels} labels)"

    def __str__(self) -> str:
        """Return the mean rates of the first twelve conditions."""
        lines = [
            f"  {self._title(key)}: mean rho_pos {model.rho_pos.mean():.3f}, mean rho_neg {model.rho_neg.mean():.3f}"
            for key, model in list(self.models.items())[:12]
        ]
        return "\n".join([repr(self), *lines, *(["  ..."] if len(self.models) > 12 else [])])

    def _title(self, key: Any) -> str:
        return str(key)


class GroupedNoise(RowDependentNoise):
    r"""Class-conditional noise with separate rates for each group of rows.

    .. math:: p_{ij} = \frac{\tilde y_{ij} - \rho_{neg,\,g_i j}}{1 - \rho_{pos,\,g_i j} - \rho_{neg,\,g_i j}}

    Each label is debiased on its own, so :math:`E[p \mid y] = y` holds in every row. Rows with verified labels are a
    group with rates of zero. ``corrupt`` and ``debias`` work as in a noise model, with the group of each row as an
    additional argument.

    Parameters
    ----------
    models : mapping from group to ClassConditionalNoise
        Noise model of each group. All models must have the same labels.

    Attributes
    ----------
    models : dict
        Noise model of each group.
    n_labels : int
        Number of labels q.
    label_names : tuple of str or None
        Names of the labels.

    See Also
    --------
    ClassConditionalNoise : Noise with the same rates in all rows.

    Examples
    --------
    >>> import numpy as np
    >>> crowd, expert = ClassConditionalNoise([0.2], [0.1]), ClassConditionalNoise([0.0], [0.0])
    >>> noise = GroupedNoise({"crowd": crowd, "expert": expert})
    >>> noise.debias(np.array([[1], [1]]), ["crowd", "expert"]).round(3)
    array([[1.286],
           [1.   ]])
    """

    kind: ClassVar[str] = "grouped"
    condition: ClassVar[str] = "group"

    @property
    def groups(self) -> tuple[Any, ...]:
        """Groups, in the order of the rows of ``rho_pos`` and ``rho_neg``."""
        return tuple(self.models)

    @property
    def rho_pos(self) -> FloatArray:
        """False-negative rates ``P(noisy 0 | true 1)``, a float64 array of shape (groups, q)."""
        return np.stack([model.rho_pos for model in self.models.values()])

    @property
    def rho_neg(self) -> FloatArray:
        """False-positive rates ``P(noisy 1 | true 0)``, a float64 array of shape (groups, q)."""
        return np.stack([model.rho_neg for model in self.models.values()])

    def corrupt(self, Y: Labels, groups: Sequence[Any], random_state: RandomState = None) -> Labels:
        """Flip true labels at random, with the rates of the group of each row.

        Parameters
        ----------
        Y : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            True labels 0 or 1. NaN (not observed) stays NaN.
        groups : sequence of length n
            Group of each row.
        random_state : int, Generator or None, default=None
            Source of randomness.

        Returns
        -------
        array, Tensor, DataFrame or CSR matrix of shape (n, q)
            Noisy labels in the container and dtype of ``Y``.
        """
        if is_sparse(Y):
            return self._corrupt_csr(Y.tocsr(), groups, as_generator(random_state))
        return self._noise_of_rows(Y, groups).corrupt(Y, random_state)

    def _corrupt_csr(self, labels: Any, groups: Sequence[Any], rng: np.random.Generator) -> Any:
        """Corrupt the rows of each group, then restore the order of the rows."""
        index = check_groups(groups, labels.shape[0], self.groups)
        rows = [np.flatnonzero(index == g) for g in range(len(self.models))]
        parts = [model.corrupt(labels[own], rng) for own, model in zip(rows, self.models.values())]
        original_order = np.argsort(np.concatenate(rows))
        return type(labels)(scipy.sparse.vstack(parts, format="csr")[original_order])

    def debias(self, Y_noisy: Labels, groups: Sequence[Any]) -> Labels:
        """Return real-valued labels whose expectation given the true labels is the true labels.

        Parameters
        ----------
        Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            Noisy labels 0 or 1. NaN (not observed) stays NaN.
        groups : sequence of length n
            Group of each row.

        Returns
        -------
        array, Tensor or DataFrame of shape (n, q)
            Debiased labels. CSR input gives a dense array.
        """
        return self._noise_of_rows(Y_noisy, groups).debias(Y_noisy)

    def rates_of_rows(self, groups: Sequence[Any], n: int) -> tuple[FloatArray, FloatArray]:
        """Return the rates of the group of each row.

        Parameters
        ----------
        groups : sequence of length n
            Group of each row.
        n : int
            Number of rows.

        Returns
        -------
        rho_pos, rho_neg : arrays of shape (n, q)
            Rates of every row.
        """
        index = check_groups(groups, n, self.groups)
        return self.rho_pos[index], self.rho_neg[index]

    def at(self, groups: Sequence[Any]) -> RowNoise:
        """Return the noise model of rows of these groups.

        Parameters
        ----------
        groups : sequence of length n
            Group of each row.

        Returns
        -------
        RowNoise
            Noise model of these rows, for example for the parameter ``noise`` of metrics.
        """
        return RowNoise(*self.rates_of_rows(groups, len(groups)), label_names=self.label_names)

    def mean(self, groups: Sequence[Any]) -> ClassConditionalNoise:
        """Return the noise model of a random row: the rates averaged over the rows.

        Parameters
        ----------
        groups : sequence
            Group of each row.

        Returns
        -------
        ClassConditionalNoise
            Noise model with the mean rates.
        """
        rho_pos, rho_neg = self.rates_of_rows(groups, len(groups))
        return ClassConditionalNoise(rho_pos.mean(0), rho_neg.mean(0), label_names=self.label_names)

    def _noise_of_rows(self, labels: Any, groups: Sequence[Any]) -> RowNoise:
        n = labels.shape[0] if hasattr(labels, "shape") else len(labels)
        return RowNoise(*self.rates_of_rows(groups, n), label_names=self.label_names)


def interpolate(values: FloatArray, scores: Sequence[float], at: FloatArray) -> FloatArray:
    """Return values (k, q), which belong to k increasing scores, interpolated linearly at (..., q), constant outside.

    >>> interpolate(np.array([[0.0], [1.0], [0.0]]), (0.0, 0.5, 1.0), np.array([[0.25], [0.75]])).ravel()
    array([0.5, 0.5])
    """
    result = np.asarray(values[0] + 0 * at)
    for k in range(len(scores) - 1):
        position = (at - scores[k]) / (scores[k + 1] - scores[k])
        result = result + (values[k + 1] - values[k]) * position.clip(0, 1)
    return result


class ScoreDependentNoise(RowDependentNoise):
    r"""Class-conditional noise whose rates depend on the predicted probability of the label.

    Annotators make more errors in ambiguous rows than in clear ones. The rates are given at a few scores, usually at 0,
    1/2 and 1, and interpolated linearly between them:

    .. math:: \rho(s) = (1 - \lambda)\, \rho(s_k) + \lambda\, \rho(s_{k+1}), \qquad
              \lambda = \frac{s - s_k}{s_{k+1} - s_k}

    The score :math:`s = P(\tilde y = 1 \mid x)` is a calibrated out-of-fold probability of the *noisy* label. The rates
    at 1/2 are those at the decision boundary, the rates at 0 and 1 those far from it. The rates are a function of the
    features only, so that the debiased labels of every row are unbiased, :math:`E[p \mid y, x] = y`. With one score,
    the noise is class-conditional.

    Parameters
    ----------
    models : mapping from score to ClassConditionalNoise
        Noise model at each score from 0 to 1. All models must have the same labels.

    Attributes
    ----------
    models : dict
        Noise model at each score.
    scores : tuple of float
        Scores in increasing order.
    n_labels : int
        Number of labels q.
    label_names : tuple of str or None
        Names of the labels.

    See Also
    --------
    ccmn.estimate_score_noise : Estimate this noise from trusted rows, if they show that the rates depend on the score.
    ClassConditionalNoise : Noise with the same rates in all rows.

    Examples
    --------
    >>> import numpy as np
    >>> clear, ambiguous = ClassConditionalNoise([0.0], [0.0]), ClassConditionalNoise([0.4], [0.2])
    >>> noise = ScoreDependentNoise({0.0: clear, 0.5: ambiguous, 1.0: clear})
    >>> noise.debias(np.array([[1], [1]]), np.array([[1.0], [0.5]]))
    array([[1.],
           [2.]])
    """

    kind: ClassVar[str] = "score_dependent"
    condition: ClassVar[str] = "score"

    def __init__(self, models: Mapping[float, ClassConditionalNoise]) -> None:
        super().__init__(models)
        scores = check_probabilities(np.array([float(score) for score in models]), "The scores of ScoreDependentNoise")
        members = [list(models.values())[k] for k in np.argsort(scores)]
        self.scores = tuple(np.sort(scores).tolist())
        self._rho_pos, self._rho_neg = (np.stack(part) for part in zip(*((m.rho_pos, m.rho_neg) for m in members)))
        rates = zip(self.scores, self._rho_pos, self._rho_neg)
        self.models = {s: ClassConditionalNoise(pos, neg, label_names=self.label_names) for s, pos, neg in rates}

    @property
    def rho_pos(self) -> FloatArray:
        """False-negative rates ``P(noisy 0 | true 1)`` at the scores, a float64 array of shape (scores, q)."""
        return self._rho_pos

    @property
    def rho_neg(self) -> FloatArray:
        """False-positive rates ``P(noisy 1 | true 0)`` at the scores, a float64 array of shape (scores, q)."""
        return self._rho_neg

    def at(self, pred_proba: Any) -> RowNoise:
        """Return the noise model of rows with these probabilities.

        Parameters
        ----------
        pred_proba : array, Tensor or DataFrame of shape (n, q)
            Probabilities P(noisy label = 1 | x) of a model that was not trained on the labels of these rows.

        Returns
        -------
        RowNoise
            Noise model of these rows, for example for the parameter ``noise`` of metrics.
        """
        check_same_labels(("pred_proba", label_names_of(pred_proba)), ("the noise model", self.label_names))
        probabilities = check_probabilities(unwrap(pred_proba)[0], "pred_proba")
        check_label_width(probabilities.shape, self.n_labels, "pred_proba")
        return RowNoise(*self.rates_at(probabilities), label_names=self.label_names)

    def rates_at(self, pred_proba: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the rates of rows with these probabilities, without checking them.

        Parameters
        ----------
        pred_proba : array of shape (..., q)
            Probabilities of the noisy labels.

        Returns
        -------
        rho_pos, rho_neg : arrays of shape (..., q)
            Rates.
        """
        return tuple(interpolate(rates, self.scores, pred_proba) for rates in (self._rho_pos, self._rho_neg))  # type: ignore[return-value]

    def corrupt(self, Y: Labels, pred_proba: Any, random_state: RandomState = None) -> Labels:
        """Flip true labels at random, with the rates at the score of each entry.

        Parameters
        ----------
        Y : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            True labels 0 or 1. NaN (not observed) stays NaN.
        pred_proba : array, Tensor or DataFrame of shape (n, q)
            Score of each entry.
        random_state : int, Generator or None, default=None
            Source of randomness.

        Returns
        -------
        array, Tensor, DataFrame or CSR matrix of shape (n, q)
            Noisy labels in the container and dtype of ``Y``.
        """
        return self.at(pred_proba).corrupt(Y, random_state)

    def debias(self, Y_noisy: Labels, pred_proba: Any) -> Labels:
        """Return real-valued labels whose expectation given the true labels is the true labels.

        Parameters
        ----------
        Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            Noisy labels 0 or 1. NaN (not observed) stays NaN.
        pred_proba : array, Tensor or DataFrame of shape (n, q)
            Score of each entry, from a model that was not trained on the labels of these rows.

        Returns
        -------
        array, Tensor or DataFrame of shape (n, q)
            Debiased labels. CSR input gives a dense array.
        """
        return self.at(pred_proba).debias(Y_noisy)

    def mean(self, pred_proba: Any) -> ClassConditionalNoise:
        r"""Return the class-conditional rates: the means over rows with a true label of 1 and of 0.

        .. math:: \rho_{pos} = \frac{\sum_i \eta_i\, \rho_{pos}(s_i)}{\sum_i \eta_i}, \qquad
                  \rho_{neg} = \frac{\sum_i (1 - \eta_i)\, \rho_{neg}(s_i)}{\sum_i (1 - \eta_i)}

        Here :math:`\eta = (s - \rho_{neg}(s)) / (1 - \rho_{pos}(s) - \rho_{neg}(s))`, clipped to [0, 1], is the
        probability of the true label.

        Parameters
        ----------
        pred_proba : array, Tensor or DataFrame of shape (n, q)
            Probabilities of the noisy labels.

        Returns
        -------
        ClassConditionalNoise
            Noise model with the mean rates. Two rates with a sum above 0.99 are scaled to this sum.
        """
        rows, probabilities = self.at(pred_proba), np.asarray(unwrap(pred_proba)[0], dtype=np.float64)
        true = np.clip(debias_labels(probabilities, rows.rho_pos, rows.rho_neg), 1e-9, 1 - 1e-9)
        rho_pos, rho_neg = (true * rows.rho_pos).sum(0) / true.sum(0), ((1 - true) * rows.rho_neg).sum(0)
        rho_neg = rho_neg / (1 - true).sum(0)
        rates = limit_rate_sums(rho_pos, rho_neg, MAX_OBSERVED_RATE_SUM)
        return ClassConditionalNoise(*rates, label_names=self.label_names)

    def _title(self, key: float) -> str:
        return f"score {key:g}"
