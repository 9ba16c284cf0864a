"""method="auto": everything that is known goes into one posterior per label, and the doubts are told.

Noise rates again and again, as more rows are trusted: what does not depend on those is worked out once.

estimate_noise: noise rates from noisy labels, by whatever there is to go by.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
from sklearn.utils import check_array

from ccmn._containers import Labels, is_sparse, label_names_of, to_dense_array, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._registry import Registry
from ccmn._validation import (
    FloatArray,
    check_choice,
    check_groups,
    check_label_matrix,
    check_matrix_pair,
    check_probabilities,
    check_trusted_rows,
    check_votes,
    name_some,
)
from ccmn.estimation.anchor import anchor, tightest
from ccmn.estimation.anchor_max import anchor_max
from ccmn.estimation.anchor_quantile import anchor_quantile
from ccmn.estimation.best_bin import best_bin, best_bin_label
from ccmn.estimation.confident_joint import confident_joint
from ccmn.estimation.correlations import correlations
from ccmn.estimation.dawid_skene import dawid_skene
from ccmn.estimation.diagnosis import Diagnosis, diagnose
from ccmn.estimation.evidence import Estimator, Evidence, Trusted, check_zeros_observed
from ccmn.estimation.forward import forward
from ccmn.estimation.group_rates import FEWEST_ROWS, GroupRates, of_rows, rows_of
from ccmn.estimation.likelihood import shares
from ccmn.estimation.noise_rates import (
    SIDES,
    UNINFORMED,
    WIDE,
    Flag,
    LabelRates,
    NoiseRates,
    Rate,
    Side,
    gather,
    prior_from_rates,
)
from ccmn.estimation.profile import Counts, profile, profile_labels
from ccmn.estimation.trusted import (
    contradict,
    counts_of,
    known_prevalence,
    read_prevalence,
    rows_needed,
    trusted_counts,
)
from ccmn.noise import ClassConditionalNoise

WANTED = 0.1
"""Half the length of an interval that is worth having."""

Notes = tuple[tuple[str, str], ...]


def auto(evidence: Evidence) -> list[LabelRates]:
    """What there is decides: votes of annotators; trusted rows, prevalence and features together; or one of them."""
    if evidence.annotators is not None:
        return dawid_skene(evidence)
    if not evidence.has_scores:
        if evidence.trusted is None and evidence.prevalence is not None:
            return known_prevalence(evidence)
        return trusted_counts(evidence) if evidence.trusted is not None else profile(evidence)
    counts = counts_of(evidence)
    if counts is None and evidence.X is None and evidence.prevalence is None:
        return _bounded(evidence)
    if counts is None:
        free = profile_labels(evidence, [None] * len(evidence.sides))
        checks = bounds(evidence)
        return [_told(evidence, j, label, disagreement(label, checks[j])) for j, label in enumerate(free)]
    return _with_trusted(evidence, counts)


def _bounded(evidence: Evidence) -> list[LabelRates]:
    """From probabilities alone: the best bin where labels were only added, else the lower of it and the anchors.

    Nearly every label has rows that are surely negative, so that added labels are seen for what they are; few have
    rows that are surely positive, so that lost ones can only be bounded.
    """
    by_side = {side: (best_bin if side == "partial" else tightest)(evidence) for side in set(evidence.sides)}
    return [by_side[side][j] for j, side in enumerate(evidence.sides)]


def _with_trusted(evidence: Evidence, counts: Sequence[Counts]) -> list[LabelRates]:
    """Labels whose likelihood contradicts their counts are left to the counts alone."""
    counted, free = trusted_counts(evidence), profile_labels(evidence, [None] * len(evidence.sides))
    apart = [] if evidence.X is None else [j for j, pair in enumerate(zip(counted, free)) if _contradict(*pair)]
    joint, checks = profile_labels(evidence, counts, apart), bounds(evidence)
    result = []
    for j, label in enumerate(joint):
        notes = [note for note in counted[j].notes if note[0] == "side_contradicted"]
        if j in apart:
            label = label._replace(method="trusted")
            notes.append(("model_contradicted", "the features tell other rates than the trusted rows, which stand"))
        result.append(_told(evidence, j, label, (*notes, *no_anchor(counted[j], checks[j]))))
    return result


def _contradict(first: LabelRates, second: LabelRates) -> bool:
    return contradict(first.pos, second.pos) or contradict(first.neg, second.neg)


def bounds(evidence: Evidence) -> list[LabelRates]:
    """What the best bin makes of held-out scores: the most that the rates can be, whatever the shape."""
    scores, Y = evidence.surfaces.scores, evidence.Y[evidence.surfaces.rows]
    result = []
    for j, side in enumerate(evidence.sides):
        seen = ~np.isnan(Y[:, j])
        result.append(best_bin_label(scores[seen, j], Y[seen, j] == 1, side, evidence.generator(j)))
    return result


def disagreement(label: LabelRates, bound: LabelRates) -> Notes:
    """The flag ``disagreement`` where more noise is estimated than the best bin leaves room for."""
    pairs = {"rho_pos": (label.pos, bound.pos), "rho_neg": (label.neg, bound.neg)}
    above = [name for name, (rate, most) in pairs.items() if most != UNINFORMED and rate.low > most.high]
    if not above:
        return ()
    return (("disagreement", f"{' and '.join(above)} came out above what the best bin leaves room for"),)


def no_anchor(counted: LabelRates, bound: LabelRates) -> Notes:
    """The flag ``no_anchor_suspected`` where the best bin, which needs sure rows, contradicts the trusted rows."""
    pairs = {"rho_pos": (counted.pos, bound.pos), "rho_neg": (counted.neg, bound.neg)}
    apart = [name for name, pair in pairs.items() if contradict(*pair)]
    if not apart:
        return ()
    note = f"the best bin's {' and '.join(apart)} contradicts the trusted rows: no row's label may be certain from x"
    return (("no_anchor_suspected", note),)


def _told(evidence: Evidence, j: int, label: LabelRates, notes: Notes) -> LabelRates:
    """A label with its doubts: those given, an interval too wide to be of use, or no noise in sight."""
    if _width(label) > WIDE:
        notes = (*notes, ("wide_interval", _remedy(label, float(shares(evidence.Y[:, [j]])[0]))))
    elif label.pos.low == label.neg.low == 0.0 and max(label.pos.value, label.neg.value) < 0.1:
        notes = (*notes, ("no_noise_detected", "both intervals reach down to 0: this may be no noise at all"))
    return label._replace(notes=(*label.notes, *notes))


def _width(label: LabelRates) -> float:
    return max(label.pos.high - label.pos.low, label.neg.high - label.neg.low)


def _remedy(label: LabelRates, observed: float) -> str:
    """Which rate is known badly, and how many trusted rows would mend it."""
    name, rate = max((("rho_pos", label.pos), ("rho_neg", label.neg)), key=lambda pair: pair[1].high - pair[1].low)
    return (
        f"{name} is only known to lie between {rate.low:.2f} and {rate.high:.2f}; about "
        f"{trusted_rows_needed(label.pos, label.neg, observed)} trusted rows, taken at random, would bring both rates "
        f"to +-{WANTED:g}"
    )


def trusted_rows_needed(pos: Rate, neg: Rate, observed: float) -> int:
    """Rows, taken at random, whose true labels bring both rates to an interval of +- 0.1 by counting alone."""
    values = np.array([pos.value]), np.array([neg.value])
    prior = float(np.clip(prior_from_rates(np.array([observed]), *values)[0], 0.01, 0.99))
    # A rate of 0 would need no rows: ask for those of a small one.
    needed = [rows_needed(min(max(rate.value, 0.05), 0.95), WANTED) for rate in (pos, neg)]
    return math.ceil(max(needed[0] / prior, needed[1] / (1 - prior)))


class GrowingEstimate:
    """``estimate_noise(X, Y_noisy, sides=sides, trusted=...)`` for the same labels and ever more trusted rows.

    Nearly all of its time goes into models of the noisy labels, in which trusted rows have no part: here they are
    fitted at the first call of :meth:`rates`, and kept. Parameters as of :func:`ccmn.estimate_noise`.

    Examples
    --------
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(400, 5, 2, strength=8, noise=PartialNoise([0.2, 0.5]), random_state=0)
    >>> growing = GrowingEstimate(task.X, task.Y_noisy, sides="partial")
    >>> before, after = growing.rates(), growing.rates(trusted=(range(100), task.Y[:100]))
    >>> bool(after.se_neg.mean() < before.se_neg.mean())
    True
    """

    def __init__(
        self, X: Any, Y_noisy: Labels, sides: str | Sequence[str] = "both", random_state: RandomState = 0
    ) -> None:
        self._evidence = read_evidence(X, Y_noisy, sides, None, None, random_state, None, None)
        self._names = label_names_of(Y_noisy)

    def rates(self, trusted: tuple[Any, Labels] | None = None) -> NoiseRates:
        """The rates by features, noisy labels and these trusted rows; doubts are in ``flags``, not in warnings."""
        known = None if trusted is None else read_trusted(trusted, *self._evidence.Y.shape)
        _ = self._evidence.surfaces  # fitted here, so that every later call finds them
        return rates_from(self._evidence.trusting(known), "auto", self._names)


FEW_ROWS = 100
"""Below this many rows a result is flagged."""

DECLARE = "Where labels were only added, or only lost, declare it with sides='partial' or 'missing'; else give"
TRUST = "a few dozen rows with true labels, taken at random, trusted=(rows, Y_true)."


@overload
def estimate_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    method: str = "auto",
    sides: str | Sequence[str] = "both",
    trusted: tuple[Any, Labels] | None = None,
    annotators: Any = None,
    random_state: RandomState = 0,
    *,
    pred_proba: Any = None,
    prevalence: Any = None,
    groups: None = None,
    clean_groups: Sequence[Any] = (),
) -> NoiseRates: ...


@overload
def estimate_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    method: str = "auto",
    sides: str | Sequence[str] = "both",
    trusted: tuple[Any, Labels] | None = None,
    annotators: Any = None,
    random_state: RandomState = 0,
    *,
    pred_proba: Any = None,
    prevalence: Any = None,
    groups: Sequence[Any],
    clean_groups: Sequence[Any] = (),
) -> GroupRates: ...


def estimate_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    method: str = "auto",
    sides: str | Sequence[str] = "both",
    trusted: tuple[Any, Labels] | None = None,
    annotators: Any = None,
    random_state: RandomState = 0,
    *,
    pred_proba: Any = None,
    prevalence: Any = None,
    groups: Sequence[Any] | None = None,
    clean_groups: Sequence[Any] = (),
) -> NoiseRates | GroupRates:
    """Noise rates of every label, from noisy labels and what else is at hand.

    Say what you know: declaring the side makes one-sided noise easy, and a few dozen trusted rows, taken at random, say
    more about two-sided noise than any number of untrusted ones.

    Parameters
    ----------
    X : array, DataFrame or CSR (n, d), optional
        Features, from which models of the noisy labels are fitted.
    Y_noisy : labels (n, q) in {0, 1}, NaN where not observed
        May be left out where ``annotators`` are given: the labels are then the mean votes.
    method : "auto", or a name in ``ESTIMATORS``
        "auto": annotators where there are votes; else one posterior per label from the cross-validated profile
        likelihood, trusted rows and known prevalence, whichever there are, checked against the best bin; rare labels
        lean on the others. What is doubtful is told in ``flags``.
    sides : "both", "partial" or "missing", or one of these per label
        "partial": labels were only added (candidate sets, rho_pos = 0); "missing": only lost (rho_neg = 0).
    trusted : (rows, Y_true), optional
        Numbers of rows whose true labels are known, and those labels. The rows should be a random sample: their
        share of true positives is evidence, too.
    annotators : array (n, a, q), optional
        Votes of a annotators in {0, 1}, NaN where one did not judge.
    random_state : int, Generator or None
    pred_proba : (n, q), optional
        Held-out probabilities of the noisy labels by a model of your own, in place of X. Never probabilities of rows
        the model was trained on: they hide the noise.
    prevalence : float or (q,), optional
        Known shares of true positives, NaN where not known.
    groups : n names, optional
        The source of every row (annotator, site, import batch): the rates of each are estimated, and the result is a
        ``GroupRates``. Groups of fewer than 100 rows are given the rates of all rows.
    clean_groups : names, optional
        Groups whose labels are right.

    Examples
    --------
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=PartialNoise([0.2, 0.5]), random_state=0)
    >>> rates = estimate_noise(task.X, task.Y_noisy, sides="partial")
    >>> bool(abs(rates.rho_neg - [0.2, 0.5]).max() < 0.1), rates.rho_pos.tolist()
    (True, [0.0, 0.0])
    """
    evidence = read_evidence(X, Y_noisy, sides, trusted, annotators, random_state, pred_proba, prevalence)
    names = label_names_of(Y_noisy)
    if annotators is None and any(side != "partial" for side in evidence.sides):
        only_removed = np.array([side == "missing" for side in evidence.sides])
        check_zeros_observed(evidence.Y, only_removed, names, None if evidence.trusted is None else evidence.trusted.Y)
    if groups is not None:
        return _by_group(evidence, method, names, groups, clean_groups)
    if len(clean_groups):
        raise ValueError("clean_groups says which of the groups are clean: give groups=, the group of every row, too")
    rates = rates_from(evidence, method, names)
    _warn(rates)
    return rates


def rates_from(evidence: Evidence, method: str, names: Sequence[str] | None) -> NoiseRates:
    """What a method makes of the evidence, doubts about the whole included."""
    labels = METHODS[method](evidence)
    settings = {"method": method, "seed": evidence.seed, "scores": _origin(evidence)}
    return gather(labels, evidence.Y, evidence.sides, settings, names, _overall(evidence, labels))


def _by_group(
    evidence: Evidence, method: str, names: Sequence[str] | None, groups: Sequence[Any], clean: Sequence[Any]
) -> GroupRates:
    """Every group by its own rows; small ones share one estimate from all rows that are not known to be right."""
    index = check_groups(groups, len(evidence.Y))
    known = [group.item() if isinstance(group, np.generic) else group for group in dict.fromkeys(groups)]
    found: dict[Any, NoiseRates] = {}
    shared: NoiseRates | None = None
    for number, (group, rows) in enumerate(rows_of(index, known, clean).items()):
        own = np.flatnonzero(index == number)
        if rows is None:
            right = ClassConditionalNoise(0.0, 0.0, n_labels=evidence.Y.shape[1], label_names=names)
            found[group] = NoiseRates.known(right, evidence.Y[own])
        elif own.size >= FEWEST_ROWS:
            found[group] = rates_from(of_rows(evidence, own), method, names)
        else:
            shared = shared or rates_from(of_rows(evidence, rows), method, names)
            note = f"{own.size} rows are too few for rates of their own: these are those of all rows together"
            found[group] = replace(shared, flags=(*shared.flags, Flag("few_rows", note)))
    return GroupRates(found)


ESTIMATORS: Registry[Estimator] = Registry(
    "noise rate estimator",
    {
        "profile": profile,
        "best_bin": best_bin,
        "anchor": anchor,
        "anchor_max": anchor_max,
        "anchor_quantile": anchor_quantile,
        "tightest": tightest,
        "confident_joint": confident_joint,
        "forward": forward,
        "correlations": correlations,
        "trusted": trusted_counts,
        "dawid_skene": dawid_skene,
        "known_prevalence": known_prevalence,
    },
)

METHODS: Registry[Estimator] = Registry("method", {"auto": auto, **ESTIMATORS})


def read_evidence(
    X: Any,
    Y_noisy: Labels | None,
    sides: str | Sequence[str],
    trusted: tuple[Any, Labels] | None,
    annotators: Any,
    random_state: RandomState,
    pred_proba: Any,
    prevalence: Any,
) -> Evidence:
    """Everything the user gave, checked."""
    if Y_noisy is None and annotators is None:
        raise ValueError("estimate_noise needs the noisy labels: estimate_noise(X, Y_noisy)")
    if X is not None and pred_proba is not None:
        raise ValueError("give X, from which scores are worked out, or pred_proba, scores of your own; not both")
    votes = None if annotators is None else check_votes(annotators)
    Y = mean_votes(annotators) if Y_noisy is None else check_label_matrix(to_dense_array(Y_noisy), "Y_noisy")
    n, q = Y.shape
    if votes is not None and (votes.shape[0], votes.shape[2]) != (n, q):
        raise ValueError(
            f"annotators must be ({n}, annotators, {q}), as many rows and labels as Y_noisy; got {votes.shape}"
        )
    return Evidence(
        Y=Y,
        sides=_sides(sides, q),
        X=None if X is None else _features(X, n),
        pred_proba=None if pred_proba is None else _probabilities(pred_proba, Y),
        trusted=None if trusted is None else read_trusted(trusted, n, q),
        annotators=votes,
        prevalence=None if prevalence is None else read_prevalence(prevalence, q),
        seed=int(as_generator(random_state).integers(2**31)),
    )


def mean_votes(annotators: Any) -> FloatArray:
    """The share of ones among the votes (n, a, q) on each entry, a soft label; NaN where there is none.

    >>> mean_votes([[[1, 0], [1, np.nan]]])
    array([[1., 0.]])
    """
    votes = check_votes(annotators)
    many = (~np.isnan(votes)).sum(1)
    return np.where(many > 0, np.nansum(votes, 1) / np.maximum(many, 1), np.nan)


def _sides(sides: str | Sequence[str], q: int) -> tuple[Side, ...]:
    declared = (sides,) * q if isinstance(sides, str) else tuple(sides)
    if len(declared) != q:
        raise ValueError(
            f"sides must be one of {', '.join(map(repr, SIDES))}, or one of them for each of the {q} labels"
        )
    return tuple(check_choice(side, "sides", SIDES) for side in declared)  # type: ignore[misc]


def _features(X: Any, n: int) -> Any:
    checked = check_array(X if is_sparse(X) else unwrap(X)[0], accept_sparse="csr", dtype=[np.float64, np.float32])
    if checked.shape[0] != n:
        raise ValueError(f"X and Y_noisy must have the same rows; got {checked.shape[0]} and {n}")
    return checked


def _probabilities(pred_proba: Any, Y: FloatArray) -> FloatArray:
    given = to_dense_array(pred_proba)
    check_matrix_pair(Y, given, ("Y_noisy", "pred_proba"))
    return check_probabilities(given, "pred_proba")


def read_trusted(trusted: tuple[Any, Labels], n: int, q: int) -> Trusted:
    """Trusted rows as the user gave them, checked against n rows of q labels."""
    rows, labels = check_trusted_rows(trusted, n)
    Y_true = check_label_matrix(to_dense_array(labels), "the labels of trusted")
    if Y_true.shape != (rows.size, q):
        raise ValueError(
            f"the labels of trusted must be {rows.size} rows of {q} labels, as many as rows are named; "
            f"got shape {Y_true.shape}"
        )
    return Trusted(rows, Y_true)


def _origin(evidence: Evidence) -> str | None:
    if evidence.pred_proba is not None:
        return "pred_proba"
    return None if evidence.X is None else "out of fold"


def _overall(evidence: Evidence, labels: Sequence[LabelRates]) -> list[Flag]:
    """Doubts about the result as a whole."""
    flags: list[Flag] = []
    n = len(evidence.Y)
    if evidence.was_fitted:
        flags += diagnose(evidence).flags
    if n < FEW_ROWS:
        flags.append(Flag("few_rows", f"{n} rows are very few to estimate noise from"))
    crowd = evidence.annotators is not None
    if evidence.trusted is None and not crowd and any(label.method.startswith("profile") for label in labels):
        note = "no trusted row: the rates rest on the posterior being logistic along some direction of the features"
        flags.append(Flag("assumes_shape", note))
    if any(label.kind == "upper bound" for label in labels):
        flags.append(
            Flag("upper_bound", "some rates are only bounded from above: there may be less noise than they say")
        )
    return flags


def _warn(rates: NoiseRates) -> None:
    """What a user should hear of even without looking at the flags."""
    bounded = [j for j, kind in enumerate(rates.kind) if kind == "upper bound"]
    if bounded:
        where = name_some(bounded, rates.label_names, rates.n_labels)
        warnings.warn(
            f"the rates of {where} are upper bounds: there may be less noise than they say. {_remedy(rates, bounded)}",
            stacklevel=3,
        )
    wide = rates.labels_with("wide_interval")
    if wide:
        where = name_some(wide, rates.label_names, rates.n_labels)
        warnings.warn(
            f"the rates of {where} are hardly known: their intervals are wider than {WIDE:g}. {_remedy(rates, wide)}",
            stacklevel=3,
        )
    contradicted = rates.labels_with("side_contradicted")
    if contradicted:
        where = name_some(contradicted, rates.label_names, rates.n_labels)
        warnings.warn(
            f"the trusted rows contradict the declared side for {where}: use sides='both' there", stacklevel=3
        )


def _remedy_estimate(rates: NoiseRates, labels: Sequence[int]) -> str:
    open_side = any(rates.sides[j] == "both" for j in labels)
    return f"{DECLARE if open_side else 'Give'} {TRUST}"


def diagnose_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    trusted: tuple[Any, Labels] | None = None,
    random_state: RandomState = 0,
    *,
    sides: str | Sequence[str] = "both",
) -> Diagnosis:
    """Is the noise class-conditional: do labels of one true class flip whatever x is?

    With trusted rows it is measured how well x tells the flipped ones from the others; without, how badly the best
    class-conditional explanation fits the noisy labels. Parameters as in :func:`estimate_noise`.
    """
    if X is None:
        raise ValueError("diagnose_noise needs the features X, to see whether they tell which labels were flipped")
    found = diagnose(read_evidence(X, Y_noisy, sides, trusted, None, random_state, None, None))
    names = label_names_of(Y_noisy)
    return replace(found, flags=tuple(flag.named(names) for flag in found.flags))
