"""estimate_noise: noise rates from noisy labels, by whatever there is to go by."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_array

from ccmn.catalogue import Catalogue
from ccmn.data.containers import Labels, is_sparse, label_names_of, to_dense_array, unwrap
from ccmn.estimation.anchor import anchor
from ccmn.estimation.best_bin import best_bin
from ccmn.estimation.evidence import Estimator, Evidence, Trusted
from ccmn.estimation.pooling import pool
from ccmn.estimation.rates import SIDES, Flag, LabelRates, NoiseRates, Side, gather
from ccmn.estimation.tightest import tightest
from ccmn.estimation.trusted import combine, doubts, enough_counts, trusted_counts
from ccmn.seeding import RandomState, as_generator
from ccmn.validation import (
    FloatArray,
    check_choice,
    check_label_matrix,
    check_matrix_pair,
    check_probabilities,
    check_trusted_rows,
    name_some,
)

FEW_ROWS = 100
"""Below this many rows a result is flagged."""


def estimate_noise(
    X: Any = None,
    Y_noisy: Labels | None = None,
    method: str = "auto",
    sides: str | Sequence[str] = "both",
    trusted: tuple[Any, Labels] | None = None,
    pred_proba: Any = None,
    random_state: RandomState = 0,
) -> NoiseRates:
    """Noise rates of every label, from noisy labels and what else is at hand.

    Say what you know: declaring the side makes one-sided noise easy, and a few dozen trusted rows say more about
    two-sided noise than any number of untrusted ones. Without either, what comes out is an upper bound.

    Parameters
    ----------
    X : array, DataFrame or CSR (n, d), optional
        Features, from which held-out scores are worked out.
    Y_noisy : labels (n, q) in {0, 1}, NaN where not observed
    method : "auto", or a name in ``ESTIMATORS``
        "auto": trusted rows if given (alone where a label has 30 of each class, else combined with the rest); the
        best bin where labels were only added; else the lower of best bin and counted anchors, with a warning that
        these are upper bounds. Rare labels lean on the others.
    sides : "both", "partial" or "missing", or one of these per label
        "partial": labels were only added (candidate sets, rho_pos = 0); "missing": only lost (rho_neg = 0).
    trusted : (rows, Y_true), optional
        Numbers of rows whose true labels are known, and those labels.
    pred_proba : (n, q), optional
        Held-out probabilities of the noisy labels by a model of your own, in place of X. Never probabilities of rows
        the model was trained on: they hide the noise.
    random_state : int, Generator or None

    Examples
    --------
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=PartialNoise([0.2, 0.5]), random_state=0)
    >>> rates = estimate_noise(task.X, task.Y_noisy, sides="partial")
    >>> bool(abs(rates.rho_neg - [0.2, 0.5]).max() < 0.1), rates.rho_pos.tolist()
    (True, [0.0, 0.0])
    """
    evidence = _evidence(X, Y_noisy, sides, trusted, pred_proba, random_state)
    labels = METHODS[method](evidence)
    settings = {"method": method, "seed": evidence.seed, "scores": _origin(evidence)}
    flags = _overall(evidence, labels)
    rates = gather(labels, evidence.Y, evidence.sides, settings, label_names_of(Y_noisy), flags)
    _warn(rates)
    return rates


def auto(evidence: Evidence) -> list[LabelRates]:
    """The best there is for every label: counts, the best bin, the tightest bound, or counts and one combined."""
    if evidence.trusted is None:
        return _label_free(evidence)
    counted = trusted_counts(evidence)
    if not evidence.has_scores:
        return counted
    return [
        c._replace(notes=(*c.notes, *doubts(c, f))) if enough_counts(evidence, j) else combine(c, f)
        for j, (c, f) in enumerate(zip(counted, _label_free(evidence)))
    ]


def _label_free(evidence: Evidence) -> list[LabelRates]:
    """Without trusted rows, side by side: what was declared alike is estimated and pooled alike."""
    chosen = {side: BY_SIDE[side](evidence) for side in set(evidence.sides)}
    rarer = np.minimum((evidence.Y == 1).sum(0), (evidence.Y == 0).sum(0))
    result: dict[int, LabelRates] = {}
    for side, estimates in chosen.items():
        alike = [j for j, declared in enumerate(evidence.sides) if declared == side]
        result |= dict(zip(alike, pool([estimates[j] for j in alike], rarer[alike])))
    return [result[j] for j in range(len(result))]


BY_SIDE: dict[Side, Estimator] = {"both": tightest, "partial": best_bin, "missing": tightest}
"""What "auto" does without trusted rows. Nearly every label has rows that are surely negative, so that added labels
are seen for what they are; few have rows that are surely positive, so that lost ones can only be bounded."""

ESTIMATORS: Catalogue[Estimator] = Catalogue(
    "noise rate estimator", {"best_bin": best_bin, "anchor": anchor, "tightest": tightest, "trusted": trusted_counts}
)

METHODS: Catalogue[Estimator] = Catalogue("method", {"auto": auto, **ESTIMATORS})


def _evidence(
    X: Any,
    Y_noisy: Labels | None,
    sides: str | Sequence[str],
    trusted: tuple[Any, Labels] | None,
    pred_proba: Any,
    random_state: RandomState,
) -> Evidence:
    """Everything the user gave, checked."""
    if Y_noisy is None:
        raise ValueError("estimate_noise needs the noisy labels: estimate_noise(X, Y_noisy)")
    if X is not None and pred_proba is not None:
        raise ValueError("give X, from which scores are worked out, or pred_proba, scores of your own; not both")
    Y = check_label_matrix(to_dense_array(Y_noisy), "Y_noisy")
    n, q = Y.shape
    return Evidence(
        Y=Y,
        sides=_sides(sides, q),
        X=None if X is None else _features(X, n),
        pred_proba=None if pred_proba is None else _probabilities(pred_proba, Y),
        trusted=None if trusted is None else _trusted(trusted, n, q),
        seed=int(as_generator(random_state).integers(2**31)),
    )


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


def _trusted(trusted: tuple[Any, Labels], n: int, q: int) -> Trusted:
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
    return None if evidence.X is None else "linear, out of fold"


def _overall(evidence: Evidence, labels: Sequence[LabelRates]) -> list[Flag]:
    """Doubts about the result as a whole."""
    flags = []
    n = len(evidence.Y)
    if n < FEW_ROWS:
        flags.append(Flag("few_rows", f"{n} rows are very few to estimate noise from"))
    if any(label.kind == "upper bound" for label in labels):
        flags.append(
            Flag("upper_bound", "some rates are only bounded from above: there may be less noise than they say")
        )
    return flags


def _warn(rates: NoiseRates) -> None:
    bounded = [j for j, kind in enumerate(rates.kind) if kind == "upper bound"]
    if bounded:
        where = name_some(bounded, rates.label_names, rates.n_labels)
        warnings.warn(
            f"the rates of {where} are upper bounds: there may be less noise than they say. Where labels were only "
            "added, declare it with sides='partial'; else give a few dozen rows with true labels, "
            "trusted=(rows, Y_true).",
            stacklevel=3,
        )
    contradicted = [flag.label for flag in rates.flags if flag.code == "side_contradicted" and flag.label is not None]
    if contradicted:
        where = name_some(contradicted, rates.label_names, rates.n_labels)
        warnings.warn(
            f"the trusted rows contradict the declared side for {where}: use sides='both' there", stacklevel=3
        )
