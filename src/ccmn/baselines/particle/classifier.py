"""PARTICLE: partial multi-label learning via credible label elicitation (Fang & Zhang, AAAI 2019; TPAMI 2021)."""

from __future__ import annotations

import warnings
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
    check_label_width,
    check_real,
    check_same_shape,
    check_share,
    name_some,
)
from ccmn.baselines.base import PartialLabelClassifier
from ccmn.baselines.particle.credible import elicit_credible, make_folds
from ccmn.baselines.particle.map import VotePosterior, candidate_prior, count_votes, neighbour_prior
from ccmn.baselines.particle.pairs import SVMS, fit_pairs
from ccmn.baselines.particle.progress import Progress
from ccmn.baselines.particle.vls import vls_margins

MANY_LABELS = 100
"""Above this many a warning tells how many classifiers that makes."""
_NEIGHBOURS_OF_PRIOR = 10


class PARTICLE(PartialLabelClassifier):
    r"""Credible labels by propagation over neighbours, then a vote of pairwise linear classifiers.

    Stage 1 rebuilds every row from its neighbours, propagates candidate labels over that graph, and keeps the labels
    that the neighbours of a row in the other folds are confident of. Stage 2 trains a linear support vector machine for
    every pair of labels, from rows where one is credible and the other no candidate, and for every label against a
    virtual one; q (q - 1) / 2 + q in all. "Not a candidate" is taken for a sure negative.

    Parameters
    ----------
    variant : "vls" or "map"
        A label is predicted when its votes, weighted by the accuracy of their classifiers, exceed the virtual label's;
        or when its number of votes makes it more probable than not.
    k : int
        Neighbours.
    alpha : float
        Share of the neighbours' labels in the propagation, 0 to 1.
    thr : float
        Confidence from which a label is credible, 0 to 1.
    C : float
        Of the support vector machines.
    n_folds : int
        Folds of the training rows; contiguous in row order unless ``random_state`` is given.
    include_self : bool
        Count a row as its own nearest neighbour, as the released program does: nothing is then propagated.
    ceil_votes : bool
        Round weighted votes up before they are compared, as the released program does; only "vls".
    random_state
        Shuffles the rows into folds.
    svm : "auto", "liblinear" or "libsvm"
        The solver of the pairs. "libsvm" is the released program's; "liblinear" penalises the bias too, by 1/100 of
        what it does the weights, and is many times faster on thousands of rows; "auto" goes by the rows of a pair.
    prior : "candidate" or "neighbour"
        For "map", how often a label is true: by the candidates (conference version), or by whether half of the ten
        nearest rows have it as candidate (journal version).
    likelihood : "training" or "test_truth"
        For "map", on which rows votes are counted. "test_truth" repeats the released program, which counts on the TEST
        rows with their TRUE labels: ``fit`` must then be given them, and the figures are not those of a learner.
    ratio_rule : bool
        For "map", the released program's 0/1 rule: the ratio of the two products, stretched within the row, cut at 1/2.
    n_jobs : int or None
        Processes for the pair classifiers, as in joblib.
    verbose : int
        1: a line of progress, on a terminal only; 0: none.

    Attributes
    ----------
    credible_ : array (n, q) of 0 and 1
    folds_ : array (n,), or None where credible labels were given
    pairs_ : PairClassifiers
    posterior_ : VotePosterior, "map" only
    """

    def __init__(
        self,
        variant: str = "vls",
        k: int = 10,
        alpha: float = 0.95,
        thr: float = 0.9,
        C: float = 1.0,
        n_folds: int = 10,
        include_self: bool = False,
        ceil_votes: bool = False,
        random_state: RandomState = None,
        svm: str = "auto",
        prior: str = "candidate",
        likelihood: str = "training",
        ratio_rule: bool = False,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> None:
        self.variant = variant
        self.k = k
        self.alpha = alpha
        self.thr = thr
        self.C = C
        self.n_folds = n_folds
        self.include_self = include_self
        self.ceil_votes = ceil_votes
        self.random_state = random_state
        self.svm = svm
        self.prior = prior
        self.likelihood = likelihood
        self.ratio_rule = ratio_rule
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, candidates: Any, credible: Any = None, test_truth: tuple[Any, Any] | None = None) -> Self:
        """Learn from features and candidate sets.

        Parameters
        ----------
        X : array, DataFrame, tensor or CSR of shape (n, d)
        candidates : (n, q)
        credible : (n, q) of 0 and 1, optional
            Credible labels found elsewhere: stage 1 is then skipped.
        test_truth : (X_test, Y_test), optional
            Taken, and then needed, with ``likelihood="test_truth"`` only.
        """
        self._check_parameters()
        self._check_truth(test_truth)
        X, Y = self._read(X, candidates)
        self._warn_of_many(Y.shape[1])
        self.folds_ = None if credible is not None else self._folds(len(Y))
        self.credible_ = self._elicit(X, Y, self.folds_) if self.folds_ is not None else self._given(credible, Y)
        self._learn(X, Y)
        if self.variant == "map":
            self.posterior_ = self._posterior(X, Y, test_truth)
        return self

    def _check_parameters(self) -> None:
        check_choice(self.variant, "variant", ("vls", "map"))
        check_count(self.k, "k")
        check_share(self.alpha, "alpha")
        check_share(self.thr, "thr")
        check_real(self.C, "C", 0, float("inf"))
        if check_count(self.n_folds, "n_folds") < 2:
            raise ValueError("n_folds must be at least 2: the labels of a fold are judged by the others")
        SVMS[self.svm]
        check_choice(self.prior, "prior", ("candidate", "neighbour"))
        check_choice(self.likelihood, "likelihood", ("training", "test_truth"))
        if self.variant == "map" and self.ceil_votes:
            raise ValueError("ceil_votes=True does nothing with variant='map', whose votes are whole numbers")
        if self.variant == "vls" and (self.prior, self.likelihood, self.ratio_rule) != ("candidate", "training", False):
            raise ValueError("prior, likelihood and ratio_rule do nothing with variant='vls': leave them out")

    def _check_truth(self, test_truth: object) -> None:
        if self.likelihood == "test_truth" and test_truth is None:
            raise ValueError(
                "likelihood='test_truth' counts votes on the test rows with their true labels, as the released program "
                "does: give fit(..., test_truth=(X_test, Y_test)), or use 'training', which needs none"
            )
        if self.likelihood != "test_truth" and test_truth is not None:
            raise ValueError(f"test_truth is not used with likelihood={self.likelihood!r}: leave it out")

    def _warn_of_many(self, q: int) -> None:
        if q > MANY_LABELS:
            warnings.warn(
                f"{q} labels make {q * (q - 1) // 2 + q} pair classifiers: this takes long; n_jobs=-1 uses every core",
                stacklevel=3,
            )

    def _given(self, credible: Any, Y: FloatArray) -> NDArray[np.int64]:
        given = check_candidates(to_dense_array(credible), "credible")
        check_same_shape(given, Y, "credible", "candidates")
        return given.astype(np.int64)

    def _folds(self, n: int) -> NDArray[np.intp]:
        n_folds = min(self.n_folds, n)
        if n_folds < self.n_folds:
            warnings.warn(f"{n} rows cannot make {self.n_folds} folds: {n_folds} are used", stacklevel=3)
        return make_folds(n, n_folds, None if self.random_state is None else as_generator(self.random_state))

    def _elicit(self, X: Any, Y: FloatArray, folds: NDArray[np.intp]) -> NDArray[np.int64]:
        empty = int((Y.sum(1) == 0).sum())
        if empty:
            warnings.warn(
                f"{empty} of {len(Y)} rows have an empty candidate set: they have no vote as neighbours, and their "
                "credible labels are those of their neighbours",
                stacklevel=3,
            )
        with Progress("credible labels, folds", self.verbose) as progress:
            return elicit_credible(
                X,
                Y,
                folds,
                k=self.k,
                alpha=float(self.alpha),
                thr=float(self.thr),
                include_self=self.include_self,
                progress=progress,
            )

    def _learn(self, X: Any, Y: FloatArray) -> None:
        with Progress("pair classifiers", self.verbose) as progress:
            self.pairs_ = fit_pairs(
                X, self.credible_, Y, float(self.C), svm=self.svm, n_jobs=self.n_jobs, progress=progress
            )
        untold = np.flatnonzero(self.pairs_.accuracy[-Y.shape[1] :] == 0)
        if untold.size:
            which = name_some(untold.tolist(), self.label_names_, Y.shape[1])
            warnings.warn(
                f"no rows speak for, or none against, {which}: no classifier holds it against the virtual "
                "label, and that vote is left out",
                stacklevel=3,
            )

    def _posterior(self, X: Any, Y: FloatArray, test_truth: tuple[Any, Any] | None) -> VotePosterior:
        prior = candidate_prior(Y) if self.prior == "candidate" else neighbour_prior(X, Y, _NEIGHBOURS_OF_PRIOR)
        if test_truth is None:
            positive, negative = self.credible_ > 0, Y == 0
        else:
            X = self._features(test_truth[0])
            truth = check_candidates(to_dense_array(test_truth[1]), "the labels of test_truth")
            check_label_width(truth.shape, Y.shape[1], "the labels of test_truth")
            positive, negative = truth > 0, truth == 0
        counts = count_votes(self.pairs_.votes(X), Y.shape[1])
        return VotePosterior.fit(prior, counts, positive, negative)

    def _margins(self, X: Any) -> FloatArray:
        votes, q = self.pairs_.votes(X), self.pairs_.q
        if self.variant == "vls":
            return vls_margins(votes, self.pairs_.accuracy, q, ceil_votes=self.ceil_votes)
        counts = count_votes(votes, q)
        return self.posterior_.released_margins(counts) if self.ratio_rule else self.posterior_.margins(counts)
