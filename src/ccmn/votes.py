"""Labels from several annotators: inference of true labels from votes, and the next votes to collect.

:func:`infer_labels` calibrates the probabilities of machines against the votes of people, and fits the model of
:mod:`ccmn.estimation.dawid_skene` to all votes. With features, out-of-fold log-odds of the posterior by the library's
default model replace the prevalence as prior, and the model is fitted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special
from numpy.typing import NDArray
from sklearn.utils import check_array

from ccmn._containers import is_dataframe, is_sparse, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_count
from ccmn.estimation.dawid_skene import (
    PRIOR_VARIANCE,
    VoteDesign,
    VoteModel,
    calibrate_machines,
    error_rates,
    fit_votes,
)
from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL
from ccmn.noise import ClassConditionalNoise
from ccmn.training.default_model import NoisyLabelModel
from ccmn.vote_table import VoteTable

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["InferredLabels", "VoteTable", "infer_labels", "next_votes"]

LABEL_THRESHOLD = 0.45
"""Probability from which a label is given. Few votes understate rare labels: at 1/2, micro-F1 is .006 below that of the
majority vote on German emotions with five votes per row; at .45 it is above, with the same Hamming loss."""
MIN_ROWS_FOR_CLASSIFIER = 50
"""With fewer rows with votes, features are not used."""
N_SWEEPS, N_BURN_IN = 300, 30
"""Kept and discarded sweeps of the Gibbs sampler."""
TIE_WEIGHT = 1e-3
"""Weight of the variance of a label in its gain, which matters only where two votes cannot change the decision."""


@dataclass(frozen=True, eq=False, repr=False)
class InferredLabels:
    """True labels inferred from votes, with the error rates of the annotators.

    Parameters
    ----------
    votes : VoteTable
        The votes.
    proba : array of shape (n, q)
        Probability that each label is true: that most annotators would give it.
    rho_pos, rho_neg : array of shape (a, q)
        False-negative rates P(vote 0 | true 1) and false-positive rates P(vote 1 | true 0) of every annotator, shrunk
        where an annotator has few votes. Rates of an adversary sum to more than 1.
    model : VoteModel
        The fitted model.
    calibrated : VoteTable
        The votes with calibrated probabilities of machines.
    seed : int
        Seed of the sampler of the intervals.

    Examples
    --------
    >>> import numpy as np
    >>> import ccmn
    >>> votes = np.array([[[1], [1], [0]], [[0], [0], [0]], [[1], [1], [1]], [[0], [0], [1]]])
    >>> inferred = ccmn.infer_labels(votes)
    >>> inferred.labels.ravel(), inferred.rho_pos.shape, inferred.ci_pos.shape
    (array([1, 0, 1, 0]), (3, 1), (3, 1, 2))
    """

    votes: VoteTable
    proba: FloatArray
    rho_pos: FloatArray
    rho_neg: FloatArray
    model: VoteModel
    calibrated: VoteTable
    seed: int

    @property
    def labels(self) -> NDArray[np.int64]:
        """Aggregated labels (n, q): 1 where the probability is at least 0.45."""
        return (self.proba >= LABEL_THRESHOLD).astype(np.int64)

    @property
    def noise(self) -> ClassConditionalNoise:
        """Noise model of the aggregated labels, from the probabilities of the rows with votes."""
        labels, voted, names = self.labels, self.votes.count() > 0, self.votes.label_names
        true, absent = self.proba * voted, (1 - self.proba) * voted
        rho_pos = (true * (1 - labels)).sum(0) / np.maximum(true.sum(0), 1)
        rho_neg = (absent * labels).sum(0) / np.maximum(absent.sum(0), 1)
        return ClassConditionalNoise(rho_pos, rho_neg, label_names=None if names is None else list(map(str, names)))

    @cached_property
    def intervals(self) -> tuple[FloatArray, FloatArray]:
        """90 % credible intervals (a, q, 2) of ``rho_pos`` and ``rho_neg``, computed when they are first read."""
        return sample_intervals(self.calibrated, self.model, np.random.default_rng(self.seed))

    @property
    def ci_pos(self) -> FloatArray:
        """90 % credible intervals (a, q, 2) of ``rho_pos``."""
        return self.intervals[0]

    @property
    def ci_neg(self) -> FloatArray:
        """90 % credible intervals (a, q, 2) of ``rho_neg``."""
        return self.intervals[1]

    @property
    def annotators(self) -> DataFrame:
        """One line per annotator and label.

        The columns are annotator, label, votes, share_positive (how often the annotator assigns the label), agreement
        (expected share of votes that equal the true label), and both rates with their intervals.
        """
        from pandas import DataFrame

        _, a, q = self.votes.shape
        pair, value, mu = self.votes.pair, self.votes.value, self.proba.ravel()[self.votes.cell]
        count = np.bincount(pair, minlength=a * q)
        known = np.where(count > 0, count, np.nan)
        columns = {
            "annotator": np.repeat(np.array(self.votes.annotator_names or range(a), dtype=object), q),
            "label": np.tile(np.array(self.votes.label_names or range(q), dtype=object), a),
            "votes": count,
            "share_positive": np.bincount(pair, value, a * q) / known,
            "agreement": np.bincount(pair, mu * value + (1 - mu) * (1 - value), a * q) / known,
        }
        for name, rate, interval in (("pos", self.rho_pos, self.ci_pos), ("neg", self.rho_neg, self.ci_neg)):
            columns[f"rho_{name}"] = rate.ravel()
            columns[f"rho_{name}_low"], columns[f"rho_{name}_high"] = interval.reshape(-1, 2).T
        return DataFrame(columns)

    def __repr__(self) -> str:
        n, a, q = self.votes.shape
        return f"InferredLabels(n={n}, annotators={a}, q={q}, {self.votes.value.size} votes)"


def infer_labels(votes: Any, X: Any = None, random_state: RandomState = 0) -> InferredLabels:
    """Infer the true labels and the error rates of annotators from votes, and optionally from features.

    A label is true if most annotators would give it. Every annotator has two error rates per label, and without
    evidence that annotators differ, the majority decides. With features, a classifier that was not trained on the row
    gives the prior probability of its labels. The model extends that of Dawid and Skene [1]_ by difficult rows.

    Parameters
    ----------
    votes : array, DataFrame, sparse array, sequence of sparse matrices, or VoteTable
        An array of shape (n, a, q) with NaN where an annotator did not vote; a long table with the columns row,
        annotator, label and (optional) value; or a sparse array (n, a, q), or one sparse matrix (n, a) per label,
        whose stored entries are votes. In a long table without values every line is an assigned label; other labels
        of a row that the annotator has labeled are votes of 0. Votes between 0 and 1 are probabilities of a machine,
        which are calibrated.
    X : array, DataFrame or CSR matrix of shape (n, d), default=None
        Features. Rows of a long table are row numbers, or values of the index of a DataFrame that has one.
    random_state : int, Generator or None, default=0
        Seed of folds and of the Gibbs sampler.

    Returns
    -------
    InferredLabels
        Probabilities of the true labels, rates of the annotators with intervals, and noise of the aggregated labels.

    See Also
    --------
    ccmn.votes.next_votes : Rank the labels for which another vote helps most.

    References
    ----------
    .. [1] A. P. Dawid and A. M. Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm",
       Applied Statistics 28(1), 1979.

    Examples
    --------
    >>> import numpy as np
    >>> import ccmn
    >>> from ccmn.data import make_noisy_multilabel
    >>> task = make_noisy_multilabel(500, 5, 2, random_state=0)
    >>> noises = [ccmn.ClassConditionalNoise(rho, 0.1, n_labels=2) for rho in (0.1, 0.2, 0.6)]
    >>> votes = np.stack([noise.corrupt(task.Y, random_state=k) for k, noise in enumerate(noises)], axis=1)
    >>> inferred = ccmn.infer_labels(votes, task.X)
    >>> inferred.proba.shape, inferred.rho_pos.mean(1).argsort()
    ((500, 2), array([0, 1, 2]))
    """
    seed = int(as_generator(random_state).integers(2**31))
    n_rows = row_ids = None
    if X is not None:
        row_ids = list(X.index) if is_dataframe(X) and type(X.index).__name__ != "RangeIndex" else None
        X = check_array(X if is_sparse(X) else unwrap(X)[0], accept_sparse="csr", dtype=[np.float64, np.float32])
        n_rows = X.shape[0]
    table = VoteTable.read(votes, n_rows, row_ids)
    calibrated = calibrate_machines(table)
    model = fit_votes(calibrated)
    voted = table.count() > 0
    if X is not None and voted.any(1).sum() >= MIN_ROWS_FOR_CLASSIFIER:
        classifier = NoisyLabelModel(seed).fit(X, np.where(voted, model.posterior, np.nan))
        model = fit_votes(calibrated, classifier.out_of_fold_log_odds(X))
    rho_pos, rho_neg = error_rates(model.shares, model.skills)
    return InferredLabels(table, model.posterior, rho_pos, rho_neg, model, calibrated, seed)


# -- Uncertainty


def sample_intervals(table: VoteTable, model: VoteModel, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return 90 % intervals (a, q, 2) of both rates of every annotator, by Gibbs sampling of levels, shares and skills.

    Skills are sampled from the normal approximation of their posterior given the levels. The prior of a classifier and
    the calibration of machines are kept fixed.
    """
    design = VoteDesign(table)
    shares, skills = model.shares, model.skills.reshape(-1, 2)[design.pairs]
    means = design.annotator_means(skills)
    first, second = np.zeros((2, 2, *model.skills.shape[:2]))
    mode = skills
    for sweep in range(N_BURN_IN + N_SWEEPS):
        cumulated = design.levels(shares, skills, model.prior).cumsum(1)
        drawn = rng.random((len(cumulated), 1)) * cumulated[:, -1:]
        levels = np.diff(drawn <= cumulated, axis=1, prepend=False).astype(np.float32)
        shares = rng.gamma(design.count_levels(levels))
        shares /= shares.sum(1, keepdims=True)
        mode, covariance = design.update_skills(levels, mode, means)
        noise = rng.standard_normal((2, len(mode))).T[..., None]
        skills = design.center(mode + (np.linalg.cholesky(covariance) @ noise)[..., 0])
        mode = design.center(mode)
        labels = np.bincount(design.pairs // design.q, minlength=design.a)[:, None] + 1
        spread = rng.standard_normal((design.a, 2)) * np.sqrt(PRIOR_VARIANCE / labels)
        means = design.annotator_means(skills) + spread
        if sweep >= N_BURN_IN:
            rates = np.stack(error_rates(shares, design.all_skills(skills, means)))
            first += rates / N_SWEEPS
            second += rates**2 / N_SWEEPS
    variance = np.maximum(second - first**2, 1e-12)
    size = np.maximum(first * (1 - first) / variance - 1, 1e-3)
    tails = (1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2
    ends = [scipy.special.betaincinv(size * first, size * (1 - first), tail) for tail in tails]
    pos_interval, neg_interval = np.stack(ends, -1)
    return pos_interval, neg_interval


def next_votes(inferred: InferredLabels, n_votes: int = 100, *, annotator: Any = None) -> DataFrame:
    r"""Rank the labels for which another vote is expected to help most.

    A label with probability :math:`\mu` of being true is wrong with probability :math:`\min(\mu, 1 - \mu)` after
    thresholding. The gain is the expected decrease of this probability by two more votes :math:`v, v'`,

    .. math:: \min(\mu, 1 - \mu) - \sum_{v, v'} \min\big(\mu\, P(v \mid 1) P(v' \mid 1),\;
        (1 - \mu)\, P(v \mid 0) P(v' \mid 0)\big) .

    Two votes are considered, because one vote often cannot change a decision.

    Parameters
    ----------
    inferred : InferredLabels
        Result of :func:`ccmn.infer_labels`.
    n_votes : int, default=100
        Number of labels that are returned.
    annotator : object or None, default=None
        Name (or number, if annotators have no names) of the annotator who will vote. The gain is then computed with
        the rates of this annotator, and labels on which the annotator has voted are left out. By default, the
        vote of a typical annotator is expected, whose rates are the means of the label.

    Returns
    -------
    DataFrame
        Columns row, label, proba (of a true label) and gain, in descending order of the gain. ``label`` is the number
        of the label; if labels have names, there is also a column name.

    See Also
    --------
    ccmn.infer_labels : Infer the true labels from votes.

    Examples
    --------
    >>> import numpy as np
    >>> import ccmn
    >>> votes = np.repeat(np.arange(40) % 2, 3).reshape(40, 3, 1).astype(float)  # three annotators agree
    >>> votes[4] = [[0], [1], [np.nan]]  # two annotators disagree
    >>> ccmn.votes.next_votes(ccmn.infer_labels(votes), 1).row.tolist()
    [4]
    """
    from pandas import DataFrame

    check_count(n_votes, "n_votes")
    names = inferred.votes.annotator_names or tuple(range(inferred.votes.shape[1]))
    if annotator is None:  # labels without votes: the mean over all annotators
        weights = (
            np.bincount(inferred.votes.pair, minlength=inferred.rho_pos.size).reshape(inferred.rho_pos.shape) + 1e-9
        )
        rates = [(rho * weights).sum(0) / weights.sum(0) for rho in (inferred.rho_pos, inferred.rho_neg)]
        gain = expected_gain(inferred.proba, *rates)
    elif annotator in names:
        number = names.index(annotator)
        gain = expected_gain(inferred.proba, inferred.rho_pos[number], inferred.rho_neg[number])
        done = inferred.votes.annotator == number
        gain[inferred.votes.row[done], inferred.votes.label[done]] = -np.inf
    else:
        raise ValueError(f"annotator must be one of {', '.join(map(repr, names[:5]))} ...; got {annotator!r}")
    q = gain.shape[1]
    flat = gain.ravel()
    order = np.argsort(-flat, kind="stable")[:n_votes]
    order = order[np.isfinite(flat[order])]
    row, label = order // q, order % q
    frame = DataFrame({"row": row, "label": label, "proba": inferred.proba[row, label], "gain": flat[order]})
    if inferred.votes.label_names is not None:
        frame.insert(2, "name", [inferred.votes.label_names[j] for j in label])
    return frame


def expected_gain(proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    """Return the expected decrease of the error probabilities (n, q) by two votes with these rates (q,).

    A small multiple of the variance of the label orders labels whose decision two votes cannot change.
    """
    true, absent = (1 - rho_pos, rho_pos), (rho_neg, 1 - rho_neg)
    left = sum(
        np.minimum(proba * true[first] * true[second], (1 - proba) * absent[first] * absent[second])
        for first in (0, 1)
        for second in (0, 1)
    )
    return np.asarray(np.minimum(proba, 1 - proba) - left + TIE_WEIGHT * proba * (1 - proba))
