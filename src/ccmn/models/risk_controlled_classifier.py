"""Classifier whose threshold controls a metric on the true labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, _safe_indexing, get_tags
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted
from typing_extensions import Self

from ccmn._containers import Labels, label_names_of, to_dense_array
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_choice, check_real
from ccmn.estimation import NoiseRates
from ccmn.models.corrected_classifier import positive_columns
from ccmn.models.predictor import with_names
from ccmn.models.risk_control import control_risk


class RiskControlledClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multi-label classifier whose threshold guarantees a metric on the true labels.

    A part of the rows is held out. The estimator is fitted on the other rows, and :func:`control_risk` selects the
    threshold on the held-out rows. The labels of all rows may be noisy.

    Parameters
    ----------
    estimator : classifier with ``predict_proba`` or ``decision_function``
        Multi-label classifier, for example :class:`CCMNClassifier` or :class:`CorrectedClassifier`.
    noise : "fitted", NoiseModel, NoiseRates or None, default="fitted"
        Noise of the held-out labels. With "fitted", the rates of the fitted estimator are used: its attribute
        ``rates_`` with standard errors if rates were estimated, otherwise ``noise_``. None declares clean labels.
    metric : {"recall", "precision", "fnr", "hamming"}, default="recall"
        Metric that is controlled; see :func:`control_risk`.
    target : float, default=0.9
        Lower limit of recall or precision, upper limit of fnr or hamming.
    confidence : float, default=0.9
        Probability that the target is met.
    per_label : bool, default=False
        Whether every label gets its own threshold.
    method : {"clt", "bernstein"}, default="clt"
        Test of a threshold.
    prefit : bool, default=False
        Whether ``estimator`` is already fitted. All rows are then used for calibration, and must not be training rows.
    calibration_fraction : float, default=0.3
        Share of the rows that are held out for calibration if ``prefit`` is False.
    random_state : int, Generator or None, default=None
        Controls which rows are held out.

    Attributes
    ----------
    estimator_ : classifier
        Fitted estimator.
    control_ : RiskControl
        Threshold, bound, estimate, and whether the target is guaranteed.
    threshold_ : float or array of shape (q,)
        Threshold of the scores.
    classes_ : array of shape (q,)
        Names of the labels if ``y`` was a DataFrame, else their numbers.

    See Also
    --------
    control_risk : Select a threshold for given scores.

    Notes
    -----
    The steps have the names of MAPIE [1]_: ``fit`` trains and calibrates, ``calibrate`` calibrates a fitted estimator,
    ``predict`` returns label sets.

    References
    ----------
    .. [1] T. Cordier, V. Blot, L. Lacombe, T. Morzadec, A. Capitaine and N. Brunel, "Flexible and Systematic
       Uncertainty Estimation with Conformal Prediction via the MAPIE library", COPA, 2023.

    Examples
    --------
    >>> from ccmn import CCMNClassifier, MissingNoise, RiskControlledClassifier
    >>> from ccmn.data import make_noisy_multilabel
    >>> noise = MissingNoise(0.3, n_labels=3)
    >>> task = make_noisy_multilabel(3000, 5, 3, strength=6, noise=noise, random_state=0)
    >>> base = CCMNClassifier(noise, loss="hamming", surrogate="square", random_state=0)
    >>> clf = RiskControlledClassifier(base, target=0.9, random_state=0).fit(task.X[:2000], task.Y_noisy[:2000])
    >>> bool(clf.control_.guaranteed)
    True
    >>> new = clf.predict(task.X[2000:])
    >>> bool(task.Y[2000:][new == 1].sum() >= 0.9 * task.Y[2000:].sum())
    True
    """

    def __init__(
        self,
        estimator: Any,
        noise: Any = "fitted",
        *,
        metric: str = "recall",
        target: float = 0.9,
        confidence: float = 0.9,
        per_label: bool = False,
        method: str = "clt",
        prefit: bool = False,
        calibration_fraction: float = 0.3,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.noise = noise
        self.metric = metric
        self.target = target
        self.confidence = confidence
        self.per_label = per_label
        self.method = method
        self.prefit = prefit
        self.calibration_fraction = calibration_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Labels) -> Self:
        """Fit the estimator on a part of the rows and select the threshold on the others.

        Parameters
        ----------
        X : array, CSR matrix or DataFrame
            Features of n rows in a form that ``estimator`` accepts.
        y : array, CSR matrix or DataFrame of shape (n, q)
            Noisy labels 0 or 1; NaN where not observed.

        Returns
        -------
        RiskControlledClassifier
            The fitted classifier.
        """
        if y is None:
            raise ValueError("RiskControlledClassifier requires y to be passed, but the target y is None")
        if self.prefit:
            return self.calibrate(X, y)
        check_consistent_length(X, y)
        share = check_real(self.calibration_fraction, "calibration_fraction", 0, 1)
        seed = int(as_generator(self.random_state).integers(2**31))
        train, held_out = train_test_split(np.arange(_num_samples(y)), test_size=share, random_state=seed)
        fitted = clone(self.estimator).fit(_safe_indexing(X, train), _safe_indexing(y, train))
        return self._calibrate(fitted, _safe_indexing(X, held_out), _safe_indexing(y, held_out), None)

    def calibrate(self, X: Any, y: Labels, trusted: Any = None) -> Self:
        """Select the threshold of an estimator that is already fitted.

        Parameters
        ----------
        X : array, CSR matrix or DataFrame
            Features of n calibration rows, which the estimator was not trained on.
        y : array, CSR matrix or DataFrame of shape (n, q)
            Noisy labels of these rows.
        trusted : tuple (rows, Y_true) or array of shape (n, q), default=None
            Verified labels of randomly selected calibration rows; see :func:`control_risk`.

        Returns
        -------
        RiskControlledClassifier
            The calibrated classifier.
        """
        fitted = getattr(self, "estimator_", self.estimator)
        check_is_fitted(fitted)
        return self._calibrate(fitted, X, y, trusted)

    def _calibrate(self, fitted: Any, X: Any, y: Labels, trusted: Any) -> Self:
        """Store the fitted estimator and the threshold that the given rows determine."""
        noise = self.noise
        if isinstance(noise, str):
            check_choice(noise, "noise", ("fitted",))
            rates = getattr(fitted, "rates_", None)
            noise = rates if isinstance(rates, NoiseRates) else getattr(fitted, "noise_", None)
            if noise is None:
                raise ValueError(
                    f"noise='fitted' requires an estimator with the attribute noise_; {type(fitted).__name__} has "
                    "none. Pass a noise model, estimated rates, or None for clean labels."
                )
        self.control_ = control_risk(
            y,
            _scores(fitted, X),
            noise,
            self.metric,
            self.target,
            self.confidence,
            per_label=self.per_label,
            trusted=trusted,
            method=self.method,
        )
        self.estimator_ = fitted
        self.threshold_ = self.control_.threshold
        names = label_names_of(y)
        self.classes_ = np.arange(to_dense_array(y).shape[1]) if names is None else np.array(names)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))
        return self

    def predict(self, X: Any, *, output: str = "array") -> Any:
        """Predict the labels whose score is at least the threshold.

        Parameters
        ----------
        X : array, CSR matrix or DataFrame
            Features of n rows.
        output : {"array", "frame"}, default="array"
            "frame" returns a DataFrame with the names of the labels as columns and the index of X if it is a DataFrame.

        Returns
        -------
        array or DataFrame of shape (n, q)
            Predicted labels 0 or 1.
        """
        check_is_fitted(self)
        return with_names(self.control_.predict(_scores(self.estimator_, X)), self.classes_, X, output)

    def predict_proba(self, X: Any, *, output: str = "array") -> Any:
        """Return the probabilities of the estimator.

        Parameters
        ----------
        X : array, CSR matrix or DataFrame
            Features of n rows.
        output : {"array", "frame"}, default="array"
            "frame" returns a DataFrame with the names of the labels as columns and the index of X if it is a DataFrame.

        Returns
        -------
        array or DataFrame of shape (n, q)
            Probabilities of all labels.
        """
        check_is_fitted(self)
        proba = positive_columns(self.estimator_.predict_proba(X), self.classes_.size)
        return with_names(proba, self.classes_, X, output)

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of a multi-label classifier that accepts the features of ``estimator``."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def _scores(estimator: Any, X: Any) -> FloatArray:
    """Return the probabilities of all labels, (n, q), or the scores of an estimator without probabilities."""
    if not hasattr(estimator, "predict_proba"):
        scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
        return scores[:, None] if scores.ndim == 1 else scores
    proba = estimator.predict_proba(X)
    # scikit-learn has several formats: one array per label, or one array for all labels.
    q = len(proba) if isinstance(proba, list) else np.shape(proba)[1]
    return positive_columns(proba, q)
