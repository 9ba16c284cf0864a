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

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray
from ccmn.app.report.instances import Instance, Show
from ccmn.audit.label_issues import read_rates
from ccmn.estimation import NoiseRates
from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL
from ccmn.metrics import METRICS
from ccmn.metrics.metric import Noise
from ccmn.noise import ClassConditionalNoise, NoiseModel

MAX_DRAWN_LABELS = 60
"""Charts show at most this number of labels; tables contain all of them, except that of co-occurrence."""

DEFAULT_SHOWN_ROWS = 24
"""Number of rows with suspicious labels that a report shows."""

RECALL_LEVELS = tuple(np.arange(0, 21) / 20)
"""Levels of recall at which precision is reported."""

ESTIMATED_NOTE = "The rates are estimated. Their intervals hold if errors depend only on the label, not on the row."
MEAN_AVERAGE_PRECISION = "mean_average_precision"
RANK_METRICS = ("ranking_loss", "average_precision", "one_error", "coverage")
"""Metrics of the order of the labels in a row."""
AS_GIVEN, CORRECTED = "labels as given", "corrected for noise"
"""Names of the two evaluations on noisy labels."""
OUT_OF_RANGE_REASONS = (
    "there are too few rows for this much noise, the stated noise rates are too high, or the model was trained on "
    "these rows"
)
"""Why an estimate can be outside the range of its metric."""


@dataclass(frozen=True, eq=False)
class DataFacts:
    """Size of the data and frequency of the labels."""

    name: str
    n: int
    d: int
    labels: tuple[str, ...]
    given: NDArray[np.intp]
    """Number of rows with each label."""
    observed: NDArray[np.intp]
    """Number of rows in which each label was observed."""
    rows_without_labels: int
    note: str = ""
    """Sentence about repeated rows."""

    @property
    def q(self) -> int:
        """Number of labels."""
        return len(self.labels)

    @property
    def shares(self) -> list[float]:
        """Share of the observed rows that have each label."""
        return [float(share) for share in self.given / np.maximum(self.observed, 1)]


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


@dataclass(frozen=True)
class RateFacts:
    """Noise rates of all labels, and warnings about them."""

    labels: tuple[LabelRateFacts, ...]
    note: str
    """How the rates are known."""
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
"""Values that exceed the range of their metric by at most this much count as inside: sums are inexact."""


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
class IssueRow:
    """Row with suspicious labels."""

    row: int
    id: str | None
    labels: tuple[str, ...]
    """Labels given to the row."""
    issues: tuple[tuple[str, int, float | None, bool | None], ...]
    """Suspicious labels: name, given value, error probability or None, and whether the label is wrong, if known."""
    instance: Instance


@dataclass(frozen=True)
class IssueFacts:
    """Rows with suspicious labels, the most suspicious first."""

    rows: tuple[IssueRow, ...]
    n_rows: int | None
    """Number of rows with listed labels; None without error probabilities, where every row has a rank."""
    n_labels: int
    """Number of listed labels."""
    note: str
    review_url: str | None = None
    """Address of the web app for label review; None without links."""
    review_command: str = ""
    """Command that starts the web app at this address."""

    @property
    def verdicts(self) -> list[bool]:
        """Which of the shown suspicious labels are wrong; empty if the true labels are not known."""
        return [wrong for row in self.rows for *_, wrong in row.issues if wrong is not None]


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
    first: str = "metrics"
    """First section."""
    warnings: tuple[str, ...] = ()
    """The most important ones first."""


def data_facts(name: str, d: int, Y: FloatArray, names: Sequence[str], note: str = "") -> DataFacts:
    """Count labels (n, q); NaN means not observed.

    >>> facts = data_facts("two rows", 3, np.array([[1, 0], [0, np.nan]]), ["sea", "sky"])
    >>> facts.given.tolist(), facts.observed.tolist(), facts.rows_without_labels
    ([1, 0], [2, 1], 1)
    """
    ones = Y == 1
    return DataFacts(name, len(Y), d, tuple(names), ones.sum(0), (~np.isnan(Y)).sum(0), int((~ones.any(1)).sum()), note)


def rate_facts(
    noise: NoiseModel | NoiseRates,
    names: Sequence[str],
    true: ClassConditionalNoise | None = None,
    note: str = "The rates are known: they were given by the user.",
) -> RateFacts | None:
    """Return estimated or known noise rates; None for noise models without rates per label."""
    if isinstance(noise, NoiseRates):
        return _estimated_rates(noise, names, true)
    if not isinstance(noise, ClassConditionalNoise):
        return None
    labels = (
        LabelRateFacts(name, RateFact(pos, pos, pos), RateFact(neg, neg, neg))
        for name, pos, neg in zip(names, noise.rho_pos.tolist(), noise.rho_neg.tolist())
    )
    return RateFacts(tuple(labels), note)


def _estimated_rates(rates: NoiseRates, names: Sequence[str], true: ClassConditionalNoise | None) -> RateFacts:
    def fact(j: int, side: str) -> RateFact:
        value, ends = getattr(rates, f"rho_{side}")[j], getattr(rates, f"ci_{side}")[j]
        known = None if true is None else float(getattr(true, f"rho_{side}")[j])
        return RateFact(float(value), float(ends[0]), float(ends[1]), known)

    labels = (LabelRateFacts(name, fact(j, "pos"), fact(j, "neg")) for j, name in enumerate(names))
    warnings = (f"{'all labels' if flag.label is None else names[flag.label]}: {flag.note}" for flag in rates.flags)
    return RateFacts(tuple(labels), ESTIMATED_NOTE, tuple(warnings))


def annotator_facts(annotators: pd.DataFrame) -> AnnotatorFacts:
    """Return the facts of a table of annotators, ``InferredLabels.annotators``."""
    sides = [f"rho_{side}{end}" for side in ("pos", "neg") for end in ("", "_low", "_high")]
    groups = annotators.groupby("annotator", sort=False)
    means = groups[sides].mean().assign(votes=groups.votes.sum()).sort_values("votes", ascending=False, kind="stable")
    facts = (
        LabelRateFacts(str(name), RateFact(*map(float, line[:3])), RateFact(*map(float, line[3:])))
        for name, line in zip(means.index, means[sides].to_numpy())
    )
    numbers = annotators[["share_positive", "agreement", *sides]].map(lambda value: f"{value:.3f}").to_numpy()
    firsts = zip(annotators.annotator.astype(str), annotators.label.astype(str), annotators.votes.astype(str))
    rows = tuple((*first, *map(str, line)) for first, line in zip(firsts, numbers))
    rates = ("missing", "from", "to", "added", "from", "to")
    head = ("annotator", "label", "votes", "share of 1", "agreement", *rates)
    return AnnotatorFacts(tuple(facts), head, rows)


def correcting_noise(noise: NoiseModel | NoiseRates) -> NoiseModel:
    """Return the noise model that a report corrects for.

    >>> correcting_noise(ClassConditionalNoise([0.1], [0.2])).rho_neg
    array([0.2])
    """
    return noise if isinstance(noise, NoiseModel) else read_rates(noise)


def measure(
    Y: Any, scores: NDArray[np.floating[Any]], noise: Noise | None = None, *, standard_errors: bool = False
) -> dict[str, MetricValue]:
    """Compute every metric of scores (n, q) with threshold 0; with ``noise``, estimate it from the noisy labels Y.

    The mean average precision over labels comes first. Without ``noise``, metrics of the order of labels in a row use
    the rows that have a label: in a row without labels no order is wrong. ``standard_errors`` adds those over rows.

    >>> measure([[1, 0], [0, 1]], np.array([[0.5, -0.5], [0.5, -0.5]]))["hamming_loss"]
    MetricValue(value=0.5, se=None, status=None)
    """
    predicted = (scores >= 0).astype(int)
    values: dict[str, MetricValue] = {}
    errors: dict[str, float | None] = {}
    labeled = rows_with_labels(Y) if noise is None else np.ones(len(scores), dtype=bool)
    for name in sorted(METRICS, key=lambda name: name != MEAN_AVERAGE_PRECISION):
        metric = METRICS[name]
        second = scores if metric.needs == "scores" else predicted
        used = labeled if name in RANK_METRICS else np.ones(len(scores), dtype=bool)
        given = Y if used.all() else _take(Y, used)
        bounds = metric.bounds(scores.shape[1])
        if noise is not None:
            estimate = metric.function(Y, second, noise=noise)
            values[name] = MetricValue(estimate.value, estimate.se, str(estimate.status), bounds)
        elif not used.any():
            values[name] = MetricValue(math.nan, None, bounds=bounds)
        else:
            if standard_errors:
                clean = ClassConditionalNoise(0.0, 0.0, n_labels=scores.shape[1])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # the metrics themselves warn below
                    errors[name] = float(metric.function(given, second[used], noise=clean).se)
            exact = float(metric.function(given, second[used]))
            values[name] = MetricValue(exact, errors.get(name), bounds=bounds)
    return values


def rows_with_labels(Y: Any) -> NDArray[np.bool_]:
    """Return which rows have a label."""
    return np.asarray((Y == 1).sum(1) if is_sparse(Y) else (np.asarray(Y) == 1).sum(1)).ravel() > 0


def _take(Y: Any, rows: NDArray[np.bool_]) -> Any:
    return Y[rows] if is_sparse(Y) else np.asarray(Y)[rows]


def out_of_range_note(bounds: tuple[float, float]) -> str:
    """Explain an estimate outside the range of its metric.

    >>> out_of_range_note((0.0, 1.0)).split(":")[0]
    '* outside [0, 1]'
    """
    return f"* outside [{bounds[0]:g}, {bounds[1]:g}]: {OUT_OF_RANGE_REASONS}."


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
    labeled = int(rows_with_labels(Y).sum())
    if rows and rows[0].name == AS_GIVEN and labeled < len(Y):
        note += f" Metrics of the order of labels in a row use the {labeled:,} of {len(Y):,} rows that have a label."
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
    given: FloatArray,
    names: Sequence[str],
    show: Show,
    note: str,
    *,
    known: bool,
    max_rows: int = DEFAULT_SHOWN_ROWS,
    Y_true: FloatArray | None = None,
    review_url: str | None = None,
    review_command: str = "",
    ids: Sequence[str] | None = None,
) -> IssueFacts:
    """Return the first rows with listed labels (:meth:`ccmn.app.issues.Suspicions.issues`) and their contents."""
    column = {str(name): j for j, name in enumerate(names)}
    first = issues.row.unique()[:max_rows].tolist()
    rows = []
    for row in first:
        listed = issues[issues.row == row].to_dict("records")
        entries = []
        for line in listed:
            wrong = None if Y_true is None else bool(Y_true[row, column[line["label"]]] != line["given"])
            entries.append((line["label"], int(line["given"]), float(line["p_wrong"]) if known else None, wrong))
        labels = tuple(str(name) for name, value in zip(names, given[row]) if value == 1)
        shown = show(row, column[listed[0]["label"]])
        rows.append(IssueRow(row, None if ids is None else ids[row], labels, tuple(entries), shown))
    found = issues.row.nunique() if known else None
    return IssueFacts(tuple(rows), found, len(issues), note, review_url, review_command)
