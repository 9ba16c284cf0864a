r"""Thresholds with a guarantee for the true labels, calibrated on noisy labels.

Every metric is a ratio of two means over rows, :math:`E[N_i(t)] / E[D_i(t)]` at threshold t. A target for the metric is
a linear constraint: :math:`E[\tau D_i(t) - N_i(t)] \le 0` if the metric must be at least :math:`\tau`, and
:math:`E[N_i(t) - \tau D_i(t)] \le 0` if it must be at most :math:`\tau`. Debiased labels make N and D unbiased, so that
a one-sided test of this mean decides whether a threshold meets the target on the true labels. Learn-then-test orders
the thresholds and stops at the first one that is not accepted, which limits the probability of accepting a wrong one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from ccmn._containers import Labels, to_dense_array
from ccmn._messages import warn
from ccmn._validation import (
    FloatArray,
    check_choice,
    check_label_matrix,
    check_label_width,
    check_real,
    check_trusted_rows,
)
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
"""Number of sequences of tests, which share the error probability. Recall has a safest threshold to start from."""
MAX_BLOCK_ENTRIES = 1 << 22
"""Maximum number of pairs of row and threshold in a block of rows, which bounds the memory."""
MAX_ROWS_NEEDED = 10**9
"""A target that would need more rows counts as out of reach."""


@dataclass(frozen=True, eq=False)
class RiskControl:
    """Threshold for which a metric on the true labels meets its target with the stated confidence.

    With ``per_label=True``, all fields from ``threshold`` to ``rows_needed`` are arrays with one entry per label.

    Parameters
    ----------
    threshold : float or array of shape (q,)
        Smallest score of a predicted label. Without a guarantee, it is the safest threshold: -inf for recall, inf for
        precision, and the one with the smallest estimated loss for hamming.
    bound : float or array of shape (q,)
        Confidence bound of the metric at ``threshold``, as if it had been fixed in advance; for the selected threshold,
        the guarantee is ``target``. NaN if ``threshold`` is infinite.
    estimate : float or array of shape (q,)
        Estimate of the metric on the true labels at ``threshold``. NaN if ``threshold`` is infinite.
    guaranteed : bool or array of shape (q,)
        Whether the metric meets its target with the stated confidence.
    rows_needed : float or array of shape (q,)
        Number of rows that were used or, without a guarantee, that would be about enough (trusted rows if ``trusted``
        was given). inf if more rows do not help: the scores or the noise rates are not accurate enough.
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
        claim, confidence = f"{self.metric} {sign} {self.target:g}", f"confidence {self.confidence:g}"
        if np.ndim(self.threshold):
            n_met, q = int(np.sum(self.guaranteed)), np.size(self.guaranteed)
            lacking = "" if n_met == q else "; see guaranteed and rows_needed"
            return f"{claim} for {n_met} of {q} labels, jointly with {confidence} ({self.n_rows} rows){lacking}"
        if self.guaranteed:
            found = f"estimate {self.estimate:.3f}, bound {self.bound:.3f}"
            return f"{claim} with {confidence} at threshold {self.threshold:.4g}: {found} ({self.n_rows} rows)"
        needed = "more rows do not help; use a better model, more accurate noise rates or another target"
        if math.isfinite(self.rows_needed):
            needed = f"about {float(f'{self.rows_needed:.2g}'):.0f} rows are needed"
        return (
            f"{claim} cannot be guaranteed with {confidence} from {self.n_rows} rows with these noise rates: {needed}"
        )


def _to_json(value: Any) -> Any:
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

    The probability that the metric misses its target on new rows is at most 1 - ``confidence`` [1]_. The metric is
    estimated from debiased labels; the test accounts for the variance that they add and for the uncertainty of the
    rates. The calibration rows must be a random sample that the model was not trained on.

    Parameters
    ----------
    Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (n, q)
        Noisy labels 0 or 1 of the calibration rows; NaN where not observed.
    scores : array of shape (n, q)
        Scores of these rows, for example probabilities. A label is predicted if its score is at least the threshold.
    noise : NoiseModel, NoiseRates or None
        Noise model with known rates; estimated rates, whose standard errors are included; or None for clean labels.
    metric : {"recall", "precision", "hamming"}, default="recall"
        "recall": predicted true labels / true labels; the largest threshold with a guarantee is selected. "precision":
        predicted true labels / predicted labels; the smallest one. "hamming": share of wrong labels; the one with the
        smallest estimate.
    target : float, default=0.9
        Lower limit of recall or precision, upper limit of hamming.
    confidence : float, default=0.9
        Probability that the target is met, over random calibration rows and label noise.
    per_label : bool, default=False
        Whether every label gets its own threshold, with its own recall, precision or Hamming loss. All labels meet the
        target jointly with the stated confidence (Bonferroni: each is tested at (1 - confidence) / q).
    trusted : tuple (rows, Y_true) or array of shape (n, q), default=None
        Verified labels of randomly selected calibration rows; rows with NaN are not trusted. The estimate is then
        prediction-powered [2]_: the trusted rows alone determine its expectation, and the noisy labels of the other
        rows reduce its variance. The guarantee does not depend on the noise rates.
    thresholds : array, default=None
        Thresholds to test. By default, quantiles of the scores.

    Returns
    -------
    RiskControl
        Threshold, bound, estimate, and whether the target is guaranteed. If not, a warning is given.

    References
    ----------
    .. [1] A. N. Angelopoulos et al., "Learn then Test", Annals of Applied Statistics 19(2), 2025.
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
    result = RiskControl(threshold, bound, estimate, guaranteed, needed, metric, target, confidence, data.n_rows)
    if not np.all(result.guaranteed):
        warn(str(result))
    return result


class _Data(NamedTuple):
    """Checked arguments of ``control_risk``.

    ``noisy`` are the noisy labels (n, q), NaN where not observed, of the rows that are not trusted; ``trusted`` are the
    true labels (m, q) of the others. ``se`` and ``at_zero`` (2, q) are the standard errors of rho_pos and rho_neg, and
    whether the intervals of the rates contain 0.
    """

    noisy: FloatArray
    scores: FloatArray
    noise: NoiseModel
    se: FloatArray
    at_zero: NDArray[np.bool_]
    trusted: FloatArray | None
    trusted_noisy: FloatArray
    trusted_scores: FloatArray

    @property
    def n_rows(self) -> int:
        """Number of rows on which the guarantee depends."""
        return len(self.noisy if self.trusted is None else self.trusted)

    def labels(self) -> list[_Data]:
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
    read = read_pair(Y_noisy, scores, () if noise is None else noise, "scores", "Y_noisy")
    Y, f = (values.double().cpu().numpy() for values in read)
    n, q = Y.shape
    noise = ClassConditionalNoise(0.0, 0.0, n_labels=q) if noise is None else noise
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
    grid = _default_thresholds(np.vstack([data.scores, data.trusted_scores])) if thresholds is None else thresholds
    if data.trusted is None:
        p = data.noise.debias(data.noisy)
        means = _means_of_rows(p, data.scores, grid, metric, data.noise)
        if data.se.any():
            means = means._replace(by_rates=_rate_covariance(data, p, metric, grid))
    else:
        means = _trusted_means(data, metric, target, grid)
    n_starts, sign = min(N_STARTS[metric], grid.size), CONTROLLED[metric]

    def passes(means: _Means, tau: float) -> NDArray[np.bool_]:
        return means.upper_bound(tau, sign, error / n_starts) <= 0

    # From safe to unsafe: recall from the lowest threshold upwards, the others from the highest downwards.
    order = np.arange(grid.size) if metric == "recall" else np.arange(grid.size)[::-1]
    # Fixed-sequence testing accepts the thresholds from every start up to the first one that fails.
    starts = np.arange(n_starts) * (grid.size - 1) // n_starts
    passed, accepted = passes(means, target)[order], np.zeros(grid.size, dtype=bool)
    for start in starts:
        accepted[start:] |= np.logical_and.accumulate(passed[start:])
    with np.errstate(invalid="ignore", divide="ignore"):
        estimates = means.N / means.D
    candidates, needed = order[accepted], float(data.n_rows)
    if not accepted.any():
        counts = range(data.n_rows, MAX_ROWS_NEEDED + 1)
        fewest = bisect_left(counts, True, key=lambda n: bool(passes(means.with_rows(n), target)[order[starts]].any()))
        needed = float(counts[fewest]) if fewest < len(counts) else math.inf
        if metric != "hamming":
            return -math.inf if metric == "recall" else math.inf, math.nan, math.nan, False, needed
        candidates = order
    best = candidates[np.nanargmin(estimates[candidates])] if metric == "hamming" else candidates[-1]
    steps = 1 << 40  # the bound is the most demanding target that the threshold passes
    bound = bisect_left(range(steps), True, key=lambda i: bool(passes(means, i / steps)[best]) != (sign > 0)) / steps
    return float(grid[best]), bound, float(estimates[best]), bool(accepted.any()), needed


def _default_thresholds(scores: FloatArray) -> FloatArray:
    """Return ascending thresholds: quantiles at which the numbers of predicted labels form a geometric sequence."""
    fewest = max(1.0, MIN_PREDICTED_PER_ROW * len(scores))
    counts = np.unique(np.geomspace(fewest, scores.size, N_THRESHOLDS).round().astype(int))
    return np.unique(np.sort(scores, axis=None)[scores.size - counts])


class _Means(NamedTuple):
    """Estimates of the means of N and D at T thresholds.

    ``covariance`` (3, T) are the variance of N, the covariance and the variance of D by the sampling of ``n`` rows,
    ``by_rates`` the same by the uncertainty of the rates. ``error`` are N and D of one additional error.
    """

    N: FloatArray
    D: FloatArray
    covariance: FloatArray
    by_rates: FloatArray
    n: int
    error: tuple[float, float]

    def upper_bound(self, tau: float, sign: float, level: float) -> FloatArray:
        """Return an upper confidence bound of the constraint, which must not be positive, by a t test."""
        NN, ND, DD = self.covariance + self.by_rates
        variance = np.maximum(tau**2 * DD - 2 * tau * ND + NN, 0)
        # Without the additional error, a sample without any error would have variance 0 and certainly pass.
        extra = sign * (tau * self.error[1] - self.error[0]) / self.n
        quantile = -float(scipy.special.stdtrit(self.n - 1, level))
        return np.asarray(sign * (tau * self.D - self.N) + extra + quantile * np.sqrt(variance + extra**2))

    def with_rows(self, n: int) -> _Means:
        """Return the same means with the covariance for another number of rows."""
        return self._replace(covariance=self.n / n * self.covariance, n=n)


def _parts(
    labels: FloatArray, scores: FloatArray, thresholds: FloatArray, metric: str
) -> tuple[FloatArray, FloatArray]:
    r"""Return N and D of every row at all thresholds, (n, T); D is (n, 1) if it does not depend on them.

    .. math:: N_i(t) = c_i + \sum_j 1[s_{ij} \ge t]\, v_{ij}, \qquad
              D_i(t) = d_i \quad\text{or}\quad \sum_j 1[s_{ij} \ge t] \text{ (precision)}
    """
    (n, q), width = labels.shape, thresholds.size + 1
    # A label is predicted at the thresholds 0, ..., bin - 1.
    cells = np.searchsorted(thresholds, scores, side="right") + width * np.arange(n)[:, None]

    def predicted(values: FloatArray) -> FloatArray:
        sums = np.bincount(cells.ravel(), weights=values.ravel(), minlength=width * n).reshape(-1, width)
        return np.asarray(sums[:, :0:-1].cumsum(1)[:, ::-1])

    p, observed = np.nan_to_num(labels), (~np.isnan(labels)).astype(np.float64)
    if metric == "hamming":
        return p.sum(1, keepdims=True) / q + predicted((observed - 2 * p) / q), observed.sum(1, keepdims=True) / q
    return predicted(p), predicted(observed) if metric == "precision" else p.sum(1, keepdims=True)


def _means_of_rows(
    labels: FloatArray, scores: FloatArray, thresholds: FloatArray, metric: str, noise: NoiseModel
) -> _Means:
    """Return the means of N and D over rows, with their covariance."""
    n, size = len(labels), max(1, MAX_BLOCK_ENTRIES // thresholds.size)
    sums = np.zeros((5, thresholds.size))
    for start in range(0, n, size):
        N, D = _parts(labels[start : start + size], scores[start : start + size], thresholds, metric)
        products = N.sum(0), D.sum(0), np.einsum("it,it->t", N, N), (N * D).sum(0), np.einsum("it,it->t", D, D)
        sums += np.stack(np.broadcast_arrays(*products))
    N, D = sums[:2] / n
    covariance = (sums[2:] / n - np.stack([N * N, N * D, D * D])) / (n - 1)
    return _Means(N, D, covariance, np.zeros_like(covariance), n, _one_error(noise, metric))


def _trusted_means(data: _Data, metric: str, target: float, thresholds: FloatArray) -> _Means:
    r"""Return means that are unbiased whatever the noise rates are, from trusted rows and other rows.

    .. math:: \bar g_m + \lambda (\bar f_n - \bar f_m)

    Here g is computed from true labels, f from debiased labels, m are the trusted rows and n the others; the weight
    :math:`\lambda` minimizes the variance of the constraint.
    """
    truth, noise = np.asarray(data.trusted), data.noise
    clean = ClassConditionalNoise(0.0, 0.0, n_labels=noise.n_labels)
    if len(data.noisy) < 2:
        return _means_of_rows(truth, data.trusted_scores, thresholds, metric, clean)
    rest = _means_of_rows(noise.debias(data.noisy), data.scores, thresholds, metric, clean)
    m = len(truth)
    (N, D), (fN, fD) = (
        np.broadcast_arrays(*_parts(labels, data.trusted_scores, thresholds, metric))
        for labels in (truth, noise.debias(data.trusted_noisy))
    )
    g, f = target * D - N, target * fD - fN
    f_variance = target**2 * rest.covariance[2] - 2 * target * rest.covariance[1] + rest.covariance[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        optimum = _covariance(g, f) / (_covariance(f, f) + m * f_variance)
    weight = np.clip(np.nan_to_num(optimum), 0.0, 1.0)
    dN, dD = N - weight * fN, D - weight * fD
    own = np.stack([_covariance(dN, dN), _covariance(dN, dD), _covariance(dD, dD)]) / m
    means = dN.mean(0) + weight * rest.N, dD.mean(0) + weight * rest.D
    return rest._replace(N=means[0], D=means[1], covariance=own + weight**2 * rest.covariance, n=m)


def _covariance(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(((a - a.mean(0)) * (b - b.mean(0))).sum(0) / (len(a) - 1))


def _rate_covariance(data: _Data, p: FloatArray, metric: str, thresholds: FloatArray) -> FloatArray:
    r"""Return the covariance of N and D (3, T) by the uncertainty of the rates, to first order (delta method).

    The derivatives of a debiased label are :math:`p / r` by rho_pos and :math:`(p - 1) / r` by rho_neg, where r is
    1 - rho_pos - rho_neg. Errors of different rates are independent, except those of rates whose interval contains 0:
    they cannot be negative, are overestimated together, and their errors are added up.
    """
    assert isinstance(data.noise, ClassConditionalNoise)
    signal, observed = 1 - data.noise.rho_pos - data.noise.rho_neg, (~np.isnan(p)).astype(np.float64)
    dN, dD = np.zeros((2, 2, p.shape[1], thresholds.size))
    for kind in (0, 1):
        slope = (np.nan_to_num(p) - kind) * observed / signal * data.se[kind]
        # The rows of the transposed matrices are labels: this sums the predicted labels over samples.
        predicted, total = (part / len(p) for part in _parts(slope.T, data.scores.T, thresholds, "recall"))
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
        ends = noise.debias(np.eye(noise.n_labels))
    low, high = np.minimum(ends.min(0), 0), np.maximum(ends.max(0), 1)
    if metric == "recall":
        return 0.0, float(high.max())
    if metric == "precision":
        return float(low.min()), 1.0
    return float(np.maximum(high, 1 - low).max()) / noise.n_labels, 1 / noise.n_labels
