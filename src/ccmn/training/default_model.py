"""Model of noisy labels that the default, the rates, the audit and the checks share: logistic regression and a forest.

scikit-learn fits both. Their average has one share of all labels, which minimizes the squared error out of fold. The
fitted state consists of arrays, so that it can be stored without pickles and exported.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, logit

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray
from ccmn.training.default_settings import DEFAULTS, MIN_PROBABILITY, DefaultSettings
from ccmn.training.forest import MAX_FEATURES, MAX_LABELS, Forest, fit_forest

MAX_Z = 10.0
"""Guard: standardized features are limited to this absolute value."""
MAX_SPARSE_RATIO = 10.0
"""Guard: sparse columns with values that exceed those of the median column by more than this factor are scaled down."""
_NO_PROJECTION = 4
"""Dense features are projected for the forest if there are more than this number times ``n_components``."""


@dataclass
class OutOfFold:
    """Rows with out-of-fold predictions: what the rates are estimated from.

    ``rows`` (m,) are distinct rows of the training data, at most ``max_rows``, with their log-odds (m, q), folds,
    weights of mean 1 and centered dense features of mean square 1. ``representative`` is, for every training row,
    the position in ``rows`` of the distinct row that it equals, or -1.
    """

    rows: NDArray[np.intp]
    log_odds: FloatArray
    folds: NDArray[np.intp]
    sample_weight: FloatArray
    features: NDArray[np.float32]
    representative: NDArray[np.intp]


class NoisyLabelModel:
    """P(noisy label = 1 | x) from logistic regressions and a random forest.

    Features are scaled to ``(X - mean_) / scale_``; ``mean_`` is a single 0 for sparse features. ``coef_`` (q, d) and
    ``intercept_`` (q,) are the logistic regressions of scaled features with the selected inverse l2 weights ``C_``
    (q,). ``components_`` project sparse or wide features for ``forest_``, which is None for more than 100 labels.
    ``share_`` is the share of the logistic regression in the average, ``repeated_share_`` that of the rows that repeat
    another one, and ``out_of_fold_`` the out-of-fold predictions of the last fit.
    """

    def __init__(self, random_state: int = 0, settings: DefaultSettings = DEFAULTS) -> None:
        self.random_state = random_state
        self.settings = settings

    def fit(self, X: Any, Y: FloatArray, sample_weight: FloatArray | None = None) -> NoisyLabelModel:
        """Fit both models and their share to noisy labels or probabilities Y (n, q); NaN where not observed."""
        settings, rng = self.settings, np.random.default_rng(self.random_state)
        Y, weight = np.asarray(Y, np.float64), np.ones(len(Y)) if sample_weight is None else np.asarray(sample_weight)
        if not weight.any():
            raise ValueError("Expected a positive sample_weight in at least one row; got only 0")
        distinct, position = distinct_rows(X, Y)
        self.repeated_share_ = 1 - len(distinct) / len(Y)
        weight = np.bincount(position, weight / weight.max()) / np.bincount(position)
        weight /= weight.mean()
        self._fit_scaling(X)
        A, targets = self._scaled(X[distinct]), Y[distinct]
        sample = np.sort(rng.permutation(np.flatnonzero(weight))[: settings.max_rows])
        w = weight[sample] / weight[sample].mean()
        A_sample, Y_sample = (A, targets) if len(sample) == len(distinct) else (A[sample], targets[sample])
        self._fit_projection(A_sample)
        folds = stratified_folds(Y_sample, settings.n_folds, rng)
        linear = self._select_c(A_sample, Y_sample, w, folds)
        self._fit_logistic(A, targets, weight)
        F = self._projected(A_sample)
        f = self._fit_share(expit(linear), self._fit_forest(F, Y_sample, w), Y_sample, w)
        centered = F - F.mean(0)
        centered /= max(float(np.sqrt(np.square(centered).mean())), MIN_PROBABILITY)
        lookup = np.full(len(distinct), -1)
        lookup[sample] = np.arange(len(sample))
        self.out_of_fold_ = OutOfFold(distinct[sample], f, folds, w, centered, lookup[position])
        return self

    def log_odds(self, X: Any) -> FloatArray:
        """Return the log-odds f (n, q) of the noisy labels of new rows."""
        A = self._scaled(X.toarray() if self.is_dense and is_sparse(X) else X)
        return self._averaged(A, self.coef_, self.intercept_)

    def out_of_fold_log_odds(self, X: Any) -> FloatArray:
        """Return out-of-fold log-odds (n, q) of all rows of the training data X.

        Rows that were not sampled are predicted by the models of the first fold, which have not seen them.
        """
        known = self.out_of_fold_.representative
        result = self.out_of_fold_.log_odds[known]
        unseen = known < 0
        if unseen.any():
            result[unseen] = self._averaged(self._scaled(X[unseen]), *self._first_fold)
        return result

    def _averaged(self, A: Any, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        p = expit(self._linear(A, coef, intercept))
        if self.forest_ is not None and self.share_ < 1:
            p = self.share_ * p + (1 - self.share_) * self.forest_.predict(self._projected(A))
        return log_odds(p)

    # -- Storage

    @property
    def is_dense(self) -> bool:
        """Whether the model was fitted to dense features; sparse features have one common scale and components."""
        return self.mean_.size > 1 or self.components_ is None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store; :meth:`from_arrays` reads them."""
        result = {"coef": self.coef_, "intercept": self.intercept_, "mean": self.mean_, "scale": self.scale_}
        result["share"] = np.array([self.share_])
        result |= {} if self.components_ is None else {"components": self.components_}
        return result | ({} if self.forest_ is None else self.forest_.arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_features: int, n_labels: int) -> NoisyLabelModel:
        """Return the model of stored arrays; a ValueError names one that is invalid."""
        shapes: dict[str, tuple[int, ...]] = {"coef": (n_labels, n_features), "intercept": (n_labels,), "share": (1,)}
        shapes |= {"mean": (1,) if arrays["mean"].size == 1 else (n_features,), "scale": (n_features,)}
        if "components" in arrays:
            shapes["components"] = (*arrays["components"].shape[:1], n_features)
        forest = {"feature", "threshold", "values"} if "feature" in arrays else set()
        if unknown := set(arrays) - set(shapes) - forest:
            raise ValueError(f"weights must not contain {min(unknown)!r}")
        for name, shape in shapes.items():
            array = arrays[name]
            if array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite numbers of shape {shape}; got shape {array.shape}")
        if not (arrays["scale"] > 0).all():
            raise ValueError("scale must be positive")
        if not 0 <= arrays["share"][0] <= 1:
            raise ValueError("share must be a number from 0 to 1")
        model = cls()
        model.coef_, model.intercept_ = arrays["coef"], arrays["intercept"]
        model.mean_, model.scale_, model.share_ = arrays["mean"], arrays["scale"], float(arrays["share"][0])
        model.components_ = arrays.get("components")
        width = n_features if model.components_ is None else len(model.components_)
        model.forest_ = Forest.from_arrays(arrays, width, n_labels) if forest else None
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Return the fitted model for pickle and skops, without the predictions of the training rows."""
        return {name: value for name, value in vars(self).items() if name not in ("out_of_fold_", "_first_fold")}

    # -- Features

    def _fit_scaling(self, X: Any) -> None:
        """Standardize dense columns; scale sparse rows to a mean squared norm of 1."""
        if is_sparse(X):
            self.mean_, self.scale_ = np.zeros(1), sparse_scale(X)
            return
        self.mean_ = X.mean(0, dtype=np.float64)
        deviation = X.std(0, dtype=np.float64)
        # Rounding errors give a constant column a small deviation, which must not be scaled up.
        varied = deviation > 1e-9 * np.abs(self.mean_)
        self.scale_ = np.where(varied & (deviation > 0), deviation, 1.0)

    def _scaled(self, X: Any) -> Any:
        if is_sparse(X):
            return scipy.sparse.csr_matrix((X.data / self.scale_[X.indices], X.indices, X.indptr), X.shape)
        A = X - self.mean_
        A /= self.scale_
        return np.clip(A, -MAX_Z, MAX_Z, out=A)

    def _fit_projection(self, A: Any) -> None:
        from sklearn.decomposition import TruncatedSVD

        k = self.settings.n_components
        self.components_ = None
        if is_sparse(A) or A.shape[1] > _NO_PROJECTION * k:
            size = min(k, min(A.shape) - 1)
            svd = TruncatedSVD(max(size, 1), random_state=self.random_state).fit(A) if size > 0 else None
            self.components_ = np.ones((1, A.shape[1])) if svd is None else svd.components_

    def _projected(self, A: Any) -> NDArray[np.float32]:
        return np.asarray(A if self.components_ is None else A @ self.components_.T, dtype=np.float32)

    # -- Logistic regressions

    def _select_c(self, A: Any, Y: FloatArray, weight: FloatArray, folds: NDArray[np.intp]) -> FloatArray:
        """Select C of every label by the out-of-fold log loss; return the out-of-fold log-odds."""
        out_of_fold, self.C_ = np.zeros(Y.shape), np.full(Y.shape[1], self.settings.c_grid[0])
        self.coef_, self.intercept_ = np.zeros((Y.shape[1], A.shape[1])), np.zeros(Y.shape[1])
        parts = [(np.flatnonzero(folds == k), np.flatnonzero(folds != k)) for k in np.unique(folds)]
        matrices = [A[train] for _, train in parts]
        for j, y in enumerate(Y.T):
            observed = ~np.isnan(y)
            models = [_Logistic(A_train, y[train], weight[train]) for A_train, (_, train) in zip(matrices, parts)]
            best = np.inf
            for C in self.settings.c_grid:
                f = np.empty(len(y))
                for model, (test, _) in zip(models, parts):
                    f[test] = self._linear(A[test], *model.fit(C))[:, 0]
                loss = (weight * (np.logaddexp(0, f) - y * f))[observed].sum()
                if loss >= best:
                    break  # larger values of C would be worse and take most of the time
                best, out_of_fold[:, j], self.C_[j] = loss, f, C
                self.coef_[j], self.intercept_[j] = models[0].coef, models[0].intercept
        self._first_fold = self.coef_.copy(), self.intercept_.copy()
        return out_of_fold

    def _fit_logistic(self, A: Any, Y: FloatArray, weight: FloatArray) -> None:
        for j, y in enumerate(Y.T):
            model = _Logistic(A, y, weight, (self.coef_[j], self.intercept_[j]))
            self.coef_[j], self.intercept_[j] = model.fit(self.C_[j])

    @staticmethod
    def _linear(A: Any, coef: FloatArray, intercept: Any) -> FloatArray:
        return np.asarray(np.asarray(A @ np.atleast_2d(coef).T) + intercept)

    # -- Forest and share

    def _fit_forest(self, F: NDArray[np.float32], Y: FloatArray, weight: FloatArray) -> FloatArray | None:
        """Fit the forest and return its out-of-bag probabilities."""
        self.forest_: Forest | None = None
        if Y.shape[1] > MAX_LABELS or F.shape[1] > MAX_FEATURES or F.shape[1] == 0:
            return None
        sizes = {"n_trees": self.settings.n_trees, "min_samples_leaf": self.settings.min_samples_leaf}
        self.forest_, out_of_bag = fit_forest(F, Y, weight, random_state=self.random_state, **sizes)
        return out_of_bag

    def _fit_share(self, p: FloatArray, other: FloatArray | None, Y: FloatArray, weight: FloatArray) -> FloatArray:
        r"""Return the log-odds of the average :math:`s p + (1 - s) p'` with the smallest squared error."""
        self.share_ = 1.0
        if other is None:
            return log_odds(p)
        difference, w = p - other, weight[:, None] * ~np.isnan(Y)
        total = (w * difference**2).sum()
        if total > 0:
            share = (w * difference * (np.nan_to_num(Y) - other)).sum() / total
            self.share_ = float(np.clip(share, 0, 1))
        return log_odds(self.share_ * p + (1 - self.share_) * other)


class _Logistic:
    """Logistic regression of one label, which scikit-learn fits; constant if there is only one value."""

    def __init__(self, A: Any, y: FloatArray, weight: FloatArray, start: Any = None) -> None:
        from sklearn.linear_model import LogisticRegression

        k1, k0 = np.nansum(weight * y), np.nansum(weight * (1 - y))
        self.coef, self.intercept = np.zeros(A.shape[1]), float(np.log((k1 + 0.5) / (k0 + 0.5)))
        self._data, self._model = (A, y, weight), None
        if min(k1, k0) <= 0:
            return
        self._model = LogisticRegression(warm_start=True, max_iter=300)
        if start is not None:
            self._model.coef_, self._model.intercept_ = start[0][None], np.atleast_1d(start[1])
            self._model.classes_ = np.array([0, 1])
        if not np.isin(y, (0, 1)).all():
            ones, zeros = np.flatnonzero(y > 0), np.flatnonzero(y < 1)  # both for probabilities, none for NaN
            w = np.concatenate([weight[ones] * y[ones], weight[zeros] * (1 - y[zeros])])
            labels = np.repeat([1, 0], [len(ones), len(zeros)])
            self._data = A[np.concatenate([ones, zeros])], labels, w

    def fit(self, C: float) -> tuple[FloatArray, float]:
        """Return weights and intercept, starting from those of the last call."""
        from sklearn.exceptions import ConvergenceWarning

        if self._model is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                self._model.set_params(C=C).fit(*self._data)
            self.coef, self.intercept = self._model.coef_[0], float(self._model.intercept_[0])
        return self.coef, self.intercept


def log_odds(p: FloatArray) -> FloatArray:
    """Return the log-odds of limited probabilities."""
    return np.asarray(logit(np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)))


def sparse_scale(X: Any, weight: FloatArray | None = None) -> FloatArray:
    """Return the scale of CSR columns: the mean norm of a row for all columns, more for columns of large values.

    Columns of similar size keep their relation: the weight of a rare word is part of TF-IDF features.
    """
    w = np.ones(X.shape[0]) if weight is None else weight
    values, w_values = np.abs(X.data.astype(np.float64)), np.repeat(w, np.diff(X.indptr))
    unit, tiny = values.max(initial=0.0) or 1.0, np.finfo(np.float64).tiny  # squares of large values would overflow
    squares, counts = (np.bincount(X.indices, part, X.shape[1]) for part in (w_values * (values / unit) ** 2, w_values))
    size = np.sqrt(squares / np.maximum(counts, tiny))
    typical = np.median(size[size > 0]) if size.any() else 1.0
    factor = np.maximum(size / (MAX_SPARSE_RATIO * typical), 1.0)
    return np.asarray(factor * unit * (np.sqrt((squares / factor**2).sum() / max(w.sum(), tiny)) or 1.0))


def stratified_folds(Y: FloatArray, k: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the fold (n,) of every row; each fold has equal shares of the rows of the rarest label.

    >>> np.bincount(stratified_folds(np.eye(10)[:, :2], 3, np.random.default_rng(0)))
    array([4, 3, 3])
    """
    positive = Y >= 0.5
    counts = np.where(positive, positive.sum(0), np.inf)
    folds = np.empty(len(Y), dtype=np.intp)
    folds[np.lexsort((rng.random(len(Y)), counts.argmin(1), counts.min(1)))] = np.arange(len(Y)) % k
    return folds


def distinct_rows(X: Any, Y: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first row of each group of rows that are equal in features and labels, and the group of every row.

    Copies count once, because they are not independent. If fewer than half of the rows are distinct and the groups are
    not equally large, repeated rows are a property of the data (few values per feature), and all rows are kept.
    """
    keys = _row_hashes(X) * np.uint64(0x9E3779B97F4A7C15) + _row_hashes(Y)
    _, first, group, size = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if len(first) < len(Y) / 2 and np.ptp(size):
        return np.arange(len(Y)), np.arange(len(Y))
    order = np.argsort(np.argsort(first))
    return np.sort(first), order[group]


def _row_hashes(X: Any) -> NDArray[np.uint64]:
    """Return a 64-bit hash of every row: the sum of the mixed bits of its nonzero values times a number per column."""
    odd = np.random.default_rng(0).integers(2**63, size=X.shape[1], dtype=np.uint64) * 2 + 1
    if is_sparse(X):
        X = X.copy()
        X.sum_duplicates()
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(X.data) * odd[X.indices], dtype=np.uint64)])
        return np.asarray(sums[X.indptr[1:]] - sums[X.indptr[:-1]])
    result = np.zeros(len(X), dtype=np.uint64)
    for column, factor in zip(X.T, odd):
        result += _mixed(column) * factor
    return result


def _mixed(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the mixed bits of numbers, 0 for the number 0 (splitmix64)."""
    bits = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))
