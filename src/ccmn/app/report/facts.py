"""Facts: the numbers and texts that a report shows, section by section, before they are rendered."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.app.report.instances import Instance, Show
from ccmn.audit.label_issues import rates_with_uncertainty
from ccmn.estimation import NoiseRates
from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL
from ccmn.metrics import METRICS
from ccmn.metrics.metric import Noise
from ccmn.noise import ClassConditionalNoise, NoiseModel

MAX_DRAWN_LABELS = 60
"""Charts show at most this number of labels; tables contain all of them, except that of co-occurrence."""

DEFAULT_SHOWN_ISSUES = 24
"""Number of label issues that a report shows with their rows."""

RECALL_LEVELS = tuple(np.arange(0, 21) / 20)
"""Levels of recall at which precision is reported."""

AS_GIVEN, CORRECTED = "labels as given", "corrected for noise"
"""Names of the two evaluations on noisy labels."""


@dataclass(frozen=True)
class LabelCount:
    """Number of rows that have a label, and number of rows in which it was observed."""

    name: str
    given: int
    observed: int

    @property
    def share(self) -> float:
        """Share of the observed rows that have the label; 0 if no row was observed."""
        return self.given / max(self.observed, 1)


@dataclass(frozen=True)
class DataFacts:
    """Size of the data and frequency of the labels."""

    name: str
    n: int
    d: int
    labels: tuple[LabelCount, ...]
    rows_without_labels: int

    @property
    def q(self) -> int:
        """Number of labels."""
        return len(self.labels)

    @property
    def cardinality(self) -> float:
        """Mean number of labels per row."""
        return sum(label.given for label in self.labels) / max(self.n, 1)

    @property
    def observed(self) -> float:
        """Share of the label matrix that was observed."""
        return sum(label.observed for label in self.labels) / max(self.n * self.q, 1)


@dataclass(frozen=True)
class RateFact:
    """Noise rate with its confidence interval, and the true rate if it is known."""

    value: float
    low: float
    high: float
    true: float | None = None


@dataclass(frozen=True)
class LabelRateFacts:
    """Both noise rates of a label: missing-label rate (rho_pos) and added-label rate (rho_neg)."""

    name: str
    rho_pos: RateFact
    rho_neg: RateFact
    kind: str
    method: str


@dataclass(frozen=True)
class RateFacts:
    """Noise rates of all labels, and warnings about them."""

    labels: tuple[LabelRateFacts, ...]
    warnings: tuple[str, ...] = ()
    level: float = CONFIDENCE_LEVEL
    """Nominal coverage of the intervals."""


@dataclass(frozen=True)
class AnnotatorFacts:
    """Annotators of votes: one entry per annotator with means over labels, and all numbers."""

    annotators: tuple[LabelRateFacts, ...]
    """Mean rates and mean ends of their intervals, of the annotators with the most votes first."""
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """One row per annotator and label: volume, label use, agreement, and rates with intervals."""
    level: float = CONFIDENCE_LEVEL


ROUNDING_TOLERANCE = 1e-9
"""Values that exceed the range of their metric by at most this much count as inside."""


@dataclass(frozen=True)
class MetricValue:
    """Value of a metric; estimates from noisy labels have a standard error and a status."""

    value: float
    se: float | None = None
    status: str | None = None
    bounds: tuple[float, float] = field(default=(-math.inf, math.inf), repr=False)
    """Range of the metric; an estimate can lie outside it."""

    @property
    def out_of_range(self) -> bool:
        """Whether the value is outside ``bounds``; False for NaN."""
        # Sums in float64 are inexact.
        return self.value < self.bounds[0] - ROUNDING_TOLERANCE or self.value > self.bounds[1] + ROUNDING_TOLERANCE


@dataclass(frozen=True)
class MetricRow:
    """All metrics of one model on one set of labels (given, corrected or true)."""

    name: str
    values: Mapping[str, MetricValue]
    color: int
    """Number of the color of its dots; related rows share a color."""
    group: str = ""
    """Heading of rows that are compared with each other."""

    @property
    def full_name(self) -> str:
        """Name with the heading."""
        return f"{self.group}: {self.name}" if self.group else self.name


@dataclass(frozen=True)
class MetricFacts:
    """Metrics of several models or on several sets of labels, with a note that explains the rows."""

    rows: tuple[MetricRow, ...]
    note: str


@dataclass(frozen=True)
class LabelIssue:
    """Label that is probably wrong."""

    row: int
    label: str
    given: int
    p_wrong: float
    row_labels: tuple[str, ...]
    """All labels given to the row, this one included."""
    instance: Instance
    is_wrong: bool | None
    """Whether the label is wrong; None if the true labels are not known."""
    id: str | None = None
    """Identifier of the row; None if rows have none."""


@dataclass(frozen=True)
class IssueFacts:
    """Label issues with the largest error probabilities, in descending order."""

    issues: tuple[LabelIssue, ...]
    found: int
    """Number of issues that were found; ``issues`` are some of them."""
    note: str
    max_per_label: int = DEFAULT_SHOWN_ISSUES
    """Maximum number of shown issues of a label, unless there are too few of the other labels."""
    review_url: str | None = None
    """Address of the web app for label review; None without links."""
    review_command: str = ""
    """Command that starts the web app at this address."""

    @property
    def wrong(self) -> int | None:
        """Number of the shown labels that are wrong; None if the true labels are not known."""
        verdicts = [issue.is_wrong for issue in self.issues]
        return None if None in verdicts else sum(map(bool, verdicts))


@dataclass(frozen=True, eq=False)
class PrecisionRecallCurve:
    """Precision at every level of recall, and average precision."""

    precision: tuple[float, ...]
    average: float


@dataclass(frozen=True, eq=False)
class PrecisionRecallFacts:
    """Curves of every label, by the name of the model or of the set of labels."""

    labels: tuple[tuple[str, Mapping[str, PrecisionRecallCurve]], ...]
    curve_names: tuple[str, ...]
    note: str


@dataclass(frozen=True, eq=False)
class CooccurrenceFacts:
    """P(label of the column | label of the row) of the most frequent labels, in the order of the data."""

    names: tuple[str, ...]
    given: FloatArray
    corrected: FloatArray | None
    """Estimate for the true labels, clipped to [0, 1]; None if flips are not independent or the noise is unknown."""
    left_out: int


@dataclass(frozen=True)
class CurveChart:
    """Learning curves of one quantity, over epochs or over the l2 penalty."""

    title: str
    x_name: str
    series: Mapping[str, tuple[tuple[float, float], ...]]


@dataclass(frozen=True)
class CurveFacts:
    """Learning curves of fitted models, a chart per quantity."""

    charts: tuple[CurveChart, ...]
    note: str


@dataclass(frozen=True)
class Report:
    """Facts of one report; sections that do not apply are None."""

    title: str
    lead: tuple[str, ...]
    """Introduction, one string per paragraph."""
    data: DataFacts
    rates: RateFacts | None = None
    annotators: AnnotatorFacts | None = None
    metrics: MetricFacts | None = None
    cooccurrence: CooccurrenceFacts | None = None
    precision_recall: PrecisionRecallFacts | None = None
    issues: IssueFacts | None = None
    curves: CurveFacts | None = None
    first: str = "metrics"
    """Section after the data."""


def data_facts(name: str, d: int, Y: FloatArray, names: Sequence[str]) -> DataFacts:
    """Count labels (n, q); NaN means not observed.

    >>> facts = data_facts("two rows", 3, np.array([[1, 0], [0, np.nan]]), ["sea", "sky"])
    >>> facts.cardinality, facts.observed, facts.rows_without_labels, facts.labels[1]
    (0.5, 0.75, 1, LabelCount(name='sky', given=0, observed=1))
    """
    ones, observed = (Y == 1), ~np.isnan(Y)
    labels = (LabelCount(*count) for count in zip(names, ones.sum(0).tolist(), observed.sum(0).tolist()))
    return DataFacts(name, len(Y), d, tuple(labels), int((~ones.any(1)).sum()))


def rate_facts(
    noise: NoiseModel | NoiseRates,
    names: Sequence[str],
    true: ClassConditionalNoise | None = None,
    kind: str = "known",
) -> RateFacts | None:
    """Return estimated or known noise rates; None for noise models without rates per label."""
    if isinstance(noise, NoiseRates):
        return _estimated_rates(noise, names, true)
    if not isinstance(noise, ClassConditionalNoise):
        return None
    labels = (
        LabelRateFacts(name, RateFact(pos, pos, pos), RateFact(neg, neg, neg), kind, "as given")
        for name, pos, neg in zip(names, noise.rho_pos.tolist(), noise.rho_neg.tolist())
    )
    return RateFacts(tuple(labels))


def _estimated_rates(rates: NoiseRates, names: Sequence[str], true: ClassConditionalNoise | None) -> RateFacts:
    def fact(j: int, side: str) -> RateFact:
        value, ends = getattr(rates, f"rho_{side}")[j], getattr(rates, f"ci_{side}")[j]
        known = None if true is None else float(getattr(true, f"rho_{side}")[j])
        return RateFact(float(value), float(ends[0]), float(ends[1]), known)

    labels = (
        LabelRateFacts(name, fact(j, "pos"), fact(j, "neg"), rates.kind[j], rates.method[j])
        for j, name in enumerate(names)
    )
    warnings = (f"{'all labels' if flag.label is None else names[flag.label]}: {flag.note}" for flag in rates.flags)
    return RateFacts(tuple(labels), tuple(warnings))


def annotator_facts(annotators: pd.DataFrame) -> AnnotatorFacts:
    """Return the facts of a table of annotators, ``InferredLabels.annotators``."""
    sides = [f"rho_{side}{end}" for side in ("pos", "neg") for end in ("", "_low", "_high")]
    groups = annotators.groupby("annotator", sort=False)
    means = groups[sides].mean().assign(votes=groups.votes.sum()).sort_values("votes", ascending=False, kind="stable")
    facts = (
        LabelRateFacts(str(name), RateFact(*map(float, line[:3])), RateFact(*map(float, line[3:])), "point", "votes")
        for name, line in zip(means.index, means[sides].to_numpy())
    )
    numbers = annotators[["share_positive", "agreement", *sides]].map(lambda value: f"{value:.3f}").to_numpy()
    firsts = zip(annotators.annotator.astype(str), annotators.label.astype(str), annotators.votes.astype(str))
    rows = tuple((*first, *map(str, line)) for first, line in zip(firsts, numbers))
    rates = ("missing", "from", "to", "added", "from", "to")
    head = ("annotator", "label", "votes", "share of 1", "agreement", *rates)
    return AnnotatorFacts(tuple(facts), head, rows)


def correcting_noise(noise: NoiseModel | NoiseRates) -> NoiseModel:
    """Return the noise model that a report corrects for; of estimated upper bounds the mean, as in an audit.

    >>> correcting_noise(ClassConditionalNoise([0.1], [0.2])).rho_neg
    array([0.2])
    """
    if isinstance(noise, NoiseModel):
        return noise
    rates = rates_with_uncertainty(noise)
    return ClassConditionalNoise(rates.rho_pos, rates.rho_neg, label_names=rates.label_names)


def measure(
    Y: Any,
    scores: NDArray[np.floating[Any]],
    noise: Noise | None = None,
    *,
    standard_errors: bool = False,
) -> dict[str, MetricValue]:
    """Compute every metric of scores (n, q) with threshold 0; with ``noise``, estimate it from the noisy labels Y.

    Without ``noise``, ``standard_errors`` adds those over rows.

    >>> measure([[1, 0], [0, 1]], np.array([[0.5, -0.5], [0.5, -0.5]]))["hamming_loss"]
    MetricValue(value=0.5, se=None, status=None)
    """
    predicted = (scores >= 0).astype(int)
    values: dict[str, MetricValue] = {}
    errors: dict[str, float | None] = {}
    if noise is None and standard_errors:
        none = ClassConditionalNoise(0.0, 0.0, n_labels=scores.shape[1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the metrics themselves warn below
            errors = {name: estimate.se for name, estimate in measure(Y, scores, none).items()}
    for name, metric in METRICS.items():
        second = scores if metric.needs == "scores" else predicted
        if noise is None:
            exact = float(metric.function(Y, second))
            values[name] = MetricValue(exact, errors.get(name), bounds=metric.bounds(scores.shape[1]))
        else:
            estimate = metric.function(Y, second, noise=noise)
            bounds = metric.bounds(scores.shape[1])
            values[name] = MetricValue(estimate.value, estimate.se, str(estimate.status), bounds)
    return values


def out_of_range_note(bounds: tuple[float, float]) -> str:
    """Explain an estimate outside the range of its metric.

    >>> out_of_range_note((0.0, 1.0)).split(":")[0]
    '* outside [0, 1]'
    """
    return (
        f"* outside [{bounds[0]:g}, {bounds[1]:g}]: there are too few rows for this much noise, the stated noise rates "
        "are too high, or the model was trained on these rows."
    )


def metric_facts(Y: FloatArray, scores: FloatArray, noise: Noise | None, note: str) -> MetricFacts:
    """Compute every metric on the labels as given (if all were observed) and corrected for noise (if it is known)."""
    rows = []
    if not np.isnan(Y).any():
        rows.append(MetricRow(AS_GIVEN, measure(Y, scores, standard_errors=True), 0))
    if noise is not None:
        rows.append(MetricRow(CORRECTED, measure(Y, scores, noise), 1))
        note += (
            " Corrected values estimate the metrics on the true labels, with standard errors. Unbiased estimates are "
            "correct on average; consistent ones in the limit of many rows; approximate ones keep a bias."
        )
    return MetricFacts(tuple(rows), note)


def label_variants(
    Y: FloatArray, scores: FloatArray, noise: NoiseModel | None
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return labels as given and, if the noise is known, debiased labels, each with the scores."""
    variants = {AS_GIVEN: (Y, scores)}
    if noise is not None:
        variants[CORRECTED] = (np.asarray(noise.debias(Y), dtype=np.float64), scores)
    return variants


def precision_recall_facts(
    names: Sequence[str], variants: Mapping[str, tuple[FloatArray, FloatArray]], note: str
) -> PrecisionRecallFacts:
    """Compute the curves of labels (n, q), debiased or not, and scores (n, q) of every variant."""
    labels = []
    for j, name in enumerate(names):
        curves = {variant: precision_recall_curve(p[:, j], scores[:, j]) for variant, (p, scores) in variants.items()}
        labels.append((name, {variant: curve for variant, curve in curves.items() if curve is not None}))
    return PrecisionRecallFacts(tuple(labels), tuple(variants), note)


def precision_recall_curve(p: FloatArray, scores: FloatArray) -> PrecisionRecallCurve | None:
    r"""Compute precision at given levels of recall from labels or debiased labels p (n,); NaN is left out.

    With the rows S_t of scores of at least t,

    .. math::
        \text{precision}(t) = \frac{1}{|S_t|} \sum_{i \in S_t} p_i, \qquad
        \text{recall}(t) = \frac{\sum_{i \in S_t} p_i}{\sum_i p_i}

    Both are consistent for the true labels. Each level uses the highest threshold whose recall reaches it. The average
    precision is that of scikit-learn, the sum of precision times increase in recall. All values are clipped to [0, 1].
    Returns None without positive labels.

    >>> precision_recall_curve(np.array([1.0, 0.0, 1.0]), np.array([3.0, 2.0, 1.0])).average
    0.8333...
    """
    observed = ~np.isnan(p)
    p, scores = p[observed], scores[observed]
    total = p.sum()
    if not p.size or total <= 0:
        return None
    order = np.argsort(-scores, kind="stable")
    # Rows of equal scores are selected together: a threshold can only follow the last of them.
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    hits = np.cumsum(p[order])[last]
    precision, recall = hits / (last + 1), hits / total
    recall[-1] = 1.0  # exactly, without rounding error
    average = float((np.diff(recall, prepend=0.0) * precision).sum())
    at = np.searchsorted(np.maximum.accumulate(recall), RECALL_LEVELS)
    return PrecisionRecallCurve(tuple(precision[at].clip(0, 1).tolist()), min(max(average, 0.0), 1.0))


def cooccurrence_facts(Y: FloatArray, names: Sequence[str], noise: NoiseModel | None = None) -> CooccurrenceFacts:
    """Compute how often labels (n, q) occur together; NaN means not observed."""
    shown = np.sort(np.argsort(-np.nansum(Y, 0), kind="stable")[:MAX_DRAWN_LABELS])
    corrected = None
    if noise is not None and noise.flips_independent:
        debiased = np.asarray(noise.debias(Y), dtype=np.float64)
        corrected = conditional_shares(debiased[:, shown]).clip(0, 1)
    return CooccurrenceFacts(
        tuple(names[j] for j in shown), conditional_shares(Y[:, shown]), corrected, len(names) - shown.size
    )


def conditional_shares(p: FloatArray) -> FloatArray:
    r"""Return the shares (q, q) of the rows with label j that also have label k, from labels or debiased labels.

    .. math:: \frac{\sum_i p_{ij} p_{ik}}{\sum_i p_{ij}}, \qquad j \neq k

    The sums run over rows in which both labels are observed. The diagonal is 1; shares are NaN if no row has label j.
    Flips of different labels are independent given the true labels, so both sums are unbiased for the true labels.

    >>> conditional_shares(np.array([[1.0, 1.0], [1.0, 0.0]]))
    array([[1. , 0.5],
           [1. , 1. ]])
    """
    observed = ~np.isnan(p)
    known = np.where(observed, p, 0.0)
    rows = known.T @ observed
    shares: FloatArray = np.divide(known.T @ known, rows, out=np.full(rows.shape, np.nan), where=rows > 0)
    np.fill_diagonal(shares, 1.0)
    return shares


def issue_facts(
    issues: pd.DataFrame,
    Y: FloatArray,
    names: Sequence[str],
    show: Show,
    note: str,
    *,
    max_shown: int = DEFAULT_SHOWN_ISSUES,
    Y_true: FloatArray | None = None,
    review_url: str | None = None,
    review_command: str = "",
    ids: Sequence[str] | None = None,
) -> IssueFacts:
    """Return label issues found by :func:`ccmn.find_label_issues` with the content of their rows.

    The shown issues are the first ones of several labels, see :func:`diverse_issues`.
    """
    position = {name: j for j, name in enumerate(names)}
    max_per_label = max(1, math.ceil(2 * max_shown / max(issues["label"].nunique(), 1)))
    shown = []
    for line in diverse_issues(issues, max_shown, max_per_label).to_dict("records"):
        row, label = int(line["row"]), str(line["label"])
        j = position[label]
        row_labels = tuple(name for name, given in zip(names, Y[row]) if given == 1)
        wrong = None if Y_true is None else bool(Y_true[row, j] != line["given"])
        name = None if ids is None else ids[row]
        shown.append(
            LabelIssue(row, label, int(line["given"]), float(line["p_wrong"]), row_labels, show(row, j), wrong, name)
        )
    return IssueFacts(tuple(shown), len(issues), note, max_per_label, review_url, review_command)


def diverse_issues(issues: pd.DataFrame, n_shown: int, max_per_label: int) -> pd.DataFrame:
    """Return the first issues with at most ``max_per_label`` of each label, in their order.

    If this leaves fewer than ``n_shown`` issues, the first of the other issues are added.

    >>> issues = pd.DataFrame({"label": ["sea", "sea", "sea", "sky"], "row": [1, 2, 3, 4]})
    >>> diverse_issues(issues, 3, 2).row.tolist(), diverse_issues(issues, 4, 1).row.tolist()
    ([1, 2, 4], [1, 2, 3, 4])
    """
    extra = issues.groupby("label", sort=False).cumcount().to_numpy() >= max_per_label
    chosen = np.sort(np.argsort(extra, kind="stable")[:n_shown])
    return issues.iloc[chosen]


def histories_by_rate(history: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Split the history of a fit by learning rate; an l2 path is not split."""
    if "lr" not in history:
        return {"l2 path": history}
    return {f"learning rate {lr:g}": part for lr, part in history.groupby("lr", sort=False)}


def selected_history(history: pd.DataFrame) -> pd.DataFrame:
    """Return the part of a history that belongs to the learning rate with the lowest validation criterion."""
    if "lr" not in history:
        return history
    criterion = history[history.columns[-1]].fillna(math.inf)
    best = history["lr"].iloc[int(criterion.argmin())]
    return pd.DataFrame(history[history["lr"] == best])


def curve_facts(histories: Mapping[str, pd.DataFrame], note: str) -> CurveFacts:
    """Return a chart for every quantity of the histories; epochs and l2 paths have separate charts."""
    titles = {"loss": "training loss", "ranking_and_hamming_loss": "validation: ranking + Hamming loss"}
    axes = {"epoch": "epoch", "l2": "log10(l2)"}
    quantities = dict.fromkeys(
        str(name)
        for history in histories.values()
        for name in history.columns
        if name not in ("lr", "epoch", "l2", "labels")
    )
    charts = []
    for quantity in quantities:
        for column, x_name in axes.items():
            series = {
                name: _points(history, column, quantity)
                for name, history in histories.items()
                if quantity in history and column in history
            }
            series = {name: points for name, points in series.items() if points}
            if series:
                title = titles.get(quantity, f"validation: {quantity.replace('_', ' ')}")
                charts.append(CurveChart(title, x_name, series))
    return CurveFacts(tuple(charts), note)


def _points(history: pd.DataFrame, column: str, quantity: str) -> tuple[tuple[float, float], ...]:
    """Return the finite points of a curve; l2 penalties on a logarithmic scale, without 0."""
    pairs = [(x, float(y)) for x, y in zip(history[column], history[quantity]) if math.isfinite(y)]
    if column == "l2":
        return tuple((math.log10(x), y) for x, y in pairs if x > 0)
    return tuple((float(x), y) for x, y in pairs)
