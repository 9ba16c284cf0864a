"""Partial multi-label methods on yeast with their defaults, each against a straightforward program of the same method.

    python benchmarks/baselines.py            yeast, all rows; and PARTICLE on half of tmc (needs CCMN_DATA)
    python benchmarks/baselines.py --quick    half of yeast, or made-up data of its shape (under 50 s)
    python benchmarks/baselines.py --jobs 2   pair classifiers in two processes

The rivals: PML-NI with a fresh solve in every iteration, as released; PML-LRS with a fresh solve and a whole SVD; fPML
with a whole SVD of labels and features in every round; PARTICLE with neighbours sought anew for every fold and SVC, the
released program's solver, one pair after another. On tmc every tenth pair is trained by SVC and counted tenfold.

Notes: whether the times stay within 5 s (PARTICLE 60 s), and how many votes the two solvers of PARTICLE share.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from harness import Result, parser, report
from scipy.optimize import nnls
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC

from ccmn.baselines import BASELINES, PARTICLE
from ccmn.baselines.particle_stages import label_confidence, label_pairs, pair_samples, propagate, transition_matrix
from ccmn.data import load_dataset
from ccmn.data.synthetic import make_noisy_multilabel
from ccmn.noise import PartialNoise

LIMITS = {"PMLNI": 5, "PMLLRS": 5, "fPML": 5, "PARVLS": 60, "PARMAP": 60}


def task(name: str, share: float):
    """Features in [-1, 1] (sparse ones as they are) and candidate sets with 30 % of the other labels."""
    try:
        data = load_dataset(name)
        X, Y = data.X, np.asarray(data.Y)
    except (ValueError, FileNotFoundError, OSError, ImportError):
        made = make_noisy_multilabel(2417, 103, 14, random_state=0)
        X, Y = made.X, made.Y
    rows = np.random.default_rng(0).permutation(X.shape[0])[: int(share * X.shape[0])]
    X = X[rows].astype(np.float64)
    if not hasattr(X, "tocsr"):
        X = MinMaxScaler((-1, 1)).fit_transform(X)
    return X, PartialNoise(0.3, n_labels=Y.shape[1]).corrupt(Y[rows], random_state=0).astype(np.float64)


def shrink(A, t):
    left, s, right = np.linalg.svd(A, full_matrices=False)
    return left * np.maximum(s - t, 0) @ right


def soft(A, t):
    return np.sign(A) * np.maximum(np.abs(A) - t, 0)


def plain_ni(X, Y, lam=10, beta=0.5, gamma=0.5):
    Phi = np.hstack([X, np.ones((len(X), 1))])
    A, B, mu = Y.T @ Phi, Phi.T @ Phi, 1e-4
    U = V = dual = np.zeros_like(A)
    for _ in range(500):
        W = np.linalg.solve(B + (lam + mu) * np.eye(len(B)), (A + mu * (U + V) + dual).T).T
        before, U = U, shrink(W - V - dual / mu, beta / mu)
        V = soft(W - U - dual / mu, gamma / mu)
        size = np.linalg.norm(W)
        still = mu * np.linalg.norm(U - before) / size < 1e-5
        mu = min(1.1 * mu, 1e10) if still else mu
        dual = dual + mu * (U + V - W)
        if still and np.linalg.norm(W - U - V) / size < 1e-7:
            return


def plain_lrs(X, Y, gamma=0.01, beta=0.1, eta=1.0):
    V = A = B = np.zeros_like(Y)
    K, J = Y, np.zeros((X.shape[1], Y.shape[1]))
    C = J
    for _ in range(2000):
        R = Y - V + A + K - B
        W = np.linalg.solve(2 / 3 * X.T @ X + np.eye(X.shape[1]), J - C + X.T @ R / 3)
        U = (R + X @ W) / 3
        old = V, K, J
        V, K, J = soft(Y - U + A, beta), shrink(U + B, gamma), shrink(W + C, eta)
        residuals = Y - U - V, U - K, W - J
        A, B, C = A + residuals[0], B + residuals[1], C + residuals[2]
        changes = [new - before for new, before in zip((V, K, J), old)]
        if max(np.abs(m).max() for m in (*residuals, *changes)) < 1e-6:
            return


def plain_fpml(X, Y, l1=1.0, l2=1.0, l3=10.0):
    k, q, W, last = -(-Y.shape[1] // 2), Y.shape[1], np.zeros((X.shape[1], Y.shape[1])), np.inf
    for _ in range(500):
        T = (Y + l2 * X @ W) / (1 + l2)
        left, s, right = np.linalg.svd(np.hstack([np.sqrt(1 + l2) * T, np.sqrt(l1) * X]), full_matrices=False)
        approximation = left[:, :k] * s[:k] @ right[:k]
        Z, rebuilt = approximation[:, :q] / np.sqrt(1 + l2), approximation[:, q:] / np.sqrt(l1)
        W = np.linalg.solve(l2 * X.T @ X + l3 * np.eye(X.shape[1]), l2 * X.T @ Z)
        parts = (Y - Z, 1), (X - rebuilt, l1), (Z - X @ W, l2), (W, l3)
        value = sum(weight * (part**2).sum() for part, weight in parts)
        if last - value <= 1e-13 * value:
            return
        last = value


def plain_stage_1(X, Y, k=10, alpha=0.95, thr=0.9, n_folds=10):
    """Credible labels with neighbours and reconstructions sought anew for every fold."""
    C = np.zeros_like(Y)
    for inside in np.array_split(np.arange(len(Y)), n_folds):
        rest = np.setdiff1d(np.arange(len(Y)), inside)
        search = NearestNeighbors(n_neighbors=k).fit(X[rest])
        index = search.kneighbors(return_distance=False)
        dense = X[rest].toarray() if hasattr(X, "toarray") else X[rest]
        weights = np.array([nnls(dense[near].T, row, maxiter=1000)[0] for near, row in zip(index, dense)])
        weights /= np.maximum(weights.sum(1, keepdims=True), 1e-300)
        F = label_confidence(propagate(transition_matrix(weights, index, len(rest)), Y[rest], alpha), Y[rest])
        distance, near = search.kneighbors(X[inside])
        r = np.einsum("ik,ikj->ij", 1 - distance / distance.sum(1, keepdims=True), F[near])
        r = (r - r.min(1, keepdims=True)) / (r.max(1, keepdims=True) - r.min(1, keepdims=True))
        both = (r >= thr) & (Y[inside] == 1)
        C[inside] = np.where(both.any(1, keepdims=True), both, r >= thr)
    return C


def plain_particle(X, Y, every: int = 1) -> float:
    """Seconds of the whole program; with every = 10 the pairs' are those of a tenth of them, tenfold."""
    start = time.perf_counter()
    C = plain_stage_1(X, Y)
    middle = time.perf_counter()
    for j, other in label_pairs(Y.shape[1])[::every]:
        rows, y = pair_samples(C, Y, j, other)
        if y.size and y.min() < y.max():
            SVC(kernel="linear", C=1.0).fit(X[rows], y).score(X[rows], y)
    return middle - start + every * (time.perf_counter() - middle)


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best_of_two(ours, theirs) -> tuple[float, float]:
    """In turn, so that a neighbour's burst does not fall on one of them alone."""
    both = [(ours(), theirs()) for _ in range(2)]
    return min(b[0] for b in both), min(b[1] for b in both)


def shared_votes(X, Y) -> float:
    """The share of votes on which the two solvers agree, from the same credible labels."""
    fast = PARTICLE(svm="liblinear").fit(X, Y)
    exact = PARTICLE(svm="libsvm").fit(X, Y, credible=fast.credible_)
    return float((fast.pairs_.votes(X) == exact.pairs_.votes(X)).mean())


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=None, help="processes for PARTICLE's pair classifiers")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    X, Y = task("yeast", 0.5 if options.quick else 1.0)
    rivals = {
        "PMLNI": ("a fresh solve in every iteration", lambda: seconds(lambda: plain_ni(X, Y))),
        "PMLLRS": ("a fresh solve and a whole SVD", lambda: seconds(lambda: plain_lrs(X, Y))),
        "fPML": ("a whole SVD in every round", lambda: seconds(lambda: plain_fpml(X, Y))),
        "PARVLS": ("neighbours of every fold anew, SVC", lambda: plain_particle(X, Y)),
    }
    results, notes = [], {}
    for name, (rival, theirs) in rivals.items():
        more = {"n_jobs": options.jobs} if name == "PARVLS" else {}
        ours, other = best_of_two(lambda n=name, m=more: seconds(lambda: BASELINES[n].make(**m).fit(X, Y)), theirs)
        results.append(Result(f"{name} on yeast, {len(Y)} rows", ours, rival, other, other / ours))
        notes[f"{name} within {LIMITS[name]} s"] = bool(ours < LIMITS[name])
    notes["votes on which liblinear and libsvm agree, yeast"] = round(shared_votes(X, Y), 5)
    if not options.quick:
        X, Y = task("tmc", 0.5)
        ours = seconds(lambda: BASELINES["PARVLS"].make(n_jobs=options.jobs).fit(X, Y))
        other = plain_particle(X, Y, every=10)
        rival = "neighbours of every fold anew, SVC (from a tenth of the pairs)"
        results.append(Result(f"PARVLS on tmc, {len(Y)} rows, 253 pairs", ours, rival, other, other / ours))
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
