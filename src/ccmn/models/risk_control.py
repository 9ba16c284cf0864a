r"""Thresholds with a guarantee for the true labels, calibrated on noisy labels.

Every metric is a ratio of two means over rows, :math:`E[N_i(t)] / E[D_i(t)]` at threshold t. A target for the metric is
a linear constraint: :math:`E[\tau D_i(t) - N_i(t)] \le 0` if the metric must be at least :math:`\tau`, and
:math:`E[N_i(t) - \tau D_i(t)] \le 0` if it must be at most :math:`\tau`. Debiased labels make N and D unbiased, so that
a one-sided test of this mean decides whether a threshold meets the target on the true labels. Learn-then-test [1]_
orders the thresholds and stops at the first one that is not accepted, which limits the probability of accepting any
wrong threshold.

References
----------
.. [1] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan and L. Lei, "Learn then Test: Calibrating Predictive
   Algorithms to Achieve Risk Control", Annals of Applied Statistics 19(2), 2025.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from ccmn._containers import Labels, label_names_of, to_dense_array
from ccmn._validation import (
    FloatArray,
    check_choice,
    check_label_matrix,
    check_label_width,
    check_matrix_pair,
    check_no_nan,
    check_noise_or_rates,
    check_numeric,
    check_real,
    check_same_labels,
    check_trusted_rows,
)
from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.noise.class_conditional import debias_labels

METRICS = {"recall": "at least", "precision": "at least", "fnr": "at most", "hamming": "at most"}
"""Metrics that can be controlled, and the side on which their target is."""

METHODS = ("clt", "bernstein")
"""Tests of a threshold: by the central limit theorem, or by the empirical Bernstein inequality."""

N_THRESHOLDS = 384
"""Number of thresholds that are tested; the numbers of predicted labels form a geometric sequence."""

MIN_PREDICTED_PER_ROW = 1 / 200
"""Mean number of predicted labels per row at the highest threshold."""

N_STARTS = {"recall": 1, "fnr": 1, "precision": 8, "hamming": 24}
"""Number of sequences of tests. Recall has a safest threshold to start from; the other metrics share their error
probability among several starts."""

MAX_BLOCK_ENTRIES = 1 << 22
"""Rows are processed in blocks with at most this number of pairs of row and threshold, which bounds the memory."""

MAX_ROWS_NEEDED = 10**9
"""If more rows than this would be needed, the target counts as out of reach."""


@dataclass(frozen=True, eq=False)
class RiskControl:
    """Threshold for which a metric on the true labels meets its target with the stated confidence.

    With ``per_label=True``, all fields from ``threshold`` to ``rows_needed`` are arrays with one entry per label.

    Parameters
    ----------
    threshold : float or array of shape (q,)
        A label is predicted if its score is at least the threshold. Without a guarantee, it is the safest one: -inf
        (every label is predicted) for recall and fnr, inf (no label is predicted) for precision, and the threshold with
        the smallest estimated loss for hamming.
    bound : float or array of shape (q,)
        Confidence bound of the metric at ``threshold``: a lower bound for recall and precision, an upper bound for fnr
        and hamming. It is a bound for a threshold that was fixed in advance; for the selected threshold, the guarantee
        is ``target``. NaN if an infinite threshold was returned.
    estimate : float or array of shape (q,)
        Estimate of the metric on the true labels at ``threshold``. NaN if an infinite threshold was returned.
    guaranteed : bool or array of shape (q,)
        Whether the metric meets its target with the stated confidence.
    rows_needed : float or array of shape (q,)
        Without a guarantee, the approximate number of rows that would be enough (trusted rows if ``trusted`` was
        given). inf if more rows do not help: the scores or the noise rates are not accurate enough. With a guarantee,
        the number of rows that were used.
    metric : str
        Controlled metric.
    target, confidence : float
        Requested target and confidence.
    n_rows : int
        Number of calibration rows (trusted rows if ``trusted`` was given).

    Examples
    --------
    >>> from ccmn.models import RiskControl
    >>> control = RiskControl(0.3, 0.91, 0.93, True, 500.0, "recall", 0.9, 0.9, 500)
    >>> print(control)
    recall >= 0.9 with confidence 0.9 at threshold 0.3: estimate 0.930, bound 0.910 (500 rows)
    """

    threshold: Any
    bound: Any
    estimate: Any
    guaranteed: Any
    rows_needed: Any
    metric: str
    target: float
    confidence: float
    n_rows: int

    def predict(self, scores: ArrayLike) -> NDArray[np.int64]:
        """Return the labels whose score is at least the threshold.

        Parameters
        ----------
        scores : array of shape (n, q)
            Scores of new rows by the same model.

        Returns
        -------
        array of shape (n, q)
            Predicted labels 0 or 1.
        """
        return np.asarray(np.asarray(scores) >= self.threshold, dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return a description that can be stored as JSON.

        Returns
        -------
        dict
            One entry per field; arrays are lists, and numbers that are not finite are None.
        """
        return {name: _to_json(value) for name, value in vars(self).items()}

    def __str__(self) -> str:
        """Return the guarantee as one sentence, or the reason why there is none."""
        sign = ">=" if METRICS[self.metric] == "at least" else "<="
        claim = f"{self.metric} {sign} {self.target:g}"
        if np.ndim(self.threshold):
            n_met = int(np.sum(self.guaranteed))
            lacking = "" if n_met == np.size(self.guaranteed) else "; see guaranteed and rows_needed"
            return (
                f"{claim} for {n_met} of {np.size(self.guaranteed)} labels, jointly with confidence "
                f"{self.confidence:g} ({self.n_rows} rows){lacking}"
            )
        if self.guaranteed:
            return (
                f"{claim} with confidence {self.confidence:g} at threshold {self.threshold:.4g}: estimate "
                f"{self.estimate:.3f}, bound {self.bound:.3f} ({self.n_rows} rows)"
            )
        needed = (
            f"about {float(f'{self.rows_needed:.2g}'):.0f} rows are needed"
            if math.isfinite(self.rows_needed)
            else "more rows do not help; use a better model, more accurate noise rates or another target"
        )
        return (
            f"{claim} cannot be guaranteed with confidence {self.confidence:g} from {self.n_rows} rows with these "
            f"noise rates: {needed}"
        )


def _to_json(value: Any) -> Any:
    """Return an entry of ``RiskControl`` in the types of JSON."""
    if isinstance(value, np.ndarray):
        return [_to_json(entry) for entry in value.tolist()]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def control_risk(
    Y_noisy: Labels,
    scores: Any,
    noise: NoiseModel | NoiseRates | None,
    metric: str = "recall",
    target: float = 0.9,
    confidence: float = 0.9,
    *,
    per_label: bool = False,
    trusted: Any = None,
    method: str = "clt",
    thresholds: ArrayLike | None = None,
) -> RiskControl:
    r"""Select a threshold for which a metric on the true labels meets its target with high probability.

    The probability that the metric misses its target on new rows is at most 1 - ``confidence``. The labels of the
    calibration rows may be noisy: the metric is estimated from debiased labels, and the test accounts for the variance
    that the correction adds and for the uncertainty of estimated rates. The calibration rows must be a random sample
    that the model was not trained on.

    Parameters
    ----------
    Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (n, q)
        Noisy labels 0 or 1 of the calibration rows; NaN where not observed.
    scores : array of shape (n, q)
        Scores of these rows, for example probabilities. A label is predicted if its score is at least the threshold.
    noise : NoiseModel, NoiseRates or None
        Noise model with known rates; estimated rates, whose standard errors are included; or None for clean labels.
    metric : {"recall", "precision", "fnr", "hamming"}, default="recall"
        "recall": predicted true labels / true labels, counted over all rows (micro average). The largest threshold with
        a guarantee is selected. "precision": predicted true labels / predicted labels, counted over all rows. The
        smallest threshold with a guarantee is selected. "fnr": share of the true labels of a row that are not
        predicted, averaged over rows; 0 for a row without true labels. "hamming": share of wrong labels. The threshold
        with the smallest estimate among those with a guarantee is selected.
    target : float, default=0.9
        Lower limit of recall or precision, upper limit of fnr or hamming.
    confidence : float, default=0.9
        Probability that the target is met, over random calibration rows and label noise.
    per_label : bool, default=False
        Whether every label gets its own threshold, with its own recall, precision or Hamming loss. All labels meet the
        target jointly with the stated confidence (Bonferroni: each is tested at (1 - confidence) / q).
    trusted : tuple (rows, Y_true) or array of shape (n, q), default=None
        Verified labels of randomly selected calibration rows. The estimate is then prediction-powered [3]_: the trusted
        rows alone determine its expectation, and the noisy labels of the other rows reduce its variance. The guarantee
        does not depend on the noise rates. Rows with unverified labels count as not trusted.
    method : {"clt", "bernstein"}, default="clt"
        "clt": one-sided t test with one additional error, valid for a large number of rows. "bernstein": empirical
        Bernstein inequality [2]_, valid for every number of rows if rates and ``thresholds`` are known in advance. It
        needs many more rows.
    thresholds : array, default=None
        Thresholds to test. By default, quantiles of the scores.

    Returns
    -------
    RiskControl
        Threshold, confidence bound, estimate, and whether the target is guaranteed. If not, a warning is given and
        ``rows_needed`` is an estimate of the number of rows that would be enough.

    See Also
    --------
    RiskControlledClassifier : Classifier that predicts with such a threshold.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan and L. Lei, "Learn then Test: Calibrating Predictive
       Algorithms to Achieve Risk Control", Annals of Applied Statistics 19(2), 2025.
    .. [2] A. Maurer and M. Pontil, "Empirical Bernstein Bounds and Sample Variance Penalization", COLT, 2009.
    .. [3] A. N. Angelopoulos, J. C. Duchi and T. Zrnic, "PPI++: Efficient Prediction-Powered Inference",
       arXiv:2311.01453, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn import MissingNoise, control_risk
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(2000, 5))
    >>> Y = scores + rng.normal(size=scores.shape) > 1
    >>> noise = MissingNoise(0.3, n_labels=5)
    >>> control = control_risk(noise.corrupt(Y, random_state=1), scores, noise, target=0.8)
    >>> print(control)
    recall >= 0.8 with confidence 0.9 at threshold 0.2129: estimate 0.813, bound 0.800 (2000 rows)
    >>> round(float(Y[control.predict(scores) == 1].sum() / Y.sum()), 2)
    0.81
    """
    check_choice(metric, "metric", tuple(METRICS))
    check_choice(method, "method", METHODS)
    target, confidence = check_real(target, "target", 0, 1), check_real(confidence, "confidence", 0, 1)
    data = _read(Y_noisy, scores, noise, trusted)
    if method == "bernstein" and (data.trusted is not None or data.uncertain):
        raise ValueError("method='bernstein' requires known noise rates and no trusted rows; use method='clt'")
    if per_label and metric == "fnr":
        raise ValueError("metric='fnr' averages over the labels of a row; use metric='recall' with per_label=True")
    grid = None if thresholds is None else np.unique(np.asarray(thresholds, dtype=np.float64))
    error = 1 - confidence
    if not per_label:
        found = _control(data, metric, target, error, method, grid)
    else:
        labels = [
            _control(data.label(j), metric, target, error / data.n_labels, method, grid) for j in range(data.n_labels)
        ]
        found = _Selected(*(np.array(column) for column in zip(*labels)))
    n_rows = len(data.noisy) if data.trusted is None else len(data.trusted)
    result = RiskControl(*found, metric=metric, target=target, confidence=confidence, n_rows=n_rows)
    if not np.all(result.guaranteed):
        warnings.warn(str(result), stacklevel=2)
    return result


class _Data(NamedTuple):
    """Checked arguments of ``control_risk``: rows with noisy labels and, apart from them, trusted rows."""

    noisy: FloatArray
    """Noisy labels (n, q) of the rows that are not trusted, or of all rows; NaN where not observed."""
    scores: FloatArray
    noise: NoiseModel
    se: FloatArray
    """Standard errors of rho_pos and rho_neg, (2, q)."""
    at_zero: NDArray[np.bool_]
    """Whether the interval of the rate contains 0, (2, q)."""
    trusted: FloatArray | None
    """True labels (m, q) of the trusted rows."""
    trusted_noisy: FloatArray
    trusted_scores: FloatArray

    @property
    def n_labels(self) -> int:
        return int(self.noisy.shape[1])

    @property
    def uncertain(self) -> bool:
        """Whether some rates have a standard error."""
        return bool((self.se > 0).any())

    def label(self, j: int) -> _Data:
        """Return the rows of one label."""
        noise = self.noise
        if not isinstance(noise, ClassConditionalNoise):
            raise TypeError(f"per_label=True requires a noise model with rates per label; got {type(noise).__name__}")
        one = slice(j, j + 1)
        return _Data(
            self.noisy[:, one],
            self.scores[:, one],
            ClassConditionalNoise(noise.rho_pos[one], noise.rho_neg[one]),
            self.se[:, one],
            self.at_zero[:, one],
            None if self.trusted is None else self.trusted[:, one],
            self.trusted_noisy[:, one],
            self.trusted_scores[:, one],
        )


def _read(Y_noisy: Labels, scores: Any, noise: Any, trusted: Any) -> _Data:
    """Return the checked arguments of ``control_risk``."""
    check_same_labels(("Y_noisy", label_names_of(Y_noisy)), ("noise", getattr(noise, "label_names", None)))
    check_same_labels(("Y_noisy", label_names_of(Y_noisy)), ("scores", label_names_of(scores)))
    Y = check_label_matrix(to_dense_array(Y_noisy), "Y_noisy")
    given = to_dense_array(scores)
    check_numeric(given, "scores")
    f = np.asarray(given, dtype=np.float64)
    check_matrix_pair(Y, f, ("Y_noisy", "scores"))
    check_no_nan(f, "scores")
    n, q = Y.shape
    if noise is None:
        noise = ClassConditionalNoise(0.0, 0.0, n_labels=q)
    check_noise_or_rates(noise, (NoiseModel, NoiseRates))
    se, at_zero = np.zeros((2, q)), np.zeros((2, q), dtype=bool)
    if isinstance(noise, NoiseRates):
        if "upper bound" in noise.kind and trusted is None:
            warnings.warn(
                "The noise rates of some labels are upper bounds: the guarantee does not include their bias. Pass "
                "trusted rows, whose guarantee does not depend on the rates.",
                stacklevel=3,
            )
        se = np.stack([noise.se_pos, noise.se_neg])
        at_zero = np.stack([noise.ci_pos[:, 0], noise.ci_neg[:, 0]]) <= 0
        noise = noise.noise
    check_label_width(Y.shape, noise.n_labels, "Y_noisy")
    rows, truth = np.zeros(0, dtype=np.intp), None
    if trusted is not None:
        rows, true_labels = check_trusted_rows(trusted, n)
        true = check_label_matrix(to_dense_array(true_labels), "trusted")
        check_label_width(true.shape, q, "trusted")
        complete = ~(np.isnan(true) | np.isnan(Y[rows])).any(1)
        rows, truth = rows[complete], true[complete]
    others = np.setdiff1d(np.arange(n), rows)
    if (len(others) if truth is None else len(truth)) < 2:
        what = "calibration rows" if truth is None else "trusted rows with verified labels"
        raise ValueError(f"Expected at least 2 {what}; got {len(others) if truth is None else len(truth)}")
    return _Data(Y[others], f[others], noise, se, at_zero, truth, Y[rows], f[rows])


class _Selected(NamedTuple):
    """First fields of ``RiskControl``."""

    threshold: Any
    bound: Any
    estimate: Any
    guaranteed: Any
    rows_needed: Any


def _control(
    data: _Data, metric: str, target: float, error: float, method: str, thresholds: FloatArray | None
) -> _Selected:
    """Test the thresholds at error probability ``error`` and select one of them."""
    grid = default_thresholds(np.vstack([data.scores, data.trusted_scores])) if thresholds is None else thresholds
    means = _estimated_means(data, metric, target, grid)
    n_starts = min(N_STARTS[metric], grid.size)
    level = error / n_starts
    span = _range_of_loss(data.noise, metric, target) if method == "bernstein" else None

    def passes(means: _Means, tau: float) -> NDArray[np.bool_]:
        return means.upper_bound(tau, metric, level, span) <= 0

    # From safe to unsafe: recall and fnr from the lowest threshold upwards, the others from the highest downwards.
    upwards = metric in ("recall", "fnr")
    order = np.arange(grid.size) if upwards else np.arange(grid.size)[::-1]
    starts = np.unique(np.linspace(0, grid.size - 1, n_starts + 1).astype(int)[:-1])
    accepted = accepted_hypotheses(passes(means, target)[order], starts)
    n_rows = len(data.noisy) if data.trusted is None else len(data.trusted)
    with np.errstate(invalid="ignore", divide="ignore"):
        estimates = means.N / means.D
    if accepted.any():
        passed = order[accepted]
        best = passed[np.argmin(estimates[passed])] if metric == "hamming" else passed[-1]
        bound = _bound(lambda tau: bool(passes(means.at(best), tau)[0]), METRICS[metric] == "at least")
        return _Selected(float(grid[best]), bound, float(estimates[best]), True, float(n_rows))
    first = means.at(order[starts])
    needed = _rows_needed(lambda n: bool(passes(first.with_rows(n), target).any()), n_rows)
    if metric == "hamming":
        best = int(np.nanargmin(estimates))
        bound = _bound(lambda tau: bool(passes(means.at(best), tau)[0]), False)
        return _Selected(float(grid[best]), bound, float(estimates[best]), False, needed)
    return _Selected(-math.inf if upwards else math.inf, math.nan, math.nan, False, needed)


def default_thresholds(scores: FloatArray) -> FloatArray:
    """Return ascending thresholds: quantiles at which the numbers of predicted labels form a geometric sequence.

    >>> default_thresholds(np.array([[0.1, 0.5], [0.4, 0.2]]))
    array([0.1, 0.2, 0.4, 0.5])
    """
    fewest = max(1.0, MIN_PREDICTED_PER_ROW * len(scores))
    counts = np.unique(np.geomspace(fewest, scores.size, N_THRESHOLDS).round().astype(int))
    return np.unique(np.sort(scores, axis=None)[scores.size - counts])


def accepted_hypotheses(passed: NDArray[np.bool_], starts: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the hypotheses that fixed-sequence testing accepts: from every start up to the first that fails.

    >>> accepted_hypotheses(np.array([False, True, True, False, True]), np.array([0, 1, 3]))
    array([False,  True,  True, False, False])
    """
    accepted = np.zeros(passed.size, dtype=bool)
    for start in starts:
        accepted[start:] |= np.logical_and.accumulate(passed[start:])
    return accepted


def _bound(passes: Callable[[float], bool], at_least: bool) -> float:
    """Return the most demanding target that a threshold passes, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if passes(middle) == at_least:
            low = middle
        else:
            high = middle
    return low if at_least else high


def _rows_needed(passes: Callable[[int], bool], n_rows: int) -> float:
    """Return the smallest number of rows, up to three digits, at which the test is expected to pass; inf if none."""
    if not passes(MAX_ROWS_NEEDED):
        return math.inf
    low, high = n_rows, MAX_ROWS_NEEDED
    while high > low * 1.001 + 1:
        middle = math.ceil(math.sqrt(low * high))
        low, high = (low, middle) if passes(middle) else (middle, high)
    return float(high)


@dataclass(frozen=True)
class _Means:
    """Estimates of the means of N and D at T thresholds, with their covariance."""

    N: FloatArray
    D: FloatArray
    NN: FloatArray
    ND: FloatArray
    DD: FloatArray
    """Variances and covariance of the two means by the sampling of rows."""
    n: int
    """Number of rows on which the variances depend."""
    error: tuple[float, float]
    """N and D of one additional error."""
    rates: tuple[Any, Any, Any] = (0.0, 0.0, 0.0)
    """Variances and covariance by the uncertainty of the rates: NN, ND and DD."""

    def upper_bound(self, tau: float, metric: str, level: float, span: float | None) -> FloatArray:
        """Return an upper confidence bound of the constraint, which must not be positive.

        The bound is that of a t test, or with ``span``, the range of the constraint of a row, an empirical Bernstein
        bound.
        """
        sign = 1.0 if METRICS[metric] == "at least" else -1.0
        mean = sign * (tau * self.D - self.N)
        NN, ND, DD = (own + rate for own, rate in zip((self.NN, self.ND, self.DD), self.rates))
        variance = np.maximum(tau**2 * DD - 2 * tau * ND + NN, 0)
        if span is not None:
            log = math.log(2 / level)
            return np.asarray(mean + np.sqrt(2 * variance * log) + 7 * span * log / (3 * (self.n - 1)))
        # Without the additional error, a sample without any error would have variance 0 and certainly pass.
        extra = sign * (tau * self.error[1] - self.error[0]) / self.n
        quantile = -float(scipy.special.stdtrit(self.n - 1, level))
        return np.asarray(mean + extra + quantile * np.sqrt(variance + extra**2))

    def at(self, index: Any) -> _Means:
        """Return the means at some thresholds."""
        index = np.atleast_1d(index)
        own = {name: getattr(self, name)[index] for name in ("N", "D", "NN", "ND", "DD")}
        rates = tuple(np.broadcast_to(part, self.N.shape)[index] for part in self.rates)
        return replace(self, **own, rates=rates)

    def with_rows(self, n: int) -> _Means:
        """Return the same means with the covariance for another number of rows."""
        factor = self.n / n
        return replace(self, NN=factor * self.NN, ND=factor * self.ND, DD=factor * self.DD, n=n)


def _estimated_means(data: _Data, metric: str, target: float, thresholds: FloatArray) -> _Means:
    """Return the estimated means of N and D at all thresholds, by debiased labels or by trusted rows."""
    noisy = _debias(data.noisy, data.noise)
    rows = _Rows(noisy, data.scores, thresholds, metric, data.noise.flips_independent)
    error = _one_error(data.noise, metric)
    if data.trusted is not None:
        return _prediction_powered(data, rows, metric, target, thresholds)
    means = rows.means(error)
    if not data.uncertain:
        return means
    return replace(means, rates=_rate_covariance(data, noisy, means, metric, thresholds))


def _debias(noisy: FloatArray, noise: NoiseModel) -> FloatArray:
    """Return debiased labels in float64."""
    return np.asarray(noise.debias(noisy), dtype=np.float64)


class _Rows:
    r"""N and D of every row, as functions of the threshold.

    .. math:: N_i(t) = c_i + \sum_j 1[s_{ij} \ge t]\, v_{ij}, \qquad
              D_i(t) = d_i \quad\text{or}\quad \sum_j 1[s_{ij} \ge t] \text{ (precision)}
    """

    def __init__(
        self, labels: FloatArray, scores: FloatArray, thresholds: FloatArray, metric: str, independent: bool
    ) -> None:
        self.n_thresholds = thresholds.size
        # A label is predicted at the thresholds 0, ..., bin - 1.
        self.bins = np.searchsorted(thresholds, scores, side="right")
        self.observed = (~np.isnan(labels)).astype(np.float64)
        p, q = np.nan_to_num(labels), labels.shape[1]
        self.constant = np.zeros(len(p))
        self.precision = metric == "precision"
        if metric == "hamming":
            self.constant, self.values = p.sum(1) / q, (self.observed - 2 * p) / q
            self.divisor = self.observed.sum(1) / q
        elif metric == "fnr":
            complete = np.asarray(self.observed.all(axis=1))
            weights = np.where(complete[:, None], label_shares(p) if independent else p, 0.0)
            self.constant, self.values, self.divisor = weights.sum(1), -weights, complete.astype(np.float64)
        else:
            self.values, self.divisor = p, p.sum(1)

    def __len__(self) -> int:
        return len(self.values)

    def matrices(self, part: slice = slice(None)) -> tuple[FloatArray, FloatArray]:
        """Return N and D of some rows at all thresholds, (n, T); D is (n, 1) if it does not depend on them."""
        N = self.constant[part, None] + self._sum_of_predicted(self.values[part], self.bins[part])
        if self.precision:
            return N, self._sum_of_predicted(self.observed[part], self.bins[part])
        return N, self.divisor[part, None]

    def _sum_of_predicted(self, values: FloatArray, bins: NDArray[Any]) -> FloatArray:
        """Return the sums of the values of predicted labels, (n, T)."""
        width = self.n_thresholds + 1
        cells = bins + width * np.arange(len(bins))[:, None]
        sums = np.bincount(cells.ravel(), weights=values.ravel(), minlength=width * len(bins)).reshape(-1, width)
        return np.asarray(sums[:, :0:-1].cumsum(1)[:, ::-1])

    def means(self, error: tuple[float, float]) -> _Means:
        """Return the means of N and D over rows, with their covariance."""
        n, size = len(self), max(1, MAX_BLOCK_ENTRIES // self.n_thresholds)
        sums = np.zeros((5, self.n_thresholds))
        for start in range(0, n, size):
            N, D = self.matrices(slice(start, start + size))
            products = N.sum(0), D.sum(0), np.einsum("it,it->t", N, N), (N * D).sum(0), np.einsum("it,it->t", D, D)
            sums += np.stack(np.broadcast_arrays(*products))
        N, D, NN, ND, DD = sums / n
        return _Means(N, D, (NN - N * N) / (n - 1), (ND - N * D) / (n - 1), (DD - D * D) / (n - 1), n, error)


def label_shares(p: FloatArray) -> FloatArray:
    r"""Return the multilinear form of :math:`y_j / \max(1, \sum_k y_k)`, the share of label j in the true labels.

    .. math:: p_j \int_0^1 \prod_{k \ne j} (1 - p_k + p_k z)\, dz

    For 0/1 labels the integrand is :math:`z^{|y| - 1}`. With debiased labels the result is unbiased, because no label
    occurs twice in a product. Gauss-Legendre quadrature is exact for the polynomial of degree q - 1.

    >>> label_shares(np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])).round(3)
    array([[0.5, 0. , 0.5],
           [0. , 0. , 0. ]])
    """
    nodes, node_weights = np.polynomial.legendre.leggauss(p.shape[1] // 2 + 1)
    shares, ones = np.zeros_like(p), np.ones((len(p), 1))
    for z, weight in zip((nodes + 1) / 2, node_weights / 2):
        factors = 1 - p + p * z
        before = np.hstack([ones, factors[:, :-1].cumprod(1)])
        after = np.hstack([factors[:, :0:-1].cumprod(1)[:, ::-1], ones])
        shares += weight * before * after
    return shares * p


def _prediction_powered(data: _Data, others: _Rows, metric: str, target: float, thresholds: FloatArray) -> _Means:
    r"""Return means that are unbiased whatever the noise rates are, from trusted rows and other rows.

    .. math:: \bar g_m + \lambda (\bar f_n - \bar f_m)

    Here g is computed from true labels, f from debiased labels, m are the trusted rows and n the other rows. The weight
    :math:`\lambda` minimizes the variance of the constraint at each threshold.
    """
    assert data.trusted is not None
    independent = data.noise.flips_independent
    true = _Rows(data.trusted, data.trusted_scores, thresholds, metric, independent)
    soft = _Rows(_debias(data.trusted_noisy, data.noise), data.trusted_scores, thresholds, metric, independent)
    error = _one_error(ClassConditionalNoise(0.0, 0.0, n_labels=data.n_labels), metric)
    m, n = len(true), len(others)
    if n < 2:
        return true.means(error)
    rest = others.means(error)
    shape = (m, thresholds.size)
    (N, D), (fN, fD) = ([np.broadcast_to(matrix, shape) for matrix in rows.matrices()] for rows in (true, soft))
    g, f = target * D - N, target * fD - fN
    f_variance = target**2 * rest.DD - 2 * target * rest.ND + rest.NN
    with np.errstate(invalid="ignore", divide="ignore"):
        optimum = _covariance(g, f) / (_covariance(f, f) + m * f_variance)
    weight = np.clip(np.nan_to_num(optimum), 0.0, 1.0)
    dN, dD = N - weight * fN, D - weight * fD
    return _Means(
        dN.mean(0) + weight * rest.N,
        dD.mean(0) + weight * rest.D,
        _covariance(dN, dN) / m + weight**2 * rest.NN,
        _covariance(dN, dD) / m + weight**2 * rest.ND,
        _covariance(dD, dD) / m + weight**2 * rest.DD,
        m,
        error,
    )


def _covariance(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the covariance of the columns of two matrices (m, T)."""
    return np.asarray(((a - a.mean(0)) * (b - b.mean(0))).sum(0) / (len(a) - 1))


def _rate_covariance(
    data: _Data, p: FloatArray, means: _Means, metric: str, thresholds: FloatArray
) -> tuple[Any, Any, Any]:
    r"""Return NN, ND and DD by the uncertainty of the rates, to first order (delta method).

    The derivatives of a debiased label are :math:`p / r` by rho_pos and :math:`(p - 1) / r` by rho_neg. The multilinear
    metric "fnr" contains products of labels; its derivative is replaced by the change over one standard error. Errors
    of different rates are independent, except those of rates whose interval contains 0: a rate cannot be negative, so
    that these rates are overestimated together. Their errors are added up.
    """
    assert isinstance(data.noise, ClassConditionalNoise)
    signal = 1 - data.noise.rho_pos - data.noise.rho_neg
    shape = (2, data.n_labels, thresholds.size)
    dN, dD = np.zeros(shape), np.zeros(shape)
    if metric == "fnr":
        for kind, j in zip(*np.nonzero(data.se)):
            rates, step = [data.noise.rho_pos[j], data.noise.rho_neg[j]], data.se[kind, j]
            # Upwards, unless the signal would become too small to invert.
            direction = 1 if step < signal[j] / 2 else -1
            rates[kind] += direction * step
            changed = p.copy()
            changed[:, j] = debias_labels(data.noisy[:, j], rates[0], rates[1])
            other = _Rows(changed, data.scores, thresholds, metric, independent=True).means((0.0, 0.0))
            dN[kind, j], dD[kind, j] = direction * (other.N - means.N), direction * (other.D - means.D)
    else:
        observed = (~np.isnan(p)).astype(np.float64)
        for kind in (0, 1):
            slope = (np.nan_to_num(p) - kind) * observed / signal * data.se[kind]
            # The rows of the transposed matrices are labels: this sums the predicted labels over samples.
            labels = _Rows(slope.T, data.scores.T, thresholds, "recall", independent=True)
            predicted, total = (matrix / len(p) for matrix in labels.matrices())
            dN[kind] = (total - 2 * predicted) / data.n_labels if metric == "hamming" else predicted
            dD[kind] = total if metric == "recall" else 0.0
    shared = data.at_zero
    N = np.vstack([dN[~shared], dN[shared].sum(0)])
    D = np.vstack([dD[~shared], dD[shared].sum(0)])
    return (N * N).sum(0), (N * D).sum(0), (D * D).sum(0)


def _one_error(noise: NoiseModel, metric: str) -> tuple[float, float]:
    """Return N and D of one wrong label, with the largest value that debiasing gives it."""
    low, high = _label_range(noise)
    if metric == "recall":
        return 0.0, float(high.max())
    if metric == "precision":
        return float(low.min()), 1.0
    if metric == "hamming":
        return float(np.maximum(high, 1 - low).max()) / noise.n_labels, 1 / noise.n_labels
    return float(high.max()), 1.0


def _label_range(noise: NoiseModel) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest debiased value of every label."""
    if isinstance(noise, ClassConditionalNoise):
        ends = debias_labels(np.array([[0.0], [1.0]]), noise.rho_pos, noise.rho_neg)
    else:
        ends = _debias(np.eye(noise.n_labels), noise)
    return np.minimum(ends.min(0), 0), np.maximum(ends.max(0), 1)


def _range_of_loss(noise: NoiseModel, metric: str, target: float) -> float:
    """Return an upper bound of the range of the constraint of a row, for every label set and threshold."""
    low, high = _label_range(noise)
    if metric == "recall":
        most = np.maximum(target * high, (target - 1) * low)
        return float((most - np.minimum(target * low, (target - 1) * high)).sum())
    if metric == "precision":
        return float((high - low).sum())
    if metric == "hamming":
        return float((np.maximum(high, 1 - low) - np.minimum(low, 1 - high)).mean())
    size = np.maximum(np.abs(low), high)
    factor = np.maximum(np.maximum(1, np.abs(1 - low)), np.abs(1 - high))
    return float(2 * (size / factor).sum() * factor.prod())
