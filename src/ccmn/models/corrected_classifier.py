"""CorrectedClassifier: any scikit-learn classifier with probabilities, made noise-aware by the plug-in (section 9)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags, _safe_indexing, assert_all_finite, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse, label_names_of, to_dense_array
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_label_matrix, check_label_width, check_same_labels
from ccmn.estimation import NOISE_TYPES, NoiseRates, estimate_noise
from ccmn.estimation.out_of_fold import number_of_folds, stratified_folds
from ccmn.models.training_data import check_zeros_for
from ccmn.noise import ClassConditionalNoise

EDGE = 1e-6
"""Probabilities outside [0, 1] are fitted, in their order, into margins of this width."""


class CorrectedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A classifier trained on noisy labels as they are, and its probabilities put right.

    .. math:: \eta_j(x) = \frac{\tilde\eta_j(x) - \rho_{neg,j}}{1 - \rho_{pos,j} - \rho_{neg,j}}, \qquad
              \text{predict } 1 \iff \tilde\eta_j(x) \ge \frac{1 - \rho_{pos,j} + \rho_{neg,j}}{2}

    with :math:`\tilde\eta` the probability of the noisy label, which is what the classifier learns. Nothing about the
    training changes, so any classifier will do; how good the result is depends on how well calibrated it is.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``
        A copy is fitted for each label, to the rows where it was observed; once for all labels where the classifier
        takes several (a forest, ``MLPClassifier``, ``ClassifierChain``) and every label was observed everywhere.
    noise : noise model, "estimate", "partial", "missing" or None
        The rates; or estimate them, with the side declared ("partial": labels were only added, "missing": only lost)
        or not: from the features where they are a matrix of numbers, else (texts, say) from probabilities that copies
        of ``estimator`` give to rows held out. None: no correction.
    random_state : int, Generator or None
        For the folds of the estimation. The classifier has its own.

    Attributes
    ----------
    noise_ : ClassConditionalNoise
    rates_ : NoiseRates
        With standard errors and flags, where the rates were estimated.
    estimators_ : list of fitted classifiers
        One per label whose observed values differ, or one in all.
    classes_ : array (q,)
        The numbers of the labels.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> noise = PartialNoise([0.6, 0.5])
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=noise, random_state=0)
    >>> plain = LogisticRegression()
    >>> corrected = CorrectedClassifier(plain, noise).fit(task.X, task.Y_noisy)
    >>> bool((corrected.predict(task.X) == task.Y).mean() > 0.9)
    True
    """

    def __init__(self, estimator: Any, noise: Any = "estimate", *, random_state: RandomState = None) -> None:
        self.estimator = estimator
        self.noise = noise
        self.random_state = random_state

    def fit(self, X: Any, y: Labels) -> Self:
        """Fit to noisy labels.

        Parameters
        ----------
        X : whatever ``estimator`` takes (arrays, CSR, DataFrames, texts), n rows
        y : labels (n, q) in {0, 1}: array, CSR or DataFrame; NaN where not observed
        """
        if not hasattr(self.estimator, "predict_proba"):
            raise TypeError(
                f"the classifier must have predict_proba; {type(self.estimator).__name__} has none. Wrap it in "
                "sklearn.calibration.CalibratedClassifierCV."
            )
        Y = _labels(X, y)
        check_zeros_for(self.noise, Y, label_names_of(y))
        self.classes_ = np.arange(Y.shape[1])
        self._posterior = NoisyPosterior(self.estimator).fit(X, Y)
        self.estimators_ = self._posterior.estimators
        for name in ("n_features_in_", "feature_names_in_"):
            if self.estimators_ and hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        self.noise_ = self._noise(X, Y, label_names_of(y))
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Labels (n, q) in {0, 1}: where ``decision_function`` is at least 0."""
        return (self.decision_function(X) >= 0).astype(np.int64)

    def decision_function(self, X: Any) -> FloatArray:
        """How far the corrected probability, before it is fitted into (0, 1), lies above one half; (n, q)."""
        return self._corrected(X) - 0.5

    def predict_proba(self, X: Any) -> FloatArray:
        """P(true label = 1 | x), (n, q), strictly inside (0, 1)."""
        return fit_inside(self._corrected(X), *corrected_range(self.noise_))

    def _corrected(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        return correct(self._posterior.proba(X), self.noise_)

    def _noise(self, X: Any, Y: FloatArray, names: tuple[str, ...] | None) -> ClassConditionalNoise:
        """The noise model given, or one with estimated rates."""
        noise = self.noise
        if noise is None:
            return ClassConditionalNoise(0.0, 0.0, n_labels=Y.shape[1], label_names=names)
        if isinstance(noise, ClassConditionalNoise):
            check_label_width(Y.shape, noise.n_labels, "y")
            check_same_labels(("y", names), ("noise", noise.label_names))
            return noise
        if not isinstance(noise, str) or noise not in NOISE_TYPES:
            given = repr(noise) if isinstance(noise, str) else type(noise).__name__
            raise ValueError(
                "noise must be a model with rates per label such as ClassConditionalNoise(rho_pos, rho_neg), "
                f"or 'estimate', 'partial', 'missing' or None; got {given}"
            )
        seed = int(as_generator(self.random_state).integers(2**31))
        if len(Y) < 2:
            raise ValueError("noise cannot be estimated from 1 sample; give a noise model with known rates")
        features, scores = X, None
        if not is_matrix_of_numbers(X):
            features, scores = None, held_out_proba(self.estimator, X, Y, seed)
        labels: Any = Y
        if names is not None:
            from pandas import DataFrame

            labels = DataFrame(Y, columns=list(names))
        self.rates_: NoiseRates = estimate_noise(
            features, labels, noise_type=NOISE_TYPES[noise], pred_proba=scores, random_state=seed
        )
        return self.rates_.shrunk_noise

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def correct(noisy: FloatArray, noise: ClassConditionalNoise) -> FloatArray:
    """(noisy - rho_neg) / (1 - rho_pos - rho_neg): linear, and outside [0, 1] where the noisy posterior overshoots."""
    result: FloatArray = (noisy - noise.rho_neg) / (1 - noise.rho_pos - noise.rho_neg)
    return result


def corrected_range(noise: ClassConditionalNoise) -> tuple[FloatArray, FloatArray]:
    """The least and the most that ``correct`` can give, per label."""
    return correct(np.zeros(noise.n_labels), noise), correct(np.ones(noise.n_labels), noise)


def fit_inside(values: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Values in [low, high] into (0, 1), in their order: unchanged but for margins of width ``EDGE``.

    A clip that makes no ties: whatever lies below the margin is spread over its lower half, likewise above.

    >>> (1e6 * fit_inside(np.array([-1.0, -0.5, 0.3]), np.array(-1.0), np.array(1.0))).round(2)
    array([5.0e-01, 7.5e-01, 3.0e+05])
    """
    below = EDGE * (0.5 + 0.5 * (values - low) / (EDGE - low))
    above = 1 - EDGE * (0.5 + 0.5 * (high - values) / (high - 1 + EDGE))
    return np.where(values < EDGE, below, np.where(values > 1 - EDGE, above, values))


def is_matrix_of_numbers(X: Any) -> bool:
    """Finite numbers in two dimensions, dense or sparse: what rates can be estimated from without a classifier."""
    if is_sparse(X):
        return bool(np.isfinite(X.tocsr().data).all())
    try:
        array = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return array.ndim == 2 and bool(np.isfinite(array).all())


def held_out_proba(estimator: Any, X: Any, Y: FloatArray, seed: int) -> FloatArray:
    """Probabilities of the noisy labels (n, q), each by a copy that did not see the row."""
    result = np.empty(Y.shape)
    folds = stratified_folds(Y, number_of_folds(Y), np.random.default_rng(seed))
    for k, held_out in enumerate(folds):
        rest = np.sort(np.concatenate(folds[:k] + folds[k + 1 :]))
        posterior = NoisyPosterior(estimator).fit(_safe_indexing(X, rest), Y[rest])
        result[held_out] = posterior.proba(_safe_indexing(X, held_out))
    return result


class NoisyPosterior:
    """P(noisy label = 1 | x) for all labels, by copies of a scikit-learn classifier.

    A label with a single observed value has nothing to be learnt; it gets its smoothed share, (k + 1/2) / (n + 1).
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.estimators: list[Any] = []
        self._columns: list[NDArray[np.intp]] = []

    def fit(self, X: Any, Y: FloatArray) -> Self:
        """Copies fitted to the labels whose observed values differ: one for all of them, or one each."""
        ones, zeros = (Y == 1).sum(0), (Y == 0).sum(0)
        self._share = (ones + 0.5) / (ones + zeros + 1)
        varied = np.flatnonzero((ones > 0) & (zeros > 0))
        tags = get_tags(self.estimator)
        takes_several = tags.target_tags.multi_output or tags.classifier_tags.multi_label
        if takes_several and varied.size > 1 and not np.isnan(Y[:, varied]).any():
            self._columns = [varied]
            self.estimators = [clone(self.estimator).fit(X, Y[:, varied].astype(np.int64))]
            return self
        self._columns = [np.array([j]) for j in varied]
        self.estimators = [self._fit_one(X, Y[:, j], tags.target_tags.single_output) for j in varied]
        return self

    def proba(self, X: Any) -> FloatArray:
        """(n, q), float64."""
        result = np.tile(self._share, (_num_samples(X), 1))
        for estimator, columns in zip(self.estimators, self._columns):
            result[:, columns] = positive_columns(estimator.predict_proba(X), columns.size)
        return result

    def _fit_one(self, X: Any, column: FloatArray, as_vector: bool) -> Any:
        seen = np.flatnonzero(~np.isnan(column))
        target = column[seen].astype(np.int64)
        rows = X if seen.size == column.size else _safe_indexing(X, seen)
        return clone(self.estimator).fit(rows, target if as_vector else target[:, None])


def positive_columns(proba: Any, q: int) -> FloatArray:
    """P(label = 1), (n, q), from the forms that scikit-learn knows.

    A list of q arrays (n, 2), an array (n, q) for several labels, or (n, 2) for one.
    """
    if isinstance(proba, list):
        return np.column_stack([np.asarray(label)[:, 1] for label in proba])
    array = np.asarray(proba, dtype=np.float64)
    return array[:, -1:] if q == 1 else array


def _labels(X: Any, y: Labels) -> FloatArray:
    """The noisy labels as a checked matrix, with scikit-learn's words where it has a word for the mistake."""
    if y is None:
        raise ValueError("CorrectedClassifier requires y to be passed, but the target y is None")
    Y = to_dense_array(y)
    check_consistent_length(X, Y)
    if Y.ndim != 2:
        check_classification_targets(Y)
        raise ValueError(
            "y must be a matrix of shape (n, q), a column of 0 and 1 per class. Only binary classification is "
            f"supported, of one label or several; got shape {Y.shape}. A single label is y.reshape(-1, 1)."
        )
    if Y.dtype.kind == "f":
        assert_all_finite(Y, allow_nan=True, input_name="y")
    missing = np.isnan(Y.astype(np.float64)) if Y.dtype.kind in "biuf" else np.zeros(1, dtype=bool)
    if missing.all() and missing.size:
        raise ValueError("y holds NaN alone: no label was observed")
    if not missing.any():
        check_classification_targets(Y)
    return check_label_matrix(Y, "y")
