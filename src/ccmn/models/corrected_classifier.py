"""CorrectedClassifier: noise correction of the probabilities of any scikit-learn classifier (plug-in)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags, _safe_indexing, assert_all_finite, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse, label_names_of, to_dense_array
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_label_matrix, check_label_width, check_same_labels
from ccmn.estimation import NOISE_TYPES, NoiseRates, ScoreNoiseRates, estimate_noise
from ccmn.estimation.out_of_fold import number_of_folds, stratified_folds
from ccmn.models.predictor import with_names
from ccmn.models.training_data import check_zeros_for
from ccmn.noise import ClassConditionalNoise, ScoreDependentNoise
from ccmn.noise.class_conditional import debias_labels

MARGIN = 1e-6
"""Corrected probabilities outside (MARGIN, 1 - MARGIN) are mapped, in their order, into the margins."""


class CorrectedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Noise correction of the probabilities of any scikit-learn classifier.

    The classifier is trained on the noisy labels. It learns the probability :math:`\tilde\eta` of the noisy label, from
    which the probability of the true label follows [1]_:

    .. math:: \eta_j(x) = \frac{\tilde\eta_j(x) - \rho_{neg,j}}{1 - \rho_{pos,j} - \rho_{neg,j}}, \qquad
              \text{predict } 1 \iff \tilde\eta_j(x) \ge \frac{1 - \rho_{pos,j} + \rho_{neg,j}}{2}

    The result is as good as the calibration of the classifier.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``
        A clone is fitted for each label, on the rows where it is observed. If the classifier supports several labels
        (a random forest, ``MLPClassifier``, ``ClassifierChain``) and all labels are observed, one clone is fitted.
    noise : {"both", "partial", "missing"}, noise model, ScoreNoiseRates or None, default="both"
        Noise model of the labels, a ``ClassConditionalNoise`` or ``ScoreDependentNoise``, or the result of
        :func:`ccmn.estimate_score_noise` for out-of-fold probabilities of ``estimator``, which also calibrates the
        probabilities. Rates that depend on the score are those at :math:`\tilde\eta_j(x)`. With "both", both rates
        of every label are estimated. "partial" assumes that labels were only added, "missing" that labels were only
        removed. Rates are estimated from the features if they are a numeric matrix, otherwise from out-of-fold
        probabilities of clones of ``estimator``. ``None`` disables the noise correction.
    random_state : int, Generator or None, default=None
        Controls the folds of the estimation. The classifier has its own parameter.

    Attributes
    ----------
    noise_ : ClassConditionalNoise or ScoreDependentNoise
        Noise model used for the noise correction.
    rates_ : NoiseRates
        Estimated rates with standard errors and flags; only if rates were estimated.
    estimators_ : list of classifiers
        Fitted clones: one per label with different observed values, or one for all of these labels.
    classes_ : array of shape (q,)
        Names of the labels if ``y`` was a DataFrame, else their numbers.

    References
    ----------
    .. [1] A. K. Menon, B. van Rooyen, C. S. Ong and R. C. Williamson, "Learning from Corrupted Binary Labels via
       Class-Probability Estimation", ICML 2015.

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

    def __init__(self, estimator: Any, noise: Any = "both", *, random_state: RandomState = None) -> None:
        self.estimator = estimator
        self.noise = noise
        self.random_state = random_state

    def fit(self, X: Any, y: Labels) -> Self:
        """Fit clones of the classifier to noisy labels.

        Parameters
        ----------
        X : array, CSR matrix, DataFrame or list of texts
            Features of n rows in a form that ``estimator`` accepts.
        y : array, CSR matrix or DataFrame of shape (n, q)
            Noisy labels 0 or 1; NaN where not observed.

        Returns
        -------
        CorrectedClassifier
            The fitted classifier.
        """
        if not hasattr(self.estimator, "predict_proba"):
            raise TypeError(
                f"estimator must have predict_proba; {type(self.estimator).__name__} has none. Wrap it in "
                "sklearn.calibration.CalibratedClassifierCV."
            )
        X = _without_bfloat16(X)
        Y = _read_labels(X, y)
        names = label_names_of(y)
        check_zeros_for(self.noise, Y, names)
        self.classes_ = np.arange(Y.shape[1]) if names is None else np.array(names)
        self._posterior = NoisyPosterior(self.estimator).fit(X, Y)
        self.estimators_ = self._posterior.estimators
        for name in ("n_features_in_", "feature_names_in_"):
            if self.estimators_ and hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        self.noise_ = self._resolve_noise(X, Y, names)
        return self

    def _resolve_noise(
        self, X: Any, Y: FloatArray, names: tuple[str, ...] | None
    ) -> ClassConditionalNoise | ScoreDependentNoise:
        """Return the given noise model, or one with estimated rates."""
        noise = self.noise.noise if isinstance(self.noise, ScoreNoiseRates) else self.noise
        if noise is None:
            return ClassConditionalNoise(0.0, 0.0, n_labels=Y.shape[1], label_names=names)
        if isinstance(noise, (ClassConditionalNoise, ScoreDependentNoise)):
            check_label_width(Y.shape, noise.n_labels, "y")
            check_same_labels(("y", names), ("noise", noise.label_names))
            return noise
        if not isinstance(noise, str) or noise not in NOISE_TYPES:
            given = repr(noise) if isinstance(noise, str) else type(noise).__name__
            raise ValueError(
                "noise must be a model with rates per label such as ClassConditionalNoise(rho_pos, rho_neg), the "
                f"result of estimate_score_noise, or 'both', 'partial', 'missing' or None; got {given}"
            )
        seed = int(as_generator(self.random_state).integers(2**31))
        if len(Y) < 2:
            raise ValueError("noise rates cannot be estimated from 1 sample; pass a noise model with known rates")
        features, pred_proba = X, None
        if not _is_numeric_matrix(X):
            features, pred_proba = None, out_of_fold_proba(self.estimator, X, Y, seed)
        labels: Any = Y
        if names is not None:
            from pandas import DataFrame

            labels = DataFrame(Y, columns=list(names))
        self.rates_: NoiseRates = estimate_noise(
            features, labels, noise_type=noise, pred_proba=pred_proba, random_state=seed
        )
        return self.rates_.shrunk_noise

    def predict(self, X: Any, *, output: str = "array") -> Any:
        """Predict the true labels.

        Parameters
        ----------
        X : array, CSR matrix, DataFrame or list of texts
            Features of n rows.
        output : {"array", "frame"}, default="array"
            "frame" returns a DataFrame with the names of the labels as columns and the index of X if it is a DataFrame.

        Returns
        -------
        array or DataFrame of shape (n, q)
            1 where ``decision_function`` is at least 0, else 0.
        """
        return with_names((self.decision_function(X) >= 0).astype(np.int64), self.classes_, X, output)

    def decision_function(self, X: Any) -> FloatArray:
        """Return the corrected probability minus 1/2, before it is mapped into (0, 1).

        Parameters
        ----------
        X : array, CSR matrix, DataFrame or list of texts
            Features of n rows.

        Returns
        -------
        array of shape (n, q)
            Scores. A label is predicted when its score is at least 0.
        """
        return self._corrected(X) - 0.5

    def predict_proba(self, X: Any, *, output: str = "array") -> Any:
        """Return the probabilities of the true labels.

        Parameters
        ----------
        X : array, CSR matrix, DataFrame or list of texts
            Features of n rows.
        output : {"array", "frame"}, default="array"
            "frame" returns a DataFrame with the names of the labels as columns and the index of X if it is a DataFrame.

        Returns
        -------
        array or DataFrame of shape (n, q)
            P(true label = 1 | x), strictly inside (0, 1).
        """
        corrected, noise = self._corrected(X), self.noise_
        if isinstance(noise, ScoreDependentNoise):
            # Between two scores the corrected probability is a monotone function of the score.
            scores = np.repeat([[0.0], *([s] for s in noise.scores), [1.0]], noise.n_labels, axis=1)
            ends = debias_labels(scores, *noise.rates_at(scores))
            low, high = np.minimum(ends.min(0), 0), np.maximum(ends.max(0), 1)
        else:
            low, high = (
                debias_labels(noisy, noise.rho_pos, noise.rho_neg)
                for noisy in (np.zeros(noise.n_labels), np.ones(noise.n_labels))
            )
        return with_names(clip_in_order(corrected, low, high), self.classes_, X, output)

    def _corrected(self, X: Any) -> FloatArray:
        """Return corrected probabilities, which can lie outside [0, 1]."""
        check_is_fitted(self)
        noisy = self._posterior.proba(_without_bfloat16(X))
        if isinstance(self.noise, ScoreNoiseRates):
            noisy = self.noise.calibration(noisy)
        if isinstance(self.noise_, ScoreDependentNoise):
            return debias_labels(noisy, *self.noise_.rates_at(noisy))
        return debias_labels(noisy, self.noise_.rho_pos, self.noise_.rho_neg)

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of a multi-label classifier that accepts the features of ``estimator``."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def clip_in_order(values: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Map values in [low, high] into (0, 1) without ties: values outside the margins are not changed.

    Values below ``MARGIN`` are spread over the upper half of the lower margin, and values above
    1 - ``MARGIN`` over the lower half of the upper margin.

    >>> (1e6 * clip_in_order(np.array([-1.0, -0.5, 0.3]), np.array(-1.0), np.array(1.0))).round(2)
    array([5.0e-01, 7.5e-01, 3.0e+05])
    """
    below = MARGIN * (0.5 + 0.5 * (values - low) / (MARGIN - low))
    above = 1 - MARGIN * (0.5 + 0.5 * (high - values) / (high - 1 + MARGIN))
    return np.where(values < MARGIN, below, np.where(values > 1 - MARGIN, above, values))


def _without_bfloat16(X: Any) -> Any:
    """Return a bfloat16 tensor as a float32 array, because numpy has no bfloat16; other features unchanged."""
    return to_dense_array(X) if isinstance(X, torch.Tensor) and X.dtype == torch.bfloat16 else X


def _is_numeric_matrix(X: Any) -> bool:
    """Return whether X is a matrix of finite numbers, from which rates can be estimated without a classifier."""
    if is_sparse(X):
        return bool(np.isfinite(X.tocsr().data).all())
    try:
        array = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return array.ndim == 2 and bool(np.isfinite(array).all())


def out_of_fold_proba(estimator: Any, X: Any, Y: FloatArray, seed: int) -> FloatArray:
    """Return out-of-fold probabilities (n, q) of the noisy labels from clones of a classifier."""
    result = np.empty(Y.shape)
    folds = stratified_folds(Y, number_of_folds(Y), np.random.default_rng(seed))
    for k, held_out in enumerate(folds):
        rest = np.sort(np.concatenate(folds[:k] + folds[k + 1 :]))
        posterior = NoisyPosterior(estimator).fit(_safe_indexing(X, rest), Y[rest])
        result[held_out] = posterior.proba(_safe_indexing(X, held_out))
    return result


class NoisyPosterior:
    """P(noisy label = 1 | x) of all labels, from clones of a scikit-learn classifier.

    A label with a single observed value gets the constant (k + 1/2) / (n + 1) for k ones among n observations.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.estimators: list[Any] = []
        self._columns: list[NDArray[np.intp]] = []

    def fit(self, X: Any, Y: FloatArray) -> Self:
        """Fit one clone for all labels with different observed values, or one for each of them."""
        ones, zeros = (Y == 1).sum(0), (Y == 0).sum(0)
        self._share = (ones + 0.5) / (ones + zeros + 1)
        varied = np.flatnonzero((ones > 0) & (zeros > 0))
        tags = get_tags(self.estimator)
        multi_output = tags.target_tags.multi_output or tags.classifier_tags.multi_label
        if multi_output and varied.size > 1 and not np.isnan(Y[:, varied]).any():
            self._columns = [varied]
            self.estimators = [clone(self.estimator).fit(X, Y[:, varied].astype(np.int64))]
            return self
        self._columns = [np.array([j]) for j in varied]
        for j in varied:
            observed = np.flatnonzero(~np.isnan(Y[:, j]))
            target = Y[observed, j].astype(np.int64)
            rows = X if observed.size == len(Y) else _safe_indexing(X, observed)
            target = target if tags.target_tags.single_output else target[:, None]
            self.estimators.append(clone(self.estimator).fit(rows, target))
        return self

    def proba(self, X: Any) -> FloatArray:
        """Return the probabilities (n, q) in float64."""
        result = np.tile(self._share, (_num_samples(X), 1))
        for estimator, columns in zip(self.estimators, self._columns):
            result[:, columns] = positive_columns(estimator.predict_proba(X), columns.size)
        return result


def positive_columns(proba: Any, q: int) -> FloatArray:
    """Return P(label = 1), (n, q), from q arrays (n, 2), an array (n, q), or an array (n, 2) for one label."""
    if isinstance(proba, list):
        return np.column_stack([np.asarray(label)[:, 1] for label in proba])
    array = np.asarray(proba, dtype=np.float64)
    return array[:, -1:] if q == 1 else array


def _read_labels(X: Any, y: Labels) -> FloatArray:
    """Return the noisy labels as a checked matrix; messages follow scikit-learn where it has one."""
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
        raise ValueError("y must contain observed labels; got only NaN")
    if not missing.any():
        check_classification_targets(Y)
    return check_label_matrix(Y, "y")
