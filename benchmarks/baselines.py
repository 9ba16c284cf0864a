"""Measure the partial multi-label methods on yeast against straightforward implementations of the same methods.

    python benchmarks/baselines.py            all samples of yeast; PARTICLE also on half of tmc (requires CCMN_DATA)
    python benchmarks/baselines.py --quick    half of yeast, or synthetic data of its shape (under 50 s)
    python benchmarks/baselines.py --jobs 2   pairwise classifiers in two processes

The straightforward implementations are: PML-NI with a linear solve in every iteration, as in the authors' code;
PML-LRS with a linear solve and a full SVD; fPML with a full SVD of labels and features in every iteration; PARTICLE
with a neighbor search for every fold and SVC, the solver of the authors' code, for one pair after another. On tmc,
SVC trains every tenth pair and its time is multiplied by ten.

The notes state whether the times are within 5 s (PARTICLE: 60 s), and how often the two solvers of PARTICLE agree.
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

from ccmn.data import load_dataset
from ccmn.data.synthetic import make_noisy_multilabel
from ccmn.noise import PartialNoise
from ccmn.paper.baselines import BASELINES, PARTICLE
from ccmn.paper.baselines.particle_stages import (
    label_confidence,
    label_pairs,
    pair_samples,
    propagate,
    transition_matrix,
)

MAX_SECONDS = {"PMLNI": 5, "PMLLRS": 5, "fPML": 5, "PARVLS": 60, "PARMAP": 60}
"""Time limit of one fit on yeast with default parameters."""


def task(name: str, share: float):
    """Return features scaled to [-1, 1] (sparse ones unscaled) and candidate sets with 30 % of the false labels."""
    try:
        data = load_dataset(name)
        X, Y = data.X, np.asarray(data.Y)
    except (ValueError, FileNotFoundError, OSError, ImportError):
        synthetic = make_noisy_multilabel(2417, 103, 14, random_state=0)
        X, Y = synthetic.X, synthetic.Y
    rows = np.random.default_rng(0).permutation(X.shape[0])[: int(share * X.shape[0])]
    X = X[rows].astype(np.float64)
    if not hasattr(X, "tocsr"):
        X = MinMaxScaler((-1, 1)).fit_transform(X)
    return X, PartialNoise(0.3, n_labels=Y.shape[1]).corrupt(Y[rows], random_state=0).astype(np.float64)


def shrink(A, t):
    """Shrink the singular values of A by t."""
    left, s, right = np.linalg.svd(A, full_matrices=False)
    return left * np.maximum(s - t, 0) @ right


def soft(A, t):
    """Shrink the entries of A by t."""
    return np.sign(A) * np.maximum(np.abs(A) - t, 0)


def simple_pml_ni(X, Y, lam=10, beta=0.5, gamma=0.5):
    """Fit PML-NI with a linear solve in every iteration."""
    Phi = np.hstack([X, np.ones((len(X), 1))])
    A, B, mu = Y.T @ Phi, Phi.T @ Phi, 1e-4
    U = V = dual = np.zeros_like(A)
    for _ in range(500):
        W = np.linalg.solve(B + (lam + mu) * np.eye(len(B)), (A + mu * (U + V) + dual).T).T
        previous, U = U, shrink(W - V - dual / mu, beta / mu)
        V = soft(W - U - dual / mu, gamma / mu)
        size = np.linalg.norm(W)
        is_stable = mu * np.linalg.norm(U - previous) / size < 1e-5
        mu = min(1.1 * mu, 1e10) if is_stable else mu
        dual = dual + mu * (U + V - W)
        if is_stable and np.linalg.norm(W - U - V) / size < 1e-7:
            return


def simple_pml_lrs(X, Y, gamma=0.01, beta=0.1, eta=1.0):
    """Fit PML-LRS with a linear solve and full SVDs in every iteration."""
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
        changes = [new - previous for new, previous in zip((V, K, J), old)]
        if max(np.abs(m).max() for m in (*residuals, *changes)) < 1e-6:
            return


def simple_fpml(X, Y, l1=1.0, l2=1.0, l3=10.0):
    """Fit fPML with a full SVD in every iteration."""
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


def simple_credible_labels(X, Y, k=10, alpha=0.95, thr=0.9, n_folds=10):
    """Return credible labels, with a neighbor search and reconstructions for every fold."""
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


def simple_particle(X, Y, every: int = 1) -> float:
    """Return the seconds of both stages; ``every=10`` trains every tenth pair and multiplies their time by ten."""
    start = time.perf_counter()
    C = simple_credible_labels(X, Y)
    middle = time.perf_counter()
    for j, other in label_pairs(Y.shape[1])[::every]:
        rows, y = pair_samples(C, Y, j, other)
        if y.size and y.min() < y.max():
            SVC(kernel="linear", C=1.0).fit(X[rows], y).score(X[rows], y)
    return middle - start + every * (time.perf_counter() - middle)


def seconds(call) -> float:
    """Return the run time of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best_of_two(ours, theirs) -> tuple[float, float]:
    """Return the shorter of two times each; alternating runs share the load of other processes."""
    both = [(ours(), theirs()) for _ in range(2)]
    return min(b[0] for b in both), min(b[1] for b in both)


def shared_votes(X, Y) -> float:
    """Return the share of votes on which the two solvers agree, with the same credible labels."""
    fast = PARTICLE(svm="liblinear").fit(X, Y)
    exact = PARTICLE(svm="libsvm").fit(X, Y, credible=fast.credible_)
    return float((fast.pairs_.votes(X) == exact.pairs_.votes(X)).mean())


def main() -> None:
    """Run the benchmark."""
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument(
        "--jobs", type=int, default=None, help="number of processes for the pairwise classifiers of PARTICLE"
    )
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    X, Y = task("yeast", 0.5 if options.quick else 1.0)
    simple = {
        "PMLNI": ("linear solve in every iteration", lambda: seconds(lambda: simple_pml_ni(X, Y))),
        "PMLLRS": ("linear solve and full SVD in every iteration", lambda: seconds(lambda: simple_pml_lrs(X, Y))),
        "fPML": ("full SVD in every iteration", lambda: seconds(lambda: simple_fpml(X, Y))),
        "PARVLS": ("neighbor search for every fold, SVC", lambda: simple_particle(X, Y)),
    }
    results, notes = [], {}
    for name, (baseline, theirs) in simple.items():
        more = {"n_jobs": options.jobs} if name == "PARVLS" else {}
        ours, other = best_of_two(lambda n=name, m=more: seconds(lambda: BASELINES[n].make(**m).fit(X, Y)), theirs)
        results.append(Result(f"{name} on yeast, {len(Y)} rows", ours, baseline, other, other / ours))
        notes[f"{name} within {MAX_SECONDS[name]} s"] = bool(ours < MAX_SECONDS[name])
    notes["votes on which liblinear and libsvm agree, yeast"] = round(shared_votes(X, Y), 5)
    if not options.quick:
        X, Y = task("tmc", 0.5)
        ours = seconds(lambda: BASELINES["PARVLS"].make(n_jobs=options.jobs).fit(X, Y))
        other = simple_particle(X, Y, every=10)
        baseline = "neighbor search for every fold, SVC (from a tenth of the pairs)"
        results.append(Result(f"PARVLS on tmc, {len(Y)} rows, 253 pairs", ours, baseline, other, other / ours))
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
