"""Training data of a fit: features and their scale, resolved noise model, debiased labels and validation split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from pandas import DataFrame
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, _num_samples, validate_data

from ccmn._containers import is_dataframe, is_sparse, to_dense_array, to_plain_container
from ccmn.estimation import NoiseRates, estimate_noise
from ccmn.estimation.evidence import check_zeros_observed
from ccmn.estimation.noise_rates import MIN_SIGNAL
from ccmn.models.targets import Targets, Trusted, encode_like, encode_targets, is_votes, read_trusted
from ccmn.noise import ClassConditionalNoise, GroupedNoise, NoiseModel, TransitionNoise
from ccmn.noise.class_conditional import debias_labels, limit_rate_sums
from ccmn.training.batches import DatasetRows, SparseLabels
from ccmn.training.default_model import sparse_scale

MAX_SAMPLE_WEIGHT = 1e100
"""Larger sample weights are rejected: products of two of them overflow."""
MIN_SAMPLES_TO_SPLIT = 50
"""Smaller training sets are not split: the training rows are used for validation as well."""
MAX_ESTIMATION_ENTRIES = 1 << 27
"""Noise rates are not estimated from larger label matrices, because this needs several dense copies."""

Noise = str | NoiseModel | NoiseRates | GroupedNoise | None
"""Value of the parameter ``noise``: a noise type, a noise model, estimated rates, or None."""


# -- Features


def read_features(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return features (n, d) as a float array or CSR matrix, validated by scikit-learn.

    With ``reset``, the attributes ``n_features_in_`` and ``feature_names_in_`` of the estimator are set; otherwise X is
    compared with them. Inputs of a custom network with more dimensions become rows (n, d); see :func:`_flat_rows`.
    """
    if reset:
        estimator.__dict__.pop("input_shape_", None)
    if isinstance(X, torch.utils.data.Dataset) or getattr(X, "ndim", 2) > 2 or hasattr(estimator, "input_shape_"):
        X = _flat_rows(estimator, X, reset=reset)
    if isinstance(X, DatasetRows):
        if reset:
            estimator.n_features_in_ = X.shape[1]
            estimator.__dict__.pop("feature_names_in_", None)
        return X
    is_array = type(X) is np.ndarray and X.dtype.kind in "biuf"
    X = X if is_array else to_plain_container(X)
    if not is_array and is_dataframe(X):
        wrong = [str(c) for c, dtype in X.dtypes.items() if dtype.kind not in "biuf"]
        if wrong:
            raise ValueError(
                f"Expected numeric columns in X; got non-numeric columns {', '.join(wrong[:5])}. Convert categories, "
                "dates, texts and gaps first: make_pipeline(ccmn.data.TablePreprocessor(text=[...]), CCMNClassifier())."
            )
    return validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=(np.float64, np.float32))


def _flat_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return inputs (n, ...) with more than two dimensions as rows (n, d), if the model is a custom network.

    With ``reset``, the shape of an input becomes the attribute ``input_shape_``; otherwise it is compared with it. The
    items of a ``Dataset`` are read when they are needed, or now for other models than custom networks.
    """
    is_custom = callable(getattr(estimator, "model", None))
    if isinstance(X, torch.utils.data.Dataset):
        X = DatasetRows(X)
        shape = X.input_shape
        X = X if is_custom and len(shape) > 1 else X.read().reshape(len(X), *shape)
    shape = X.input_shape if isinstance(X, DatasetRows) else tuple(getattr(X, "shape", ()))[1:]
    if len(shape) < 2 or not is_custom:
        return X
    if reset:
        estimator.input_shape_ = shape
    elif shape != getattr(estimator, "input_shape_", None):
        expected = getattr(estimator, "input_shape_", (estimator.n_features_in_,))
        raise ValueError(f"Expected inputs of shape {expected}, as in fit; got {shape}")
    return X if isinstance(X, DatasetRows) else X.reshape(len(X), -1)


@dataclass(frozen=True)
class Scaling:
    """Scaling of features: dense ones are standardized, sparse ones are not centered.

    Rows have a mean squared norm of about 1 afterwards. The weights of a fitted model are converted back to the
    original features, so that the scaling itself is not stored.
    """

    mean: NDArray[np.float64] | None
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, X: Any, weights: NDArray[np.float64] | None = None) -> Scaling:
        """Measure the scale of dense or CSR features (n, d) on at most ``MAX_ROWS_FOR_SCALE`` rows."""
        step = -(-X.shape[0] // MAX_ROWS_FOR_SCALE)
        rows, share = X[::step], np.ones(X.shape[0]) if weights is None else weights
        share = share[::step] / max(share[::step].sum(), np.finfo(np.float64).tiny)
        if is_sparse(X):
            return cls(None, sparse_scale(rows, share))
        rows = np.asarray(rows, dtype=np.float64)[share > 0]
        share = share[share > 0]
        largest = np.abs(rows).max(0, initial=0.0)
        unit = np.where(largest > 0, largest, 1.0)  # squares of large values would overflow
        rows = rows / unit
        mean = share @ rows
        # The tails are those of the rows, whatever their weights.
        ends = np.quantile(rows, TAIL_QUANTILES, axis=0, method="inverted_cdf")
        std = _weighted_std(np.clip(rows, *ends), share)
        std = np.where(std > MIN_RELATIVE_STD, std, _weighted_std(rows, share))  # a column that is mostly constant
        constant = std <= MIN_RELATIVE_STD
        total = np.sqrt(max(1, int((~constant).sum())))
        return cls(mean * unit, np.where(constant, 1.0, std) * unit * total)

    def transform(self, X: Any) -> Any:
        """Return scaled features in the type of X; CSR features stay sparse."""
        if self.mean is None or is_sparse(X):
            return (X @ scipy.sparse.diags_array((1 / self.scale).astype(X.dtype))).tocsr()
        scaled = X / self.scale.astype(X.dtype)
        scaled -= (self.mean / self.scale).astype(X.dtype)
        return scaled

    def restore(self, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a network with the weights and biases of its first layer for the original features."""
        weight = arrays["weight"] / self.scale[:, None]
        if self.mean is None:
            return {**arrays, "weight": weight.astype(arrays["weight"].dtype)}
        # In float32, features with a large mean and a small standard deviation would lose digits.
        return {**arrays, "weight": weight, "bias": arrays["bias"] - self.mean @ weight}


MAX_ROWS_FOR_SCALE = 10_000
"""The scale is measured on at most this many rows, evenly spread."""
TAIL_QUANTILES = (0.005, 0.995)
"""The standard deviation of a column is computed without its tails: few extreme values would hide all others."""
MIN_RELATIVE_STD = 1e-9
"""A column is constant if its standard deviation is a smaller share of its largest value."""


def _weighted_std(rows: NDArray[np.float64], share: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(share @ np.square(rows - share @ rows)))


# -- Preparation


@dataclass(frozen=True)
class TrainingData:
    """Validated arguments of ``fit``."""

    X: Any
    targets: Targets
    trusted: Trusted | None = None
    groups: Sequence[Any] | None = None
    weights: NDArray[np.float64] | None = None


def prepare(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    trusted: Any = None,
    groups: Sequence[Any] | None = None,
) -> TrainingData:
    """Return the training data of ``fit`` with encoded labels; X has been validated by :func:`read_features`.

    One class per row is an error unless the noise of the estimator is a ``TransitionNoise``.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    targets = encode_targets(y)
    n = _num_samples(X)
    if targets.labels.shape[0] != n:
        raise ValueError(f"Expected as many rows in y as in X, {n}; got {targets.labels.shape[0]}")
    if targets.kind == "multiclass" and not isinstance(estimator.noise, TransitionNoise):
        raise ValueError(
            f"{type(estimator).__name__} requires a label matrix y of shape (n, q), one column of 0 and 1 per label "
            "(Only binary classification is supported, of one label or several); got one class per row. A single label "
            "is y.reshape(-1, 1). For one class per row use CCMNClassifier(TransitionNoise(T))."
        )
    if groups is not None and is_sparse(targets.labels):
        raise ValueError(
            f"groups require dense labels; got {n} x {targets.labels.shape[1]} sparse labels. Pass y.toarray()."
        )
    weights = None
    if sample_weight is not None:
        given = to_dense_array(sample_weight) if isinstance(sample_weight, torch.Tensor) else sample_weight
        weights = np.asarray(_check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True))
        if weights.max() > MAX_SAMPLE_WEIGHT:
            raise ValueError(f"sample_weight must be at most {MAX_SAMPLE_WEIGHT:g}; got {weights.max():g}. Rescale it.")
        if weights.max() == weights.min() > 0:  # equal weights change nothing; rescaled ones would be rounded
            weights = None
    verified = None if trusted is None else read_trusted(trusted, targets)
    if verified is None and not is_sparse(targets.labels) and np.isnan(targets.labels).all():
        raise ValueError("y must contain observed labels; got only NaN")
    return TrainingData(X, targets, verified, groups, weights)


# -- Noise


def known_noise(noise: Noise, data: TrainingData) -> Any:
    """Return the given noise model of the labels, without noise for None, or None if the rates are to be estimated."""
    targets, groups = data.targets, data.groups
    (n, q), names = targets.labels.shape, targets.label_names
    if targets.inferred is not None:
        if groups is not None or not (noise is None or noise == "both"):
            raise ValueError("votes require noise='both' and no groups: the rates of annotators are estimated")
        return _noise_of_probabilities(targets, zero=noise is None)
    given = "None" if noise is None else type(noise).__name__
    noise = noise.noise if isinstance(noise, NoiseRates) else noise
    if isinstance(noise, GroupedNoise) and groups is None:
        raise ValueError("noise is a GroupedNoise, which requires the group of every row: fit(X, y, groups=...)")
    # Labels that are never 0 can be neither learned without noise nor corrected under noise that removes labels.
    mean: Any = noise.mean(groups) if isinstance(noise, GroupedNoise) else noise  # type: ignore[arg-type]
    only_removed = np.full(q, isinstance(noise, str) and noise == "missing")
    if isinstance(mean, ClassConditionalNoise) and mean.n_labels == q:
        only_removed = np.asarray((mean.rho_neg == 0) & (mean.rho_pos > 0))
    if only_removed.any() or noise is None or (isinstance(noise, str) and noise == "both"):
        check_zeros_observed(targets.labels, only_removed, names, None if data.trusted is None else data.trusted[1])
    if groups is not None and not isinstance(noise, (str, GroupedNoise)):
        raise TypeError(f"groups require noise='both' or a GroupedNoise; got {given}")
    if isinstance(noise, str):
        if n * q > MAX_ESTIMATION_ENTRIES:
            raise ValueError(
                f"noise={noise!r} would estimate the rates of {q} labels from {n} rows, which needs too much memory; "
                "pass noise=ClassConditionalNoise(rho_pos, rho_neg) with rates estimated by estimate_noise on fewer "
                "rows or on groups of labels"
            )
        return None
    if noise is None:
        return ClassConditionalNoise(0.0, 0.0, n_labels=q, label_names=names)
    if isinstance(noise, NoiseModel):
        if noise.n_labels != q:
            raise ValueError(f"Expected a noise model with {q} labels, as y; got {noise.n_labels}")
        if names and noise.label_names and names != noise.label_names:
            raise ValueError(
                f"The label names of the noise model, {', '.join(noise.label_names[:4])} ..., differ from the names in "
                f"y, {', '.join(names[:4])} ...; use the same order, or omit the names"
            )
    return noise


def resolve_noise(noise: Noise, data: TrainingData, seed: int) -> tuple[NoiseModel, Any, GroupedNoise | None]:
    """Return the given noise model of the rows or an estimate, the estimated rates, and the models of groups."""
    known = known_noise(noise, data)
    rates: Any = noise if isinstance(noise, NoiseRates) else None
    if known is None:
        labels = data.targets.labels
        if data.targets.label_names is not None:
            labels = DataFrame(to_dense_array(labels), columns=list(data.targets.label_names))
        settings: dict[str, Any] = {"trusted": data.trusted, "groups": data.groups, "random_state": seed}
        rates = estimate_noise(data.X, labels, noise_type=str(noise), **settings)
        known = rates.noise
    if isinstance(known, GroupedNoise):
        return known.mean(data.groups), rates, known  # type: ignore[arg-type]
    return known, rates, None


def _noise_of_probabilities(targets: Targets, *, zero: bool) -> ClassConditionalNoise:
    r"""Return the noise of the probabilities :math:`\mu` of true labels given votes, as soft labels.

    A probability that was computed without features is nearer to the prevalence than the true label:

    .. math:: E[1 - \mu \mid y = 1] = \frac{\sum_i \mu_i (1 - \mu_i)}{\sum_i \mu_i}, \qquad
              E[\mu \mid y = 0] = \frac{\sum_i \mu_i (1 - \mu_i)}{\sum_i (1 - \mu_i)}

    These are the rates with which the loss is unbiased. They sum to at most 0.9; with ``zero``, they are 0.
    """
    mu = targets.labels.astype(np.float64)
    spread = 0.0 if zero else np.nansum(mu * (1 - mu), 0)
    tiny = np.finfo(np.float64).tiny
    rho_pos, rho_neg = (spread / np.maximum(np.nansum(part, 0), tiny) for part in (mu, 1 - mu))
    rates = limit_rate_sums(rho_pos, rho_neg, 1 - MIN_SIGNAL)
    return ClassConditionalNoise(*rates, label_names=targets.label_names)


# -- Samples


@dataclass
class Sample:
    """Rows with their debiased labels ``p`` (n, q), an array or ``SparseLabels``, true labels in trusted rows.

    ``noisy`` are labels that the loss takes instead if it models the noise itself. ``importance`` are the weights of
    the rows in training: ``weights`` times the information of the labels of a row.
    """

    X: Any
    p: Any
    weights: NDArray[np.float64] | None = None
    noisy: Any = None
    importance: NDArray[np.float64] | None = None

    @property
    def parts(self) -> list[Any]:
        """Arrays, matrices and None that identify the rows."""
        parts = [self.X, self.weights]
        for labels in (self.p, self.noisy):
            known = isinstance(labels, SparseLabels)
            parts += [labels.matrix, labels.trusted, labels.debias is None] if known else [labels]
        return parts

    def take(self, rows: NDArray[Any]) -> Sample:
        """Return some of the rows."""
        parts: Any = (None if part is None else part[rows] for part in vars(self).values())
        return Sample(*parts)


MAX_INFORMATION = 100.0
"""Largest information of a verified label, relative to a noisy one."""


def relative_information(noise: NoiseModel, labels: Any) -> NDArray[np.float64]:
    r"""Return the variance of a debiased noisy label divided by that of a true one, for every label.

    With :math:`c = 1 - \rho_{pos} - \rho_{neg}` and the share m of noisy ones, the variances are
    :math:`m (1 - m) / c^2` and :math:`\pi (1 - \pi)` for :math:`\pi = (m - \rho_{neg}) / c`. A verified label has as
    much information as this number of noisy ones.
    """
    if not isinstance(noise, ClassConditionalNoise):
        return np.ones(labels.shape[1])
    # Sparse labels are 0, 1 or NaN; dense ones can be probabilities.
    ones = (labels == 1).sum(0) if is_sparse(labels) else np.nansum(labels, 0, dtype=np.float64)
    unobserved = (labels != labels).sum(0)
    ones, unobserved = np.ravel(ones), np.ravel(unobserved)
    mean = (ones + 0.5) / (labels.shape[0] - unobserved + 1)
    prevalence = np.clip(debias_labels(mean, noise.rho_pos, noise.rho_neg), 0.01, 0.99)
    slope = 1 - noise.rho_pos - noise.rho_neg
    return np.asarray(np.clip(mean * (1 - mean) / (slope**2 * prevalence * (1 - prevalence)), 1, MAX_INFORMATION))


def row_information(noise: NoiseModel, trusted: Trusted, labels: Any) -> NDArray[np.float64]:
    """Return the geometric mean of the information of the labels of each row (n,)."""
    rows, true = trusted
    verified = np.ones((1, true.shape[1]), dtype=bool) if is_sparse(true) else ~np.isnan(true)
    result = np.ones(labels.shape[0])
    result[rows] = np.exp((verified * np.log(relative_information(noise, labels))).mean(1))
    return result


def debias(data: TrainingData, model: NoiseModel, groups: GroupedNoise | None = None) -> Sample:
    """Return the rows with debiased labels, and with the noisy ones if the loss itself models the noise."""
    labels, importance = data.targets.labels, data.weights
    if data.trusted is not None:
        importance = row_information(model, data.trusted, labels) * (1 if importance is None else importance)
    p: Any
    if is_sparse(labels):
        p = _debias_sparse(data, model)
        return Sample(data.X, p, data.weights, None if model.flips_independent else SparseLabels(labels), importance)
    if groups is not None:
        p = groups.debias(labels, data.groups)  # type: ignore[arg-type]
    elif isinstance(model, ClassConditionalNoise):
        p = debias_labels(labels.astype(np.float64), model.rho_pos, model.rho_neg).astype(np.float32)
    else:
        p = model.debias(labels)
    if data.trusted is not None:
        rows, true = data.trusted[0], to_dense_array(data.trusted[1])
        p[rows] = np.where(np.isnan(true), p[rows], true)
    return Sample(data.X, p, data.weights, None if model.flips_independent else labels, importance)


def _debias_sparse(data: TrainingData, model: NoiseModel) -> SparseLabels:
    """Return labels that are debiased when a batch of them is gathered."""
    labels = data.targets.labels
    if data.trusted is None:
        return SparseLabels(labels, model.debiasing())
    rows, true = data.trusted
    if np.isnan(true.data if is_sparse(true) else true).any():
        raise ValueError(
            "trusted labels with NaN (not verified) require dense labels; pass y.toarray(), or verify whole rows"
        )
    n = labels.shape[0]
    is_trusted = np.zeros(n, dtype=bool)
    is_trusted[rows] = True
    # The true labels are appended as new rows, which then take the places of the trusted rows.
    place = np.arange(n)
    place[rows] = n + np.arange(len(rows))
    matrix = scipy.sparse.vstack((labels, scipy.sparse.csr_array(true)), format="csr")[place]
    return SparseLabels(matrix, model.debiasing(), is_trusted)


def split(sample: Sample, fraction: float, seed: int) -> tuple[Sample, Sample]:
    """Return training and validation rows: a random fraction of the rows, or all rows for both if there are few."""
    n = sample.X.shape[0]
    if (n if sample.weights is None else np.count_nonzero(sample.weights)) < MIN_SAMPLES_TO_SPLIT:
        return sample, sample
    order = np.random.default_rng(seed).permutation(n)
    n_validation = min(max(1, round(fraction * n)), n - 1)
    train, valid = (sample.take(np.sort(rows)) for rows in (order[n_validation:], order[:n_validation]))
    for part, rows in (("training", train), ("validation", valid)):
        if rows.weights is not None and not rows.weights.any():
            raise ValueError(f"Expected a positive sample_weight in a {part} row; got only 0. Pass validation=(X, y).")
    return train, valid


def given_validation(estimator: Any, validation: tuple[Any, Any], targets: Targets, clean: bool) -> Sample:
    """Return the validation set of the user, whose labels are clean or noisy like the training labels."""
    if estimator.group_noise_ is not None and not clean:
        raise ValueError("groups require clean validation rows (validation_is_clean=True), or none")
    noise, (X, y) = None if clean else estimator.noise_, validation
    X, Y = read_features(estimator, X, reset=False), encode_like(y, targets)
    if Y.shape[0] != X.shape[0]:
        raise ValueError(f"Expected as many rows of y as of X in validation, {X.shape[0]}; got {Y.shape[0]}")
    if is_sparse(Y):
        return Sample(X, SparseLabels(Y, None if noise is None else noise.debiasing()))
    if np.isnan(Y).all():
        raise ValueError("y of validation must contain observed labels; got only NaN")
    if is_votes(y) and isinstance(noise, ClassConditionalNoise):
        return Sample(X, debias_labels(Y, noise.rho_pos, noise.rho_neg).astype(np.float32))
    return Sample(X, Y if noise is None else noise.debias(Y))
