"""CorrectedClassifier: the recommended classifier for noisy labels, and the correction of any other classifier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils import Tags, check_array, get_tags
from torch import Tensor
from typing_extensions import Self

from ccmn._containers import is_sparse, to_dense_array
from ccmn._messages import show_phases, warn
from ccmn._random import RandomState, as_generator
from ccmn._validation import Constraints, FloatArray, Satisfies, check_parameters, number, one_of
from ccmn.estimation import NoiseRates
from ccmn.estimation.cross_fitting import NoisyPosterior, out_of_fold_proba
from ccmn.estimation.estimate import model_posterior
from ccmn.estimation.likelihood import label_surfaces
from ccmn.estimation.link import CorrectedCurve
from ccmn.estimation.noise_rates import NOISE_TYPES, rates_from_posterior
from ccmn.estimation.posterior import (
    Flips,
    RatePosterior,
    corrected_curve,
    count_flips,
    fixed_rates,
    rate_posterior,
)
from ccmn.models.calibration import MAX_TAIL, f1_thresholds, linear_probability
from ccmn.models.label_classifier import LabelClassifier
from ccmn.models.model_file import read_default
from ccmn.models.persistence import describe, read_description
from ccmn.models.training_data import (
    MAX_ESTIMATION_ENTRIES,
    TrainingData,
    known_noise,
    prepare,
    read_features,
    row_information,
)
from ccmn.noise import ClassConditionalNoise
from ccmn.noise.class_conditional import debias_labels
from ccmn.training.default_model import MAX_Z, NoisyLabelModel, log_odds, stratified_folds
from ccmn.training.default_settings import MIN_PROBABILITY
from ccmn.training.forest import Forest

MAX_RECOMMENDED_LABELS = 1000
"""``fit`` recommends ``CCMNClassifier`` for more labels."""
_NO_WORD = "a ClassConditionalNoise, NoiseRates or None"
CONSTRAINTS: Constraints = {
    "noise": [
        one_of(*NOISE_TYPES),
        Satisfies(lambda v: v is None or isinstance(v, (ClassConditionalNoise, NoiseRates)), _NO_WORD),
    ],
    "threshold": [one_of("fixed", "f1")],
    "cv": [number(2, integer=True)],
    "verbose": [number(0, integer=True)],
}
"""Allowed values of the parameters."""


class CorrectedClassifier(LabelClassifier):
    r"""Multi-label classifier that is trained on noisy labels and predicts the true ones.

    A model of the noisy labels learns :math:`\tilde\eta`, the probability of the noisy label, from which the
    probability of the true label follows [1]_:

    .. math:: \tilde\eta(x) = \rho_{neg} + (1 - \rho_{pos} - \rho_{neg})\, \sigma(a f(x) + b)

    where f are the log-odds of the model. The likelihood of this equation and a prior give the posterior of the rates;
    the prediction is the posterior mean of :math:`\sigma(a f + b)`. In the probabilities of another ``estimator``, the
    noise is inverted, :math:`(\tilde\eta - \rho_{neg}) / (1 - \rho_{pos} - \rho_{neg})`, with smooth tails at 0 and 1.

    It is the recommended classifier for tables and texts with up to about 1,000 labels. :class:`CCMNClassifier` trains
    networks with the unbiased losses of the paper. Both are the same idea: with least squares, debiasing the
    predictions equals training on debiased labels.

    Parameters
    ----------
    estimator : classifier with ``predict_proba`` or None, default=None
        None averages logistic regressions and a random forest, with a share that is selected out of fold. Of another
        classifier, one clone is fitted for each label, on the rows where it is observed; or one clone for all labels if
        it supports several labels (a random forest, ``MLPClassifier``, ``ClassifierChain``) and all are observed. Its
        probabilities are calibrated out of fold.
    noise : {"both", "partial", "missing"}, ClassConditionalNoise, NoiseRates or None, default="both"
        Which errors the labels can have: "partial" if labels were only added, "missing" if they were only removed. The
        rates are estimated, from the features if they are numbers and otherwise from out-of-fold probabilities of
        ``estimator``. A noise model or the result of :func:`ccmn.estimate_noise` gives the rates; None disables the
        correction.
    threshold : {"fixed", "f1"}, default="fixed"
        Threshold of every label: the probability 1/2, or the one with the largest corrected F1 score on out-of-fold
        predictions.
    cv : int, default=3
        Number of folds for the out-of-fold probabilities of ``estimator``.
    random_state : int, Generator or None, default=None
        Controls folds, the estimation of rates and the random forest. Another ``estimator`` has its own parameter.
    verbose : int, default=0
        1 prints the progress on stderr.

    Attributes
    ----------
    noise_ : ClassConditionalNoise
        Noise model that predictions are corrected with.
    rates_ : NoiseRates or None
        Estimated rates with intervals and flags, if they were estimated or passed.
    estimators_ : list of classifiers
        Fitted clones of ``estimator``: one per label with different observed values, or one for all of these labels.
    inferred_ : InferredLabels or None
        Result of :func:`ccmn.infer_labels` if votes were passed to ``fit``.
    classes_ : array of shape (q,)
        Names of the labels if they are known, else their numbers.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Names of the features, if X was a DataFrame.

    References
    ----------
    .. [1] A. K. Menon, B. van Rooyen, C. S. Ong and R. C. Williamson, "Learning from Corrupted Binary Labels via
       Class-Probability Estimation", ICML 2015.

    Examples
    --------
    >>> from ccmn import CorrectedClassifier, PartialNoise
    >>> from ccmn.data import make_noisy_multilabel
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=PartialNoise([0.6, 0.5]), random_state=0)
    >>> clf = CorrectedClassifier(noise="partial", random_state=0).fit(task.X, task.Y_noisy)
    >>> bool((clf.predict(task.X) == task.Y).mean() > 0.9)
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        noise: Any = "both",
        *,
        threshold: str = "fixed",
        cv: int = 3,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.noise = noise
        self.threshold = threshold
        self.cv = cv
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, trusted: Any = None) -> Self:
        """Fit the model of the noisy labels and estimate their rates.

        Parameters
        ----------
        X : array, DataFrame or CSR matrix of shape (n, d)
            Features, or what ``estimator`` accepts, such as a list of texts.
        y : array, DataFrame or CSR matrix of shape (n, q), list of label sets, or votes
            Noisy labels: 0, 1 and NaN (not observed), or a list of label sets. Votes of several annotators are an array
            of shape (n, annotators, q), NaN where an annotator did not vote, or a ``VoteTable``.
        sample_weight : array of shape (n,), default=None
            Sample weights.
        trusted : tuple (rows, Y_true) or array of shape (n, q), default=None
            True labels of some rows: row numbers and labels, or labels of all rows with NaN where a label has not been
            verified. They improve estimated rates. Without ``estimator``, they also train the model.

        Returns
        -------
        CorrectedClassifier
            The fitted classifier.
        """
        check_parameters(self.get_params(deep=False), CONSTRAINTS)
        self.__dict__.pop("_curve", None)
        if self.estimator is None:
            X = read_features(self, X, reset=True)
        elif not hasattr(self.estimator, "predict_proba"):
            raise TypeError(
                f"estimator must have predict_proba; {type(self.estimator).__name__} has none. Wrap it in "
                "sklearn.calibration.CalibratedClassifierCV."
            )
        X = _plain_tensor(X)
        data = prepare(self, X, y, sample_weight=sample_weight, trusted=trusted)
        (n, q), labels = data.targets.labels.shape, data.targets.labels
        if is_sparse(labels):
            if n * q > MAX_ESTIMATION_ENTRIES:
                raise ValueError(
                    f"CorrectedClassifier requires dense labels; got {n} x {q}. Use CCMNClassifier with known rates."
                )
            data = replace(data, targets=replace(data.targets, labels=to_dense_array(labels)))
        targets, seed = data.targets, int(as_generator(self.random_state).integers(2**31))
        if q > MAX_RECOMMENDED_LABELS:
            warn(
                f"CorrectedClassifier is meant for up to {MAX_RECOMMENDED_LABELS} labels; y has {q}. CCMNClassifier "
                "trains one network of all labels."
            )
        self.classes_, self.label_names_, self.inferred_ = targets.classes, targets.label_names, targets.inferred
        self.extra_: dict[str, Any] = {}
        noise = known_noise(self.noise, data)
        with show_phases(self.verbose) as on_phase:
            on_phase("model of the noisy labels", 0, 2)
            fit = self._fit_default if self.estimator is None else self._fit_clones
            f, Y, weights = fit(data, noise, seed)
            on_phase("thresholds", 1, 2)
        if self.threshold == "f1":
            Y = debias_labels(Y, self.noise_.rho_pos, self.noise_.rho_neg)
            self._thresholds = f1_thresholds(self._curve.scores(f), Y, weights)
        return self

    def _fit_default(
        self, data: TrainingData, noise: ClassConditionalNoise | None, seed: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Fit the default model and the curve; return out-of-fold log-odds, labels and weights."""
        Y = data.targets.labels.astype(np.float64)
        model = NoisyLabelModel(seed).fit(data.X, Y, data.weights)
        posterior = self._rates(model, Y, noise, data)
        if data.trusted is not None:
            # Where the true label is known, the mean of the noisy label replaces the noisy label itself.
            true = np.full(Y.shape, np.nan)
            true[data.trusted[0]] = to_dense_array(data.trusted[1])
            rate = posterior.rho_neg + (1 - posterior.rho_pos - posterior.rho_neg) * true
            # A verified label has as much information as several noisy ones; it does not count in the likelihood.
            factor = row_information(self.noise_, data.trusted, data.targets.labels)
            known = np.where(np.isnan(true), Y, rate)
            model.fit(data.X, known, factor if data.weights is None else factor * data.weights)
            found = model.out_of_fold_
            found = model.out_of_fold_ = replace(found, sample_weight=found.sample_weight / factor[found.rows])
            self._rates(model, Y, noise, data)
            # Errors of people do not follow equation (*): the curve is also fitted to the true labels themselves.
            posterior = fixed_rates(
                found.log_odds,
                Y[found.rows],
                self.noise_.rho_pos,
                self.noise_.rho_neg,
                found.sample_weight,
                true=true[found.rows],
            )
        self._model: NoisyLabelModel | NoisyPosterior = model
        self._curve: CorrectedCurve | InversionCurve = corrected_curve(posterior)
        self._thresholds = np.zeros(len(self.classes_))
        found = model.out_of_fold_
        return found.log_odds, Y[found.rows], found.sample_weight

    def _rates(
        self, model: NoisyLabelModel, Y: FloatArray, noise: ClassConditionalNoise | None, data: TrainingData
    ) -> RatePosterior:
        """Return the posterior of the rates, known or estimated; set ``rates_`` and ``noise_``."""
        found = model.out_of_fold_
        if noise is not None:
            self.noise_, self.rates_ = noise, self.noise if isinstance(self.noise, NoiseRates) else None
            return fixed_rates(found.log_odds, Y[found.rows], noise.rho_pos, noise.rho_neg, found.sample_weight)
        flips = verified_flips(data, Y)
        posterior = model_posterior(model, Y, self.noise, flips)
        shared = (self.noise,) * Y.shape[1], self.label_names_, flips
        self.rates_ = rates_from_posterior(posterior, Y, *shared, repeated=model.repeated_share_)
        self.noise_ = self.rates_.noise
        return posterior

    def _fit_clones(
        self, data: TrainingData, noise: ClassConditionalNoise | None, seed: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Fit and calibrate clones of the classifier; return out-of-fold log-odds, labels and weights."""
        X, weights, inferred = data.X, data.weights, data.targets.inferred
        Y = data.targets.labels.astype(np.float64)
        if len(Y) < 2:
            raise ValueError("out-of-fold probabilities require at least 2 rows; got n_samples=1")
        if inferred is not None:  # classifiers take labels and not probabilities
            Y = np.where(np.isnan(Y), np.nan, inferred.labels)
            noise = noise if self.noise is None else inferred.noise
        model = self._model = NoisyPosterior(self.estimator).fit(X, Y, weights)
        self.estimators_ = model.estimators
        for name in ("n_features_in_", "feature_names_in_"):
            if self.estimators_ and hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        folds = stratified_folds(np.nan_to_num(Y), min(self.cv, len(Y)), np.random.default_rng(seed))
        f = log_odds(out_of_fold_proba(self.estimator, X, Y, folds, weights))
        zero, weight = np.zeros(Y.shape[1]), np.ones(len(Y)) if weights is None else weights / weights.mean()
        calibration = fixed_rates(f, Y, zero, zero, weight)
        slope, offset = calibration.slope[:, 0, 0], calibration.offset[:, 0, 0]
        scaled = slope * f + offset
        gain = np.nansum(weight[:, None] * (Y * (scaled - f) - np.logaddexp(0, scaled) + np.logaddexp(0, f)))
        if gain < max(2 * len(zero), np.log(len(Y))):  # Akaike's criterion, for few labels Schwarz's of one label
            slope, offset = zero + 1, zero
        if noise is not None:
            self.noise_, self.rates_ = noise, self.noise if isinstance(self.noise, NoiseRates) else None
        elif (numbers := _numeric_matrix(X)) is not None:
            # A calibrated probability of the noisy label does not identify the rates; directions of the features do.
            self._rates(NoisyLabelModel(seed).fit(numbers, Y, weights), Y, None, data)
        else:
            flips = verified_flips(data, Y)
            posterior = rate_posterior(label_surfaces(f, Y, sample_weight=weights), self.noise, flips)
            shared = (self.noise,) * Y.shape[1], self.label_names_, flips
            self.rates_ = rates_from_posterior(posterior, Y, *shared, probabilities_only=True)
            self.noise_ = self.rates_.noise
        rates = self.noise_.rho_pos, self.noise_.rho_neg
        self._curve, self._thresholds = InversionCurve(*rates, slope, offset), zero
        return f, Y, weight

    def _scores(self, X: Any, labels: slice | None = None) -> FloatArray:
        X = read_features(self, X, reset=False) if self.estimator is None else _plain_tensor(X)
        scores = self._curve.scores(self._model.log_odds(X)) - self._thresholds
        return scores if labels is None else scores[:, labels]

    def _probabilities(self, X: Any) -> FloatArray:
        return self._curve.probabilities(self._scores(X) + self._thresholds)

    def _module(self) -> torch.nn.Module:
        return CorrectedModule(*self._default_model("to_torch"))

    def _description(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        model, curve = self._default_model("save")
        arrays = {**model.arrays(), "knots": curve.knots, "curve": curve.values}
        return {**describe(self), "thresholds": self._thresholds.tolist()}, arrays

    def _default_model(self, method: str) -> tuple[NoisyLabelModel, CorrectedCurve]:
        """Return the default model and its curve; an error if a classifier was passed, which has its own format."""
        if not isinstance(self._model, NoisyLabelModel) or not isinstance(self._curve, CorrectedCurve):
            raise TypeError(
                f"{method} requires estimator=None; got {type(self.estimator).__name__}. Store other classifiers with "
                "skops: skops.io.dump(classifier, file)."
            )
        return self._model, self._curve

    @classmethod
    def _from_description(cls, d: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> CorrectedClassifier:
        """Return the fitted classifier that :meth:`save` has described; raise an error if a field is invalid."""
        clf = read_description(cls, d)
        check_parameters(clf.get_params(deep=False), CONSTRAINTS)
        if clf.estimator is not None:
            raise ValueError(f"estimator must be null; got {clf.estimator!r}")
        if not isinstance(clf.noise_, ClassConditionalNoise):
            raise ValueError(f"noise must have two rates per label; got {clf.noise_.kind!r}")
        parts = read_default(d, arrays, clf.n_features_in_, clf.noise_.n_labels)
        clf._model, clf._curve, clf._thresholds = parts
        return clf

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of a multi-label classifier that accepts the features of ``estimator``."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        if self.estimator is None:
            tags.input_tags.sparse = True
        else:
            tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def _plain_tensor(X: Any) -> Any:
    """Return a tensor that numpy cannot read, in bfloat16 or with a gradient, as an array; other features unchanged."""
    hidden = isinstance(X, torch.Tensor) and (X.dtype == torch.bfloat16 or X.requires_grad)
    return to_dense_array(X) if hidden else X


def _numeric_matrix(X: Any) -> Any:
    """Return X as a matrix of finite numbers, from which rates can be estimated; None if it is something else."""
    try:
        return check_array(X, accept_sparse="csr", dtype=np.float64)
    except (TypeError, ValueError):
        return None


def verified_flips(data: TrainingData, Y: FloatArray) -> Flips | None:
    """Return the counts of flips on the trusted rows."""
    return None if data.trusted is None else count_flips(Y[data.trusted[0]], to_dense_array(data.trusted[1]))


@dataclass(frozen=True)
class InversionCurve:
    """Inversion of the noise in calibrated probabilities of the noisy labels, sigmoid(slope f + offset)."""

    rho_pos: FloatArray
    rho_neg: FloatArray
    slope: FloatArray
    offset: FloatArray

    def scores(self, f: FloatArray) -> FloatArray:
        """Return 2 p - 1 for the corrected probabilities p, which can lie outside [0, 1]."""
        return 2 * debias_labels(expit(self.slope * f + self.offset), self.rho_pos, self.rho_neg) - 1

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return the corrected probabilities, with tails that are as wide as there is noise, instead of 0 and 1."""
        return linear_probability(scores, MAX_TAIL * (self.rho_pos + self.rho_neg))


# -- Torch modules, for export and compilation; all weights are buffers


class CorrectedModule(torch.nn.Module):
    """Torch module of the fitted default: features (n, d) in, probabilities of the true labels (n, q) out."""

    values: Tensor

    def __init__(self, model: NoisyLabelModel, curve: CorrectedCurve) -> None:
        super().__init__()
        self.model = NoisyLabelModule(model)
        self.first, self.step = float(curve.knots[0]), float(curve.knots[1] - curve.knots[0])
        self.register_buffer("values", torch.tensor(curve.values.T))

    def forward(self, X: Tensor) -> Tensor:
        """Return the probabilities of the true labels: the curve is interpolated between equidistant knots."""
        place = ((self.model(X) - self.first) / self.step).clamp(0, self.values.shape[0] - 1)
        below = place.floor().clamp(max=self.values.shape[0] - 2)
        index = below.long()
        low, high = self.values.gather(0, index), self.values.gather(0, index + 1)
        return torch.sigmoid(low + (place - below) * (high - low))


class NoisyLabelModule(torch.nn.Module):
    """Torch module of a fitted model: dense features (n, d) in, log-odds of the noisy labels (n, q) out."""

    coef: Tensor
    intercept: Tensor
    mean: Tensor
    scale: Tensor
    components: Tensor

    def __init__(self, model: NoisyLabelModel) -> None:
        super().__init__()
        for name, array in model.arrays().items():
            if name in ("coef", "intercept", "mean", "scale", "components"):
                self.register_buffer(name, torch.tensor(array))
        self.limit = MAX_Z if model.is_dense else torch.inf
        self.share = model.share_
        self.forest = ForestModule(model.forest_) if model.forest_ is not None and model.share_ < 1 else None

    def forward(self, X: Tensor) -> Tensor:
        """Return the log-odds of the noisy labels."""
        A = ((X.to(self.coef.dtype) - self.mean) / self.scale).clamp(-self.limit, self.limit)
        p = torch.sigmoid(A @ self.coef.T + self.intercept)
        if self.forest is not None:
            features = A @ self.components.T if hasattr(self, "components") else A
            p = self.share * p + (1 - self.share) * self.forest(features).to(p.dtype)
        return torch.logit(p, MIN_PROBABILITY)


class ForestModule(torch.nn.Module):
    """Torch module of a forest.

    ``forward`` takes features (n, n_features) and returns label probabilities (n, n_labels). All rows walk through all
    trees for a fixed number of comparisons; leaves refer to themselves. Temporary memory is n x n_trees x n_labels
    numbers: pass large inputs in batches.
    """

    feature: Tensor
    threshold: Tensor
    right: Tensor
    roots: Tensor
    leaf: Tensor
    values: Tensor

    def __init__(self, forest: Forest) -> None:
        super().__init__()
        is_leaf = forest.feature < 0
        right, roots, self.depth = forest.structure
        buffers = {
            "feature": np.maximum(forest.feature, 0).astype(np.int64),
            # No number is <= NaN, so that a leaf always continues with its "right child": itself.
            "threshold": np.where(is_leaf, np.float32(np.nan), forest.threshold),
            "right": right,
            "roots": roots,
            "leaf": np.cumsum(is_leaf) - 1,
            "values": forest.values,
        }
        for name, array in buffers.items():
            self.register_buffer(name, torch.tensor(array))

    def forward(self, X: Tensor) -> Tensor:
        """Return label probabilities (n, n_labels) of features (n, n_features)."""
        n, n_features = X.shape
        n_trees = self.roots.shape[0]
        entries = X.to(torch.float32).reshape(-1)
        # index_select on flat tensors is two to three times as fast as gather and advanced indexing.
        offset = (torch.arange(n, device=X.device) * n_features).repeat(n_trees)
        node = self.roots.unsqueeze(1).expand(n_trees, n).reshape(-1)
        for _ in range(self.depth):
            x = entries.index_select(0, offset + self.feature.index_select(0, node))
            is_left = x <= self.threshold.index_select(0, node)
            node = torch.where(is_left, node + 1, self.right.index_select(0, node))
        leaves = self.values.index_select(0, self.leaf.index_select(0, node))
        # In float64, the sum does not depend on its order, which varies with the number of rows.
        return leaves.reshape(n_trees, n, -1).mean(0, dtype=torch.float64).to(self.values.dtype)
