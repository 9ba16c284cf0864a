"""Noise rates that depend on the predicted probability: few errors in clear rows, many in ambiguous ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ccmn._containers import Labels, label_names_of, unwrap
from ccmn._random import RandomState
from ccmn._validation import FloatArray, check_label_width, check_probabilities, check_same_labels
from ccmn.noise.class_conditional import (
    MAX_OBSERVED_RATE_SUM,
    ClassConditionalNoise,
    debias_labels,
    limit_rate_sums,
)
from ccmn.noise.row_noise import RowDependentNoise, RowNoise


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
