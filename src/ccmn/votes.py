"""Labels from several annotators: inference of true labels from votes, and the next votes to collect.

:func:`infer_labels` uses the model of Dawid and Skene with shrinkage, and a cross-fitted classifier as prior:

1. :func:`ccmn.estimation.dawid_skene.fit_votes` fits the model of Dawid and Skene to the votes alone.
2. :func:`classifier_prior` fits logistic regressions of the posterior on the features and predicts out of fold.
3. With these predictions as prior, the posterior and the rates of the annotators are updated.
4. :func:`sample_rates` computes the uncertainty of the rates by Gibbs sampling.

:func:`next_votes` ranks the labels for which another vote is expected to help most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import NDArray
from sklearn.utils import check_array

from ccmn._containers import is_dataframe, is_sparse, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._threads import limit_threads, solver_operations
from ccmn._validation import FloatArray, check_count
from ccmn.estimation.dawid_skene import (
    Counts,
    VoteModel,
    aggregated_rates,
    expected_counts,
    fit_votes,
    rate_prior,
    vote_evidence,
)
from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL, NoiseRates, NoiseType, collect_rates
from ccmn.estimation.out_of_fold import Fold, feature_maps, stratified_folds
from ccmn.noise import ClassConditionalNoise
from ccmn.training.newton import LogisticPath
from ccmn.vote_table import VoteTable

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["InferredLabels", "VoteTable", "infer_labels", "next_votes"]

N_FOLDS = 5
"""Folds of the classifier."""
MIN_ROWS_FOR_CLASSIFIER = 50
"""With fewer rows with votes, features are not used."""
L2_PATH = (0.3, 0.1, 0.03, 0.01, 0.003)
"""l2 weights of the logistic regressions, for features of mean square 1; the first fold selects one per label."""
DEFAULT_ROUNDS = 1
"""Fits of the classifier. On the German emotions of ``benchmarks/votes.py``, each further round lowers the mean average
precision by about 0.003: errors that annotators and features share become part of what is taken for the true label."""
N_SWEEPS, N_BURN_IN = 150, 30
"""Kept and discarded sweeps of the Gibbs sampler."""
MIN_RATE = 1e-6
"""Sampled rates are at least this far from 0 and 1, so that their logarithms are finite."""
TIE_WEIGHT = 1e-3
"""Weight of the variance of a label in its gain, which matters only where two votes cannot change the decision."""


@dataclass(frozen=True, eq=False, repr=False)
class InferredLabels:
    """True labels inferred from votes, with the error rates of the annotators.

    Parameters
    ----------
    proba : array of shape (n, q)
        Probability that each label is true.
    rho_pos, rho_neg : array of shape (a, q)
        False-negative rates P(vote 0 | true 1) and false-positive rates P(vote 1 | true 0) of every annotator, shrunk
        towards the mean of the label where an annotator has few votes. Rates of an adversary sum to more than 1.
    ci_pos, ci_neg : array of shape (a, q, 2)
        90 % credible intervals of these rates.
    rates : NoiseRates
        Noise rates of the aggregated labels ``labels``.
    votes : VoteTable
        The votes.
    prior : array of shape (n, q) or (q,)
        Log-odds of the true labels without votes: of the classifier, or of the prevalence.

    Examples
    --------
    >>> import numpy as np
    >>> import ccmn
    >>> votes = np.array([[[1], [1], [0]], [[0], [0], [0]], [[1], [1], [1]], [[0], [0], [1]]])
    >>> inferred = ccmn.infer_labels(votes)
    >>> inferred.labels.ravel(), inferred.rho_pos.shape
    (array([1, 0, 1, 0]), (3, 1))
    """

    proba: FloatArray
    rho_pos: FloatArray
    rho_neg: FloatArray
    ci_pos: FloatArray
    ci_neg: FloatArray
    rates: NoiseRates
    votes: VoteTable
    prior: FloatArray

    @property
    def labels(self) -> NDArray[np.int64]:
        """Aggregated labels (n, q): 1 where the probability is at least 1/2."""
        return (self.proba >= 0.5).astype(np.int64)

    @property
    def noise(self) -> ClassConditionalNoise:
        """Noise model of the aggregated labels."""
        return self.rates.noise

    @property
    def annotators(self) -> DataFrame:
        """One line per annotator and label.

        The columns are annotator, label, votes, share_positive (how often the annotator assigns the label), agreement
        (expected share of votes that equal the true label), and both rates with their intervals.
        """
        from pandas import DataFrame

        _, a, q = self.votes.shape
        counts = expected_counts(self.votes, self.proba)
        total = counts.positives + counts.negatives
        known = np.maximum(total, 1e-9)
        names = self.votes.annotator_names or range(a)
        columns = {
            "annotator": np.repeat(np.array(names, dtype=object), q),
            "label": np.tile(np.array(self.votes.label_names or range(q), dtype=object), a),
            "votes": total.round().astype(np.int64).ravel(),
            "share_positive": ((counts.positives - counts.removed + counts.added) / known).ravel(),
            "agreement": (1 - (counts.removed + counts.added) / known).ravel(),
        }
        for name, rate, interval in (("pos", self.rho_pos, self.ci_pos), ("neg", self.rho_neg, self.ci_neg)):
            columns[f"rho_{name}"] = rate.ravel()
            columns[f"rho_{name}_low"], columns[f"rho_{name}_high"] = interval.reshape(-1, 2).T
        frame = DataFrame(columns)
        empty = frame.votes == 0
        frame.loc[empty, ["share_positive", "agreement"]] = np.nan
        return frame

    def __repr__(self) -> str:
        """Return the sizes."""
        n, a, q = self.votes.shape
        return f"InferredLabels(n={n}, annotators={a}, q={q}, {self.votes.value.size} votes)"


def infer_labels(
    votes: Any, X: Any = None, random_state: RandomState = 0, *, n_rounds: int = DEFAULT_ROUNDS
) -> InferredLabels:
    """Infer the true labels and the error rates of annotators from votes, and optionally from features.

    Every annotator has two error rates per label, which are shrunk towards the mean of the label [1]_. With features, a
    logistic regression that was not trained on the row gives the prior probability of its labels.

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
    n_rounds : int, default=1
        How often the classifier is fitted to the current posterior.

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
    check_count(n_rounds, "n_rounds")
    seed = int(as_generator(random_state).integers(2**31))
    n_rows = row_ids = None
    if X is not None:
        row_ids = list(X.index) if is_dataframe(X) and type(X.index).__name__ != "RangeIndex" else None
        X = check_array(X if is_sparse(X) else unwrap(X)[0], accept_sparse="csr", dtype=[np.float64, np.float32])
        n_rows = X.shape[0]
    table = VoteTable.read(votes, n_rows, row_ids)
    model = fit_votes(table)
    voted = table.count() > 0
    if X is not None and voted.any(1).sum() >= MIN_ROWS_FOR_CLASSIFIER:
        features = feature_maps(X, seed)
        for _ in range(n_rounds):
            prior = classifier_prior(features, model.posterior, voted, seed)
            model = fit_votes(table, prior, model.posterior, max_iterations=1)
    pos, neg = sample_rates(table, model, np.random.default_rng(seed))
    return InferredLabels(
        model.posterior, pos.mean, neg.mean, pos.interval, neg.interval, _noise(table, model), table, model.prior
    )


def _noise(table: VoteTable, model: VoteModel) -> NoiseRates:
    """Return the noise rates of the labels 0 and 1 that follow from the posterior."""
    counts, q = table.count(), table.shape[2]
    labels = np.where(counts > 0, (model.posterior >= 0.5).astype(np.float64), np.nan)
    both: list[NoiseType] = ["both"] * q
    rates = [aggregated_rates(model.posterior[:, j], counts[:, j], labels[:, j], both[j]) for j in range(q)]
    names = None if table.label_names is None else [str(name) for name in table.label_names]
    return collect_rates(rates, labels, both, {"method": "votes"}, names)


# -- Classifier


def classifier_prior(
    features: list[FloatArray], posterior: FloatArray, voted: NDArray[np.bool_], seed: int
) -> FloatArray:
    """Return out-of-fold log-odds (n, q) of logistic regressions of the posterior, averaged over feature maps.

    A label is learned from the rows in which it has votes.
    """
    log_odds = np.zeros(posterior.shape)
    masks, group = np.unique(voted, axis=1, return_inverse=True)
    for number in range(masks.shape[1]):
        labels, rows = np.flatnonzero(group.ravel() == number), np.flatnonzero(masks[:, number])
        targets = posterior[:, labels]
        if rows.size < MIN_ROWS_FOR_CLASSIFIER:
            mean = np.clip(targets.mean(0), MIN_RATE, 1 - MIN_RATE)
            log_odds[:, labels] = scipy.special.logit(mean)
            continue
        folds = stratified_folds((targets >= 0.5).astype(np.float64), N_FOLDS, np.random.default_rng(seed))
        for X in features:
            log_odds[:, labels] += _out_of_fold(X, targets, masks[:, number], folds) / len(features)
    return log_odds


def _out_of_fold(X: FloatArray, targets: FloatArray, used: NDArray[np.bool_], folds: list[Fold]) -> FloatArray:
    """Return out-of-fold log-odds (n, q) of logistic regressions of soft targets; the first fold selects l2."""
    q = targets.shape[1]
    every, chosen = np.arange(q), np.full(q, np.nan)
    log_odds = np.zeros(targets.shape)
    for held_out in folds:
        train = np.setdiff1d(np.flatnonzero(used), held_out)
        with limit_threads(solver_operations(X[train])):
            path = LogisticPath(X[train], targets[train])
            rotated = path.centered(X[held_out])
            if np.isnan(chosen).any():
                valid = used[held_out]
                losses = []
                for l2 in L2_PATH:
                    path.solve(l2, every, tolerance=1e-3)
                    scores = path.scores(rotated, every)[valid]
                    losses.append((np.logaddexp(0, scores) - targets[held_out][valid] * scores).sum(0))
                chosen = np.array(L2_PATH)[np.argmin(losses, axis=0)]
            for l2 in np.unique(chosen)[::-1]:
                labels = np.flatnonzero(chosen == l2)
                path.solve(float(l2), labels, tolerance=1e-3)
                log_odds[np.ix_(held_out, labels)] = path.scores(rotated, labels)
    return log_odds


# -- Uncertainty


class RatePosterior(NamedTuple):
    """Posterior means (a, q) and 90 % intervals (a, q, 2) of a rate."""

    mean: FloatArray
    interval: FloatArray


class _Moments:
    """First two moments of rates, averaged over sweeps of conditional beta distributions (Rao-Blackwell)."""

    def __init__(self) -> None:
        self.first: Any = 0.0
        self.second: Any = 0.0

    def add(self, a: FloatArray, b: FloatArray) -> None:
        """Add the moments of a beta distribution."""
        mean = a / (a + b)
        self.first = self.first + mean / N_SWEEPS
        self.second = self.second + mean * (a + 1) / (a + b + 1) / N_SWEEPS

    def posterior(self) -> RatePosterior:
        """Return mean and interval of the beta distribution with these moments."""
        variance = np.maximum(self.second - self.first**2, 1e-12)
        size = np.maximum(self.first * (1 - self.first) / variance - 1, 1e-3)
        a, b, tail = size * self.first, size * (1 - self.first), (1 - CONFIDENCE_LEVEL) / 2
        ends = [scipy.special.betaincinv(a, b, part) for part in (tail, 1 - tail)]
        return RatePosterior(self.first, np.stack(ends, -1))


def sample_rates(table: VoteTable, model: VoteModel, rng: np.random.Generator) -> tuple[RatePosterior, RatePosterior]:
    """Return the posteriors of both rates of every annotator, by Gibbs sampling of true labels and rates.

    The prior of a classifier and the calibration of machines are kept fixed.
    """
    voted = table.count() > 0
    n_voted = voted.sum(0)
    moments = _Moments(), _Moments()
    true = (rng.random(model.posterior.shape) < model.posterior).astype(np.float64)
    for sweep in range(N_BURN_IN + N_SWEEPS):
        parameters = _rate_parameters(expected_counts(table, true))
        if sweep >= N_BURN_IN:
            for moment, pair in zip(moments, parameters):
                moment.add(*pair)
        rho_pos, rho_neg = (np.clip(rng.beta(*pair), MIN_RATE, 1 - MIN_RATE) for pair in parameters)
        ones = (true * voted).sum(0)
        prevalence = scipy.special.logit(np.clip(rng.beta(ones + 1, n_voted - ones + 1), MIN_RATE, 1 - MIN_RATE))
        prior = prevalence if model.prior.ndim == 1 else model.prior
        evidence = vote_evidence(table, rho_pos, rho_neg, model.calibration, prevalence)
        true = (rng.random(true.shape) < scipy.special.expit(prior + evidence)).astype(np.float64)
    return moments[0].posterior(), moments[1].posterior()


def _rate_parameters(counts: Counts) -> list[tuple[FloatArray, FloatArray]]:
    """Return the parameters of the beta posteriors of both rates."""
    return [
        rate_prior(events, trials).parameters(events, trials)
        for events, trials in ((counts.removed, counts.positives), (counts.added, counts.negatives))
    ]


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
    gain = expected_gain(inferred.proba, *_voter_rates(inferred, annotator))
    if annotator is not None:
        done = inferred.votes.annotator == _annotator_number(inferred, annotator)
        gain[inferred.votes.row[done], inferred.votes.label[done]] = -np.inf
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


def _annotator_number(inferred: InferredLabels, annotator: Any) -> int:
    """Return the number of an annotator."""
    names = inferred.votes.annotator_names or tuple(range(inferred.votes.shape[1]))
    if annotator not in names:
        raise ValueError(f"annotator must be one of {', '.join(map(repr, names[:5]))} ...; got {annotator!r}")
    return names.index(annotator)


def _voter_rates(inferred: InferredLabels, annotator: Any) -> tuple[FloatArray, FloatArray]:
    """Return the rates (q,) of an annotator, or the mean rates of the votes on each label."""
    if annotator is not None:
        number = _annotator_number(inferred, annotator)
        return inferred.rho_pos[number], inferred.rho_neg[number]
    counts = expected_counts(inferred.votes, inferred.proba)

    def mean(rates: FloatArray, trials: FloatArray) -> NDArray[np.float64]:
        weights = trials + 1e-9  # a label without votes gets the mean of all annotators
        return np.asarray((rates * weights).sum(0) / weights.sum(0))

    return mean(inferred.rho_pos, counts.positives), mean(inferred.rho_neg, counts.negatives)
