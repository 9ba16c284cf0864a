"""PARTICLE: partial multi-label learning via credible label elicitation."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import Self

from ccmn._containers import to_dense_array
from ccmn._messages import warn
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_choice,
    check_count,
    check_real,
    check_share,
    name_some,
)
from ccmn.paper.baselines.particle_stages import (
    SVM_SOLVERS,
    VotePosterior,
    assign_folds,
    count_votes,
    elicit_credible,
    fit_pairs,
    make_ties_negative,
    weighted_votes,
)
from ccmn.paper.baselines.pml_estimator import PartialLabelClassifier, check_candidates


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
            n_folds = min(self.n_folds, n)
            if n_folds < self.n_folds:
                warn(f"n_folds={self.n_folds} exceeds the number of samples; using n_folds={n_folds}")
            rng = None if self.random_state is None else as_generator(self.random_state)
            self.folds_ = assign_folds(n, n_folds, rng)
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
            self.posterior_ = VotePosterior.fit(Y, count_votes(self.pairs_.votes(X), q), self.credible_ > 0)

    def _margins(self, X: Any) -> FloatArray:
        votes, q = self.pairs_.votes(X), self.pairs_.q
        if self.variant == "map":
            return self.posterior_.margins(count_votes(votes, q))
        zeta, virtual = weighted_votes(votes, self.pairs_.accuracy, q)
        return make_ties_negative(zeta - virtual)
