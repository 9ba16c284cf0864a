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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from ccmn._containers import Labels, to_dense_array
from ccmn._validation import (
    FloatArray,
    check_choice,
    check_label_matrix,
    check_label_width,
    check_real,
    check_trusted_rows,
)
from ccmn._warnings import warn
from ccmn.metrics.metric import Noise, read_pair, resolve_noise_model
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.noise.class_conditional import debias_labels

CONTROLLED = {"recall": 1.0, "precision": 1.0, "hamming": -1.0}
"""Metrics that can be controlled; 1 if the metric must be at least its target, -1 if it must be at most its target."""

N_THRESHOLDS = 384
"""Number of thresholds that are tested; the numbers of predicted labels form a geometric sequence."""

MIN_PREDICTED_PER_ROW = 1 / 200
"""Mean number of predicted labels per row at the highest threshold."""

N_STARTS = {"recall": 1, "precision": 8, "hamming": 24}
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
        (every label is predicted) for recall, inf (no label is predicted) for precision, and the threshold with
        the smallest estimated loss for hamming.
    bound : float or array of shape (q,)
        Confidence bound of the metric at ``threshold``: a lower bound for recall and precision, an upper bound for
        hamming. It is a bound for a threshold that was fixed in advance; for the selected threshold, the guarantee
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
    >>> from ccmn.metrics import RiskControl
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
        sign = ">=" if CONTROLLED[self.metric] > 0 else "<="
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
    noise: Noise | None,
    metric: str = "recall",
    target: float = 0.9,
    confidence: float = 0.9,
    *,
    per_label: bool = False,
    trusted: Any = None,
    thresholds: ArrayLike | None = None,
) -> RiskControl:
    r"""Select a threshold for which a metric on the true labels meets its target with high probability.

    The probability that the metric misses its target on new rows is at most 1 - ``confidence`` [1]_. The labels of the
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
    metric : {"recall", "precision", "hamming"}, default="recall"
        "recall": predicted true labels / true labels, counted over all rows (micro average). The largest threshold with
        a guarantee is selected. "precision": predicted true labels / predicted labels, counted over all rows. The
        smallest threshold with a guarantee is selected."hamming": share of wrong labels. The threshold
        with the smallest estimate among those with a guarantee is selected.
    target : float, default=0.9
        Lower limit of recall or precision, upper limit of hamming.
    confidence : float, default=0.9
        Probability that the target is met, over random calibration rows and label noise.
    per_label : bool, default=False
        Whether every label gets its own threshold, with its own recall, precision or Hamming loss. All labels meet the
        target jointly with the stated confidence (Bonferroni: each is tested at (1 - confidence) / q).
    trusted : tuple (rows, Y_true) or array of shape (n, q), default=None
        Verified labels of randomly selected calibration rows. The estimate is then prediction-powered [2]_: the trusted
        rows alone determine its expectation, and the noisy labels of the other rows reduce its variance. The guarantee
        does not depend on the noise rates. Rows with unverified labels count as not trusted.
    thresholds : array, default=None
        Thresholds to test. By default, quantiles of the scores.

    Returns
    -------
    RiskControl
        Threshold, confidence bound, estimate, and whether the target is guaranteed. If not, a warning is given and
        ``rows_needed`` is an estimate of the number of rows that would be enough.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan and L. Lei, "Learn then Test: Calibrating Predictive
       Algorithms to Achieve Risk Control", Annals of Applied Statistics 19(2), 2025.
    .. [2] A. N. Angelopoulos, J. C. Duchi and T. Zrnic, "PPI++: Efficient Prediction-Powered Inference",
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
    0.82
    """
    check_choice(metric, "metric", tuple(CONTROLLED))
    target, confidence = check_real(target, "target", 0, 1), check_real(confidence, "confidence", 0, 1)
    data = _read(Y_noisy, scores, noise, trusted)
    grid = None if thresholds is None else np.unique(np.asarray(thresholds, dtype=np.float64))
    parts, error = data.labels() if per_label else [data], 1 - confidence
    found = [_control(part, metric, target, error / len(parts), grid) for part in parts]
    columns: list[Any] = [np.array(column) for column in zip(*found)] if per_label else list(found[0])
    threshold, bound, estimate, guaranteed, needed = columns
    claim = metric, target, confidence
    result = RiskControl(threshold, bound, estimate, guaranteed, needed, *claim, data.n_rows)
    if not np.all(result.guaranteed):
        warn(str(result))
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
    def n_rows(self) -> int:
        """Number of rows on which the guarantee depends."""
        return len(self.noisy if self.trusted is None else self.trusted)

    def labels(self) -> list[_Data]:
        """Return the rows of each label."""
        noise = self.noise
        if not isinstance(noise, ClassConditionalNoise):
            raise TypeError(f"per_label=True requires a noise model with rates per label; got {type(noise).__name__}")
        parts = []
        for j in range(noise.n_labels):
            one = slice(j, j + 1)
            arrays = {name: value[:, one] for name, value in self._asdict().items() if isinstance(value, np.ndarray)}
            parts.append(self._replace(noise=ClassConditionalNoise(noise.rho_pos[one], noise.rho_neg[one]), **arrays))
        return parts


def _read(Y_noisy: Labels, scores: Any, noise: Any, trusted: Any) -> _Data:
    """Return the checked arguments of ``control_risk``."""
    read = read_pair(Y_noisy, scores, () if noise is None else noise, "scores", "Y_noisy")
    Y, f = (values.double().cpu().numpy() for values in read)
    n, q = Y.shape
    if noise is None:
        noise = ClassConditionalNoise(0.0, 0.0, n_labels=q)
    model = resolve_noise_model(noise, Y, "Y_noisy")
    se, at_zero = np.zeros((2, q)), np.zeros((2, q), dtype=bool)
    if model is not noise:
        se = np.stack([noise.se_pos, noise.se_neg])
        at_zero = np.stack([noise.ci_pos[:, 0], noise.ci_neg[:, 0]]) <= 0
    rows, truth = np.zeros(0, dtype=np.intp), None
    if trusted is not None:
        rows, true_labels = check_trusted_rows(trusted, n)
        true = check_label_matrix(to_dense_array(true_labels), "trusted")
        check_label_width(true.shape, q, "trusted")
        complete = ~(np.isnan(true) | np.isnan(Y[rows])).any(1)
        rows, truth = rows[complete], true[complete]
    others = np.setdiff1d(np.arange(n), rows)
    data = _Data(Y[others], f[others], model, se, at_zero, truth, Y[rows], f[rows])
    if data.n_rows < 2:
        what = "calibration rows" if truth is None else "trusted rows with verified labels"
        raise ValueError(f"Expected at least 2 {what}; got {data.n_rows}")
    return data


def _control(
    data: _Data, metric: str, target: float, error: float, thresholds: FloatArray | None
) -> tuple[float, float, float, bool, float]:
    """Test the thresholds at error probability ``error``; return the first five fields of ``RiskControl``."""
    grid = default_thresholds(np.vstack([data.scores, data.trusted_scores])) if thresholds is None else thresholds
    means = _estimated_means(data, metric, target, grid)
    n_starts, sign = min(N_STARTS[metric], grid.size), CONTROLLED[metric]

    def passes(means: _Means, tau: float) -> NDArray[np.bool_]:
        return means.upper_bound(tau, sign, error / n_starts) <= 0

    # From safe to unsafe: recall from the lowest threshold upwards, the others from the highest downwards.
    order = np.arange(grid.size) if metric == "recall" else np.arange(grid.size)[::-1]
    starts = np.unique(np.linspace(0, grid.size - 1, n_starts + 1).astype(int)[:-1])
    passed = order[accepted_hypotheses(passes(means, target)[order], starts)]
    with np.errstate(invalid="ignore", divide="ignore"):
        estimates = means.N / means.D
    needed = float(data.n_rows)
    if not passed.size:
        first = means.at(order[starts])
        needed = _rows_needed(lambda n: bool(passes(first.with_rows(n), target).any()), data.n_rows)
        if metric != "hamming":
            return -math.inf if metric == "recall" else math.inf, math.nan, math.nan, False, needed
    if metric == "hamming":
        candidates = passed if passed.size else np.arange(grid.size)
        best = candidates[np.nanargmin(estimates[candidates])]
    else:
        best = passed[-1]
    bound = _bound(lambda tau: bool(passes(means.at(best), tau)[0]), sign > 0)
    return float(grid[best]), bound, float(estimates[best]), bool(passed.size), needed


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


class _Means(NamedTuple):
    """Estimates of the means of N and D at T thresholds, with their covariance."""

    N: FloatArray
    D: FloatArray
    covariance: FloatArray
    """Variance of N, covariance and variance of D by the sampling of rows, (3, T)."""
    by_rates: FloatArray
    """The same by the uncertainty of the rates."""
    n: int
    """Number of rows on which the covariance depends."""
    error: tuple[float, float]
    """N and D of one additional error."""

    def upper_bound(self, tau: float, sign: float, level: float) -> FloatArray:
        """Return an upper confidence bound of the constraint, which must not be positive, by a t test."""
        NN, ND, DD = self.covariance + self.by_rates
        variance = np.maximum(tau**2 * DD - 2 * tau * ND + NN, 0)
        # Without the additional error, a sample without any error would have variance 0 and certainly pass.
        extra = sign * (tau * self.error[1] - self.error[0]) / self.n
        quantile = -float(scipy.special.stdtrit(self.n - 1, level))
        return np.asarray(sign * (tau * self.D - self.N) + extra + quantile * np.sqrt(variance + extra**2))

    def at(self, index: Any) -> _Means:
        """Return the means at some thresholds."""
        index = np.atleast_1d(index)
        covariances = self.covariance[:, index], self.by_rates[:, index]
        return _Means(self.N[index], self.D[index], *covariances, self.n, self.error)

    def with_rows(self, n: int) -> _Means:
        """Return the same means with the covariance for another number of rows."""
        return self._replace(covariance=self.n / n * self.covariance, n=n)


def _estimated_means(data: _Data, metric: str, target: float, thresholds: FloatArray) -> _Means:
    """Return the estimated means of N and D at all thresholds, by debiased labels or by trusted rows."""
    p = _debias(data.noisy, data.noise)
    rows = _Rows(p, data.scores, thresholds, metric)
    if data.trusted is not None:
        return _prediction_powered(data, data.trusted, rows, metric, target, thresholds)
    means = rows.means(_one_error(data.noise, metric))
    return means._replace(by_rates=_rate_covariance(data, p, metric, thresholds)) if data.se.any() else means


def _debias(noisy: FloatArray, noise: NoiseModel) -> FloatArray:
    """Return debiased labels in float64."""
    return np.asarray(noise.debias(noisy), dtype=np.float64)


class _Rows:
    r"""N and D of every row, as functions of the threshold.

    .. math:: N_i(t) = c_i + \sum_j 1[s_{ij} \ge t]\, v_{ij}, \qquad
              D_i(t) = d_i \quad\text{or}\quad \sum_j 1[s_{ij} \ge t] \text{ (precision)}
    """

    def __init__(self, labels: FloatArray, scores: FloatArray, thresholds: FloatArray, metric: str) -> None:
        self.n_thresholds = thresholds.size
        # A label is predicted at the thresholds 0, ..., bin - 1.
        self.bins = np.searchsorted(thresholds, scores, side="right")
        self.observed = (~np.isnan(labels)).astype(np.float64)
        self.precision = metric == "precision"
        p, q = np.nan_to_num(labels), labels.shape[1]
        self.constant, self.values, self.divisor = np.zeros(len(p)), p, p.sum(1)
        if metric == "hamming":
            self.constant, self.values = p.sum(1) / q, (self.observed - 2 * p) / q
            self.divisor = self.observed.sum(1) / q

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
        n, size = len(self.values), max(1, MAX_BLOCK_ENTRIES // self.n_thresholds)
        sums = np.zeros((5, self.n_thresholds))
        for start in range(0, n, size):
            N, D = self.matrices(slice(start, start + size))
            products = N.sum(0), D.sum(0), np.einsum("it,it->t", N, N), (N * D).sum(0), np.einsum("it,it->t", D, D)
            sums += np.stack(np.broadcast_arrays(*products))
        N, D = sums[:2] / n
        covariance = (sums[2:] / n - np.stack([N * N, N * D, D * D])) / (n - 1)
        return _Means(N, D, covariance, np.zeros_like(covariance), n, error)


def _prediction_powered(
    data: _Data, truth: FloatArray, others: _Rows, metric: str, target: float, thresholds: FloatArray
) -> _Means:
    r"""Return means that are unbiased whatever the noise rates are, from trusted rows and other rows.

    .. math:: \bar g_m + \lambda (\bar f_n - \bar f_m)

    Here g is computed from true labels, f from debiased labels, m are the trusted rows and n the other rows. The weight
    :math:`\lambda` minimizes the variance of the constraint at each threshold.
    """
    true = _Rows(truth, data.trusted_scores, thresholds, metric)
    soft = _Rows(_debias(data.trusted_noisy, data.noise), data.trusted_scores, thresholds, metric)
    error = _one_error(ClassConditionalNoise(0.0, 0.0, n_labels=data.noise.n_labels), metric)
    m, n = len(truth), len(data.noisy)
    if n < 2:
        return true.means(error)
    rest = others.means(error)
    shape = (m, thresholds.size)
    (N, D), (fN, fD) = ([np.broadcast_to(matrix, shape) for matrix in rows.matrices()] for rows in (true, soft))
    g, f = target * D - N, target * fD - fN
    f_variance = target**2 * rest.covariance[2] - 2 * target * rest.covariance[1] + rest.covariance[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        optimum = _covariance(g, f) / (_covariance(f, f) + m * f_variance)
    weight = np.clip(np.nan_to_num(optimum), 0.0, 1.0)
    dN, dD = N - weight * fN, D - weight * fD
    own = np.stack([_covariance(dN, dN), _covariance(dN, dD), _covariance(dD, dD)]) / m
    covariance = own + weight**2 * rest.covariance
    means = dN.mean(0) + weight * rest.N, dD.mean(0) + weight * rest.D
    return _Means(*means, covariance, np.zeros_like(covariance), m, error)


def _covariance(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the covariance of the columns of two matrices (m, T)."""
    return np.asarray(((a - a.mean(0)) * (b - b.mean(0))).sum(0) / (len(a) - 1))


def _rate_covariance(data: _Data, p: FloatArray, metric: str, thresholds: FloatArray) -> FloatArray:
    r"""Return the covariance of N and D (3, T) by the uncertainty of the rates, to first order (delta method).

    The derivatives of a debiased label are :math:`p / r` by rho_pos and :math:`(p - 1) / r` by rho_neg, where r is
    1 - rho_pos - rho_neg. Errors of different rates are independent, except those of rates whose interval contains 0: a
    rate cannot be negative, so that these rates are overestimated together. Their errors are added up.
    """
    assert isinstance(data.noise, ClassConditionalNoise)
    signal, observed = 1 - data.noise.rho_pos - data.noise.rho_neg, (~np.isnan(p)).astype(np.float64)
    dN, dD = np.zeros((2, 2, p.shape[1], thresholds.size))
    for kind in (0, 1):
        slope = (np.nan_to_num(p) - kind) * observed / signal * data.se[kind]
        # The rows of the transposed matrices are labels: this sums the predicted labels over samples.
        predicted, total = (
            matrix / len(p) for matrix in _Rows(slope.T, data.scores.T, thresholds, "recall").matrices()
        )
        dN[kind] = (total - 2 * predicted) / p.shape[1] if metric == "hamming" else predicted
        dD[kind] = total if metric == "recall" else 0.0
    shared = data.at_zero
    N, D = (np.vstack([slopes[~shared], slopes[shared].sum(0)]) for slopes in (dN, dD))
    return np.stack([(N * N).sum(0), (N * D).sum(0), (D * D).sum(0)])


def _one_error(noise: NoiseModel, metric: str) -> tuple[float, float]:
    """Return N and D of one wrong label, with the largest value that debiasing gives it."""
    if isinstance(noise, ClassConditionalNoise):
        ends = debias_labels(np.array([[0.0], [1.0]]), noise.rho_pos, noise.rho_neg)
    else:
        ends = _debias(np.eye(noise.n_labels), noise)
    low, high = np.minimum(ends.min(0), 0), np.maximum(ends.max(0), 1)
    if metric == "recall":
        return 0.0, float(high.max())
    if metric == "precision":
        return float(low.min()), 1.0
    return float(np.maximum(high, 1 - low).max()) / noise.n_labels, 1 / noise.n_labels
