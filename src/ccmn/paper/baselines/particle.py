"""PARTICLE: partial multi-label learning via credible label elicitation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ccmn._containers import to_dense_array
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_candidates,
    check_choice,
    check_count,
    check_real,
    check_share,
    name_some,
)
from ccmn._warnings import warn
from ccmn.paper.baselines.particle_stages import (
    SVM_SOLVERS,
    VIRTUAL,
    assign_folds,
    elicit_credible,
    fit_pairs,
    label_pairs,
)
from ccmn.paper.baselines.pml_estimator import PartialLabelClassifier

MIN_VOTE_DIFFERENCE = 1e-9
"""Smaller vote differences are ties. A label with a tie is not predicted: it needs more votes than its threshold."""


class PARTICLE(PartialLabelClassifier):
    r"""Partial multi-label learning via credible label elicitation [1]_ [2]_.

    Stage 1 reconstructs every sample from its nearest neighbors, propagates the candidate labels over this graph and
    keeps the labels in which the neighbors from the other folds have high confidence. Stage 2 trains linear support
    vector machines on the credible labels: one for every pair of labels and one for every label against a virtual
    label, q (q - 1) / 2 + q in total. Labels that are not candidates are negative samples.

    Parameters
    ----------
    variant : {"vls", "map"}, default="vls"
        "vls" (PAR-VLS, virtual label splitting) predicts a label if its votes, weighted by the accuracy of the
        classifiers, exceed the votes of the virtual label. "map" (PAR-MAP, maximum a posteriori) predicts a label if
        its posterior probability, given its number of votes, exceeds 1/2.
    k : int, default=10
        Number of nearest neighbors.
    alpha : float, default=0.95
        Weight of the neighbors in label propagation, from 0 to 1.
    thr : float, default=0.9
        Minimum confidence of a credible label, from 0 to 1.
    C : float, default=1.0
        Inverse regularization of the support vector machines.
    n_folds : int, default=10
        Number of folds for the credible labels. Folds are contiguous in row order unless ``random_state`` is given.
    random_state : int, numpy Generator or None, default=None
        Random state for shuffling the samples into folds. None means no shuffling.
    svm : {"auto", "liblinear", "libsvm"}, default="auto"
        Solver of the support vector machines. "libsvm" is the solver of the authors' code. "liblinear" also
        penalizes the bias, with 1/100 of the penalty of the weights, and is much faster for thousands of samples.
        "auto" uses libsvm for pairs with up to 2,000 samples.
    n_jobs : int or None, default=None
        Number of processes for the pairwise classifiers, as in joblib.

    Attributes
    ----------
    credible_ : ndarray of shape (n, q)
        Credible labels of the training samples, 0 or 1.
    folds_ : ndarray of shape (n,) or None
        Fold of every training sample; None if ``fit`` received credible labels.
    pairs_ : PairClassifiers
        Pairwise classifiers.
    posterior_ : VotePosterior
        Vote distributions; only for ``variant="map"``.

    Notes
    -----
    The authors' code differs from the publications in some details. This class follows the publications: a sample
    is not its own neighbor, weighted votes are not rounded, and the likelihoods of "map" are estimated on training
    samples. The prior of "map" is the frequency among the candidates, as in [1]_.

    If a support vector machine reaches its iteration limit, a ``ConvergenceWarning`` recommends scaling the features.

    References
    ----------
    .. [1] J.-P. Fang and M.-L. Zhang, "Partial multi-label learning via credible label elicitation", AAAI 2019.
    .. [2] M.-L. Zhang and J.-P. Fang, "Partial multi-label learning via credible label elicitation", IEEE TPAMI 43(10),
       2021.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.paper.baselines import PARTICLE
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (200, 3))
    >>> Y[Y.sum(1) == 0, 0] = 1
    >>> X = Y + rng.normal(scale=0.3, size=(200, 3))
    >>> candidates = np.maximum(Y, rng.random(Y.shape) < 0.1).astype(int)
    >>> clf = PARTICLE().fit(X, candidates)
    >>> clf.credible_.shape
    (200, 3)
    >>> bool((clf.predict(X) == Y).mean() > 0.8)
    True
    """

    def __init__(
        self,
        variant: str = "vls",
        k: int = 10,
        alpha: float = 0.95,
        thr: float = 0.9,
        C: float = 1.0,
        n_folds: int = 10,
        random_state: RandomState = None,
        *,
        svm: str = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.variant = variant
        self.k = k
        self.alpha = alpha
        self.thr = thr
        self.C = C
        self.n_folds = n_folds
        self.random_state = random_state
        self.svm = svm
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, credible: Any = None) -> Self:
        """Fit the model to candidate label sets.

        Parameters
        ----------
        X : array, DataFrame, tensor or CSR matrix of shape (n, d)
            Features.
        y : array, DataFrame, tensor or CSR matrix of shape (n, q)
            Candidate sets: 1 if the label is a candidate of the sample, otherwise 0.
        credible : array of shape (n, q), default=None
            Known credible labels, 0 or 1. Stage 1 is skipped if they are given.

        Returns
        -------
        self : PARTICLE
            The fitted estimator.
        """
        self._check_parameters()
        X, Y = self._validate(X, y)
        n = len(Y)
        if credible is not None:
            given = check_candidates(to_dense_array(credible), "credible")
            if given.shape != Y.shape:
                raise ValueError(f"credible must have the shape of candidates, {Y.shape}; got {given.shape}")
            self.folds_, self.credible_ = None, given.astype(np.int64)
        else:
            self.folds_ = self._assign_folds(n)
            n_empty = int((Y.sum(1) == 0).sum())
            if n_empty:
                warn(
                    f"{n_empty} of {n} samples have an empty candidate set. They have no influence on label "
                    "propagation, and they get the credible labels of their neighbors."
                )
            self.credible_ = elicit_credible(X, Y, self.folds_, k=self.k, alpha=float(self.alpha), thr=float(self.thr))
        self._fit(X, Y)
        return self

    def _check_parameters(self) -> None:
        check_choice(self.variant, "variant", ("vls", "map"))
        check_count(self.k, "k")
        check_share(self.alpha, "alpha")
        check_share(self.thr, "thr")
        check_real(self.C, "C", 0, float("inf"))
        if check_count(self.n_folds, "n_folds") < 2:
            raise ValueError(f"n_folds must be at least 2; got {self.n_folds}")
        SVM_SOLVERS[self.svm]

    def _assign_folds(self, n: int) -> NDArray[np.intp]:
        n_folds = min(self.n_folds, n)
        if n_folds < self.n_folds:
            warn(f"n_folds={self.n_folds} exceeds the number of samples; using n_folds={n_folds}")
        return assign_folds(n, n_folds, None if self.random_state is None else as_generator(self.random_state))

    def _fit(self, X: Any, Y: FloatArray) -> None:
        """Run stage 2: train the pairwise classifiers, and estimate the vote distributions of "map"."""
        q = Y.shape[1]
        self.pairs_ = fit_pairs(X, self.credible_, Y, float(self.C), svm=self.svm, n_jobs=self.n_jobs)
        one_class = np.flatnonzero(self.pairs_.accuracy[-q:] == 0)
        if one_class.size:
            which = name_some(one_class.tolist(), self.label_names_, q)
            warn(
                f"No positive or no negative training samples for {which}: the vote against the virtual label is "
                "omitted"
            )
        if self.variant == "map":
            counts = count_votes(self.pairs_.votes(X), q)
            self.posterior_ = VotePosterior.fit(candidate_prior(Y), counts, self.credible_ > 0, Y == 0)

    def _margins(self, X: Any) -> FloatArray:
        votes, q = self.pairs_.votes(X), self.pairs_.q
        if self.variant == "map":
            return self.posterior_.margins(count_votes(votes, q))
        zeta, virtual = weighted_votes(votes, self.pairs_.accuracy, q)
        return make_ties_negative(zeta - virtual)


def weighted_votes(votes: NDArray[np.bool_], accuracy: FloatArray, q: int) -> tuple[FloatArray, FloatArray]:
    r"""Return the votes of the labels (n, q) and of the virtual label (n, 1), weighted by training accuracy.

    .. math:: \zeta_j = \sum_{l > j} a_{jl} h_{jl} + \sum_{l < j} a_{lj} (1 - h_{lj}) + a_{jv} h_{jv}, \qquad
              \zeta_v = \sum_j a_{jv} (1 - h_{jv})

    The sum of all votes is the sum of the accuracies.
    """
    pairs = np.array(label_pairs(q))
    # Column q collects the votes for the virtual label.
    is_first = np.equal.outer(pairs[:, 0], np.arange(q + 1)).astype(np.float64)
    second = np.where(pairs[:, 1] == VIRTUAL, q, pairs[:, 1])
    is_second = np.equal.outer(second, np.arange(q + 1)).astype(np.float64)
    zeta = (votes * accuracy) @ is_first + (~votes * accuracy) @ is_second
    return zeta[:, :q], zeta[:, q:]


def make_ties_negative(margins: FloatArray) -> FloatArray:
    """Replace margins close to 0 by a negative value, because ``predict`` includes labels with margin 0."""
    return np.where(np.abs(margins) < MIN_VOTE_DIFFERENCE, -MIN_VOTE_DIFFERENCE, margins)


def count_votes(votes: NDArray[np.bool_], q: int) -> NDArray[np.intp]:
    """Return the number of votes (n, q) for each label, 0 to q - 1, without pairs that include the virtual label."""
    n_pairs = q * (q - 1) // 2
    weights = np.concatenate([np.ones(n_pairs), np.zeros(len(label_pairs(q)) - n_pairs)])
    return np.rint(weighted_votes(votes, weights, q)[0]).astype(np.intp)


@dataclass(frozen=True)
class VotePosterior:
    """Posterior probability of a label given its number of votes.

    Parameters
    ----------
    prior : ndarray of shape (q,)
        Prior probability of every label.
    if_true : ndarray of shape (q, q)
        Probabilities of 0 to q - 1 votes if the label is true.
    if_false : ndarray of shape (q, q)
        Probabilities of 0 to q - 1 votes if the label is false.
    """

    prior: FloatArray
    if_true: FloatArray
    if_false: FloatArray

    @classmethod
    def fit(
        cls, prior: FloatArray, counts: NDArray[np.intp], positive: NDArray[Any], negative: NDArray[Any]
    ) -> VotePosterior:
        """Estimate the vote distributions by smoothed frequencies among the positive and the negative samples."""
        q = counts.shape[1]
        tables = []
        for selected in (positive, negative):
            columns = [np.bincount(counts[selected[:, j] > 0, j], minlength=q) for j in range(q)]
            frequency = np.array(columns, dtype=np.float64)
            tables.append((1 + frequency) / (q + frequency.sum(1, keepdims=True)))
        return cls(prior, *tables)

    def margins(self, counts: NDArray[np.intp]) -> FloatArray:
        """Return the posterior probabilities minus 1/2."""
        label = np.arange(counts.shape[1])
        true, false = self.prior * self.if_true[label, counts], (1 - self.prior) * self.if_false[label, counts]
        return make_ties_negative(true / (true + false) - 0.5)


def candidate_prior(Y: FloatArray) -> FloatArray:
    """Return the smoothed frequency of every label among the candidates."""
    return np.asarray((1 + Y.sum(0)) / (2 + len(Y)))
