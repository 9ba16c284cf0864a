"""Checks of the noise assumptions: class-conditional noise, confused labels and uncertain entries.

The search for confused labels compares the noisy labels with their out-of-fold log-odds and needs no trusted rows. It
survives labels that imply or exclude each other and rows without labels. ``benchmarks/diagnosis.py`` measures false
alarms and power.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import scipy.stats
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ccmn._containers import to_dense_array
from ccmn._random import RandomState
from ccmn._validation import FloatArray, check_label_matrix
from ccmn.estimation.evidence import Evidence, Trusted, read_evidence
from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL, Flag, name_flags

MIN_FLIPS = 10
"""Smallest number of flipped and of unflipped trusted rows for which an AUC is computed."""
N_COMPONENTS = 10
"""Principal components of the features that are used to predict flips."""
MAX_HARMLESS_EXCESS = 0.05
"""An AUC whose interval starts below 1/2 plus this value is not flagged: a weak dependence does little harm."""
Z_CONFIDENCE = float(scipy.stats.norm.isf((1 - CONFIDENCE_LEVEL) / 2))
"""Half width of a normal interval, in standard errors."""
MIN_COMPLETE_ROWS = 500
"""Confused labels are not searched in fewer rows with all labels observed: the limits were selected on larger data."""
MIN_CONFUSABLE = 40
"""Positives from which on a label is tested for confusions, and smallest number of its top rows."""
MIN_EXPLAINED = 0.6
"""Smallest share of the absent labels that the other label explains; true labels that exclude each other reach 0.7."""
MIN_MOVED, MIN_Z_CONFUSED = 0.15, 6.0
"""Smallest lower bound of the share of moved labels, and smallest difference of the shares of the other label in
standard errors, for a single pair of labels; they account for q (q - 1) tests."""
MIN_MOVED_OF_MANY, MIN_Z_OF_MANY = 0.07, 3.5
"""The same limits if many labels are confused at once: three, and one of eight labels."""
N_EM_STEPS = 200
"""Steps of the EM algorithm for the share of positives among uncertain entries."""


class AUC(NamedTuple):
    """Area under the ROC curve with its 90 % interval; 1/2 means that the features do not predict flips.

    ``pairs`` of a flipped and an unflipped row determine it; without any, the value is NaN.
    """

    value: float = math.nan
    se: float = math.nan
    pairs: int = 0

    @property
    def low(self) -> float:
        """Lower end of the interval, 0 if the area is unknown."""
        return max(0.0, self.value - Z_CONFIDENCE * self.se)

    @property
    def high(self) -> float:
        """Upper end of the interval, 1 if the area is unknown."""
        return min(1.0, self.value + Z_CONFIDENCE * self.se)


@dataclass(frozen=True)
class Diagnosis:
    """Result of :func:`ccmn.diagnose_noise`.

    Parameters
    ----------
    removed, added : tuple of AUC, one per label
        How well the features predict which true labels were removed and which false labels were added, in
        cross-validation on the trusted rows. Unknown if there are fewer than ten rows of either kind.
    pooled : AUC
        Mean over all labels, weighted by the number of pairs.
    flags : tuple of Flag
        "not_class_conditional" (from trusted rows) and "confused_labels" (found without trusted rows).

    Examples
    --------
    >>> import ccmn
    >>> from ccmn.data import make_noisy_multilabel
    >>> task = make_noisy_multilabel(300, 5, 2, noise=ccmn.PartialNoise([0.2, 0.4]), random_state=0)
    >>> ccmn.diagnose_noise(task.X, task.Y_noisy).flags
    ()
    """

    removed: tuple[AUC, ...]
    added: tuple[AUC, ...]
    pooled: AUC
    flags: tuple[Flag, ...]


def diagnose(evidence: Evidence) -> Diagnosis:
    """Check how well flips on trusted rows are predicted, if there are any, and search for confused labels.

    Labels are flagged with a Bonferroni correction.
    """
    f = evidence.log_odds
    removed = added = (AUC(),) * f.shape[1]
    if evidence.trusted is not None:
        removed, added = (flip_aucs(evidence, f, evidence.trusted, true) for true in (1, 0))
    pooled, flags = pool_aucs([*removed, *added]), confused_labels(evidence.Y, f, evidence.names)
    tests = max(1, sum(auc.pairs > 0 for auc in (*removed, *added)))
    cases: list[tuple[str, int | None, AUC, int]] = [("flipped", None, pooled, 1)]
    for what, aucs in (("removed", removed), ("added", added)):
        cases += [(what, j, auc, tests) for j, auc in enumerate(aucs)]
    for what, label, auc, count in cases:
        if auc.value - scipy.stats.norm.isf((1 - CONFIDENCE_LEVEL) / 2 / count) * auc.se > 0.5 + MAX_HARMLESS_EXCESS:
            interval = f"AUC {auc.value:.2f}, {auc.low:.2f} to {auc.high:.2f}"
            note = (
                f"The features predict which labels were {what} ({interval}): rates per label do not describe the "
                "noise, and corrected metrics are biased. Estimate rates per source (groups=) or train on more trusted "
                "rows; the Hamming loss with the square surrogate is affected less than the ranking loss."
            )
            flags.append(Flag("not_class_conditional", note, label))
    return Diagnosis(removed, added, pooled, name_flags(flags, evidence.names))


def flip_aucs(evidence: Evidence, scores: FloatArray, trusted: Trusted, true: int) -> tuple[AUC, ...]:
    """Return for every label how well flips among the trusted rows of one true class are predicted.

    The predictions are out-of-fold log-odds of a logistic regression on the score of the label and ten principal
    components of the features.
    """
    features = (scores if evidence.X is None else evidence.X)[trusted.rows]
    svd = TruncatedSVD(min(N_COMPONENTS, *features.shape), random_state=evidence.seed)
    components = make_pipeline(StandardScaler(with_mean=False), svd).fit_transform(features)
    folds = StratifiedKFold(shuffle=True, random_state=evidence.seed)
    noisy, scores = evidence.Y[trusted.rows], scores[trusted.rows]
    result = []
    for j in range(noisy.shape[1]):
        rows = np.flatnonzero((trusted.Y[:, j] == true) & ~np.isnan(noisy[:, j]))
        flipped = noisy[rows, j] != true
        if min(flipped.sum(), (~flipped).sum()) < MIN_FLIPS:
            result.append(AUC())
            continue
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1))
        columns = np.column_stack([scores[rows, j], components[rows]])
        result.append(auc(cross_val_predict(model, columns, flipped, cv=folds, method="decision_function"), flipped))
    return tuple(result)


def auc(scores: FloatArray, flipped: NDArray[np.bool_]) -> AUC:
    r"""Return the area under the ROC curve with its standard error (Hanley and McNeil, Radiology 143(1), 1982).

    .. math:: s^2 = \frac{A (1 - A) + (m - 1)(\frac{A}{2 - A} - A^2) + (n - 1)(\frac{2 A^2}{1 + A} - A^2)}{m n}
    """
    m, n, a = int(flipped.sum()), int((~flipped).sum()), float(roc_auc_score(flipped, scores))
    variance = a * (1 - a) + (m - 1) * (a / (2 - a) - a**2) + (n - 1) * (2 * a**2 / (1 + a) - a**2)
    # At 0 and 1 the formula gives no error; 1/4 is the largest variance of a single pair.
    return AUC(a, math.sqrt(max(variance, 0.25) / (m * n)), m * n)


def pool_aucs(aucs: Sequence[AUC]) -> AUC:
    """Return the mean weighted by pairs, with the standard error for independent labels."""
    known = [auc for auc in aucs if auc.pairs]
    if not known:
        return AUC()
    value, se, pairs = np.array(known).T
    total = pairs.sum()
    return AUC(float(pairs @ value / total), float(np.linalg.norm(pairs * se) / total), int(total))


class Confusion(NamedTuple):
    """Label that is replaced by another one in a share of the rows, with a lower bound two standard errors below it.

    z is the difference of the shares of the other label among rows without and with the label, in standard errors.
    """

    label: int
    other: int
    moved: float
    low: float
    z: float


def confused_labels(Y: FloatArray, logits: FloatArray, names: Sequence[str] | None = None) -> list[Flag]:
    """Flag pairs of labels (n, q) if one of them was given instead of the other, from their out-of-fold log-odds.

    Rows with NaN are left out.
    """
    complete = ~np.isnan(Y).any(1)
    if complete.sum() < MIN_COMPLETE_ROWS:
        return []
    found = confusions(Y[complete], logits[complete])
    if len({pair.label for pair in found}) < max(3, Y.shape[1] / 8):
        found = [pair for pair in found if pair.z >= MIN_Z_CONFUSED and pair.low >= MIN_MOVED]
    flags = []
    for pair in sorted(found, key=lambda pair: -pair.z):
        other = pair.other if names is None else repr(names[pair.other])
        note = (
            f"In about {pair.moved:.0%} of the rows that clearly indicate this label, label {other} is given "
            "instead: the two labels seem to be confused. Verify rows in which features and label disagree, or merge "
            "both labels; rates per label do not describe confusions."
        )
        flags.append(Flag("confused_labels", note, pair.label))
    return flags


def confusions(Y: FloatArray, logits: FloatArray) -> list[Confusion]:
    r"""Return the pairs (j, k) for which label k replaces label j where the features indicate j most clearly.

    Let a and c be the shares of label k among the top rows of label j in which j is absent and present. Label k
    explains the share :math:`\kappa = (a - c) / (1 - c)` of the absent labels. Labels that exclude each other have a
    large :math:`\kappa` as well, but the clearer the features are, the fewer of them are absent. The share of moved
    labels is therefore computed in the first of the top rows: with the share m of rows in which j is absent,

    .. math:: \frac{m \kappa}{m \kappa + (1 - m)(1 - c)} .
    """
    n, q = Y.shape
    found = []
    for j in range(q):
        order = np.argsort(-logits[:, j], kind="stable")
        positives = Y[:, j].sum()
        # Added labels are as frequent among the lowest scores as elsewhere, and the features do not indicate them.
        indicated = positives - n * Y[order[-(n // 10) :], j].mean()
        if positives < MIN_CONFUSABLE or indicated < MIN_CONFUSABLE / 2:
            continue
        size = int(min(max(positives / 2, MIN_CONFUSABLE), n / 4))
        top = Y[order[:size]]
        present = top[:, j] == 1
        n_present = present.sum()
        if min(n_present, size - n_present) < 8:
            continue
        given_absent, given_present, pooled = top[~present].mean(0), top[present].mean(0), top.mean(0)
        error = np.sqrt(np.maximum(pooled * (1 - pooled), 1 / size) * (1 / n_present + 1 / (size - n_present)))
        z = (given_absent - given_present) / error
        explained = (given_absent - given_present) / np.maximum(1 - given_present, 1e-9)
        clearest = top[: int(max(min(indicated / 4, size / 2), MIN_CONFUSABLE / 2)), j]
        absent = 1 - clearest.mean()
        for k in np.flatnonzero((z >= MIN_Z_OF_MANY) & (explained >= MIN_EXPLAINED)):
            replaced, kept = absent * explained[k], (1 - absent) * (1 - given_present[k])
            moved = replaced / (replaced + kept)
            low = moved - 2 * np.sqrt(max(moved * (1 - moved), 0.01) / (len(clearest) * (replaced + kept)))
            if k != j and low >= MIN_MOVED_OF_MANY:
                found.append(Confusion(j, int(k), float(moved), float(low), float(z[k])))
    return found


@dataclass(frozen=True, eq=False)
class UncertainLabels:
    """Labels with resolved uncertain entries, as returned by :func:`ccmn.estimation.resolve_uncertain`.

    ``Y`` (n, q) are labels in {0, 1}: uncertain entries are NaN unless their probability is beyond the requested
    confidence. ``proba`` (n, q) are soft labels: the given labels, and P(label = 1) of uncertain entries. ``share``
    (q,) is the estimated share of positives among the uncertain entries of each label, NaN if there are none, with
    intervals ``ci`` (q, 2) of nominal coverage 90 %; ``counts`` (q,) is the number of uncertain entries.
    """

    Y: FloatArray
    proba: FloatArray
    share: FloatArray
    ci: FloatArray
    counts: NDArray[np.int64]


def resolve_uncertain(
    X: Any = None,
    Y: Any = None,
    *,
    pred_proba: Any = None,
    uncertain: float = -1,
    confidence: float = 0.9,
    random_state: RandomState = 0,
) -> UncertainLabels:
    r"""Estimate what a third label value such as "uncertain" means, separately for every label.

    Uncertain entries of a label are assumed to be a mixture of positives and negatives whose features are distributed
    like those of the given positives and negatives. The share of positives m maximizes

    .. math:: \sum_i \log(m\, r_i + 1 - m), \qquad r_i = \frac{p_i}{1 - p_i} \Big/ \frac{\pi}{1 - \pi},

    over the uncertain entries, by the EM algorithm for changed priors [1]_. p are calibrated out-of-fold probabilities
    and :math:`\pi` is the share of positives among the given labels. The label of an entry is positive with
    probability :math:`m r_i / (m r_i + 1 - m)`.

    The result concerns the label that the annotator would have given. Errors of the given labels are left to the noise
    model.

    Parameters
    ----------
    X : array, DataFrame or CSR matrix of shape (n, d), default=None
        Features. A linear model of the given labels is fitted to them.
    Y : array of shape (n, q)
        Labels: 0, 1, the value ``uncertain``, or NaN where not observed.
    pred_proba : array of shape (n, q), default=None
        Out-of-fold probabilities of a model that was trained on the given labels only, instead of ``X``.
    uncertain : float, default=-1
        Value of uncertain entries, as in CheXpert [2]_.
    confidence : float, default=0.9
        Uncertain entries become 1 if their probability is at least this value, and 0 if it is at most
        ``1 - confidence``.
    random_state : int, Generator or None, default=0
        Seed of cross-validation.

    Returns
    -------
    UncertainLabels
        Labels with NaN where an entry remains uncertain, soft labels, and the share of positives of each label.

    Raises
    ------
    ValueError
        If an argument is invalid.

    References
    ----------
    .. [1] M. Saerens, P. Latinne and C. Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori
       Probabilities: A Simple Procedure", Neural Computation 14(1), 2002.
    .. [2] J. Irvin et al., "CheXpert: A Large Chest Radiograph Dataset with Uncertainty Labels and Expert Comparison",
       AAAI 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.estimation import resolve_uncertain
    >>> from ccmn.data import make_noisy_multilabel
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, random_state=0)
    >>> rng = np.random.default_rng(0)
    >>> Y = np.where(rng.random(task.Y.shape) < np.where(task.Y == 1, 0.4, 0.1), -1, task.Y.astype(int))
    >>> found = resolve_uncertain(task.X, Y)
    >>> true_share = [task.Y[Y[:, j] == -1, j].mean() for j in range(2)]
    >>> bool(abs(found.share - true_share).max() < 0.05)
    True
    """
    if Y is None or (X is None) == (pred_proba is None):
        raise ValueError("resolve_uncertain requires labels Y, and either features X or probabilities pred_proba")
    if not 0.5 < confidence <= 1:
        raise ValueError(f"confidence must be in (0.5, 1]; got {confidence!r}")
    if uncertain in (0, 1) or math.isnan(uncertain):
        raise ValueError(f"uncertain must be a value other than 0, 1 and NaN; got {uncertain!r}")
    values = to_dense_array(Y).astype(np.float64)
    unclear = values == uncertain
    labels = check_label_matrix(np.where(unclear, np.nan, values), "Y")
    evidence = read_evidence(X, labels, random_state=random_state, pred_proba=pred_proba)
    scores = scipy.special.expit(evidence.log_odds)
    proba, q = labels.copy(), labels.shape[1]
    share, ci = np.full(q, np.nan), np.full((q, 2), np.nan)
    for j in np.flatnonzero(unclear.any(0)):
        ratio = _likelihood_ratio(scores[:, j], labels[:, j])[unclear[:, j]]
        share[j], ci[j] = mixture_share(ratio)
        proba[unclear[:, j], j] = share[j] * ratio / (share[j] * ratio + 1 - share[j])
    clear = (proba >= confidence) | (proba <= 1 - confidence)
    resolved = np.where(unclear, np.where(clear, np.round(proba), np.nan), labels)
    return UncertainLabels(resolved, proba, share, ci, unclear.sum(0).astype(np.int64))


def _likelihood_ratio(scores: FloatArray, labels: FloatArray) -> FloatArray:
    """Return P(score | given 1) / P(score | given 0) of all rows, by isotonic regression on the given labels."""
    given = ~np.isnan(labels)
    ones, zeros = float((labels[given] == 1).sum()), float((labels[given] == 0).sum())
    if min(ones, zeros) == 0:
        return np.ones(len(scores))  # the given labels are all equal and say nothing about the others
    smallest = 0.5 / (ones + zeros)
    model = IsotonicRegression(y_min=smallest, y_max=1 - smallest, out_of_bounds="clip")
    p = model.fit(scores[given], labels[given]).predict(scores)
    return np.asarray(p / (1 - p) * zeros / ones)


def mixture_share(ratio: FloatArray) -> tuple[float, FloatArray]:
    """Return the share m that maximizes the sum of log(m r + 1 - m), and its interval from the observed information."""
    share = 0.5
    for _ in range(N_EM_STEPS):
        share = float(np.mean(share * ratio / (share * ratio + 1 - share)))
    information = float(np.square((ratio - 1) / (share * ratio + 1 - share)).sum())
    half_width = Z_CONFIDENCE / math.sqrt(information) if information > 0 else 1.0
    return share, np.clip([share - half_width, share + half_width], 0, 1)
