r"""The two stages of PARTICLE: credible labels by propagation over neighbors, and pairwise linear classifiers.

The support vector machines have two solvers. "libsvm" is the solver of the authors' code; its time grows between
quadratically and cubically with the number of samples. "liblinear" minimizes the same hinge loss by dual coordinate
descent, but also penalizes the bias: :math:`\tfrac12 (\lVert w \rVert^2 + (b / s)^2)`. With s = 10 one vote in 2,500
differs on 22 pairs of tmc, and one in 1,500 on half of yeast. liblinear is faster for pairs with thousands of samples.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_chunked
from sklearn.svm import SVC, LinearSVC

from ccmn._containers import is_sparse, to_dense_floats
from ccmn._messages import warn
from ccmn._registry import Registry
from ccmn._validation import FloatArray

BLOCK_MEGABYTES = 16
"""Size of a block of distances or of rows that are made dense; blocks of this size stay in the processor cache."""
DISTANCE_PRECISION = 1e-12
"""Rounding error of squared distances, relative to the largest squared norm."""
MAX_LIBSVM_SAMPLES = 2000
"""svm="auto" uses libsvm for pairs with up to this number of samples, and liblinear for larger ones."""
MAX_LIBSVM_ITERATIONS = 100_000
"""Limit of libsvm for one pair, about a second for 1,000 samples. Pairs of the datasets of table 3 need at most 13,000
iterations; without a limit libsvm does not stop on some unscaled features."""
MAX_LIBLINEAR_SWEEPS = 50_000
"""Limit of liblinear for one pair, in passes over its samples."""
MIN_VOTE_DIFFERENCE = 1e-9
"""Smaller vote differences are ties. A label with a tie is not predicted: it needs more votes than its threshold."""
VIRTUAL = -1
"""Index of the virtual label, the second label of the last q pairs."""


# Stage 1: neighbors


Neighbors = tuple[NDArray[np.intp], FloatArray]
"""Row numbers (n, k), nearest first, and their Euclidean distances (n, k)."""


def nearest(X: Any, queries: NDArray[np.intp], among: NDArray[np.intp], k: int) -> Neighbors:
    """Return the k rows ``among`` (ascending) that are nearest to each query row, excluding the row itself.

    Ties are resolved by the smaller row number. Distances are computed in blocks, so memory is less than n x n; a
    sparse X stays sparse. There must be at least k other rows.
    """
    X = X if is_sparse(X) else X - X.mean(0)  # Centering increases the precision of the distances.
    norms = np.asarray(X.multiply(X).sum(1)).ravel() if is_sparse(X) else (X**2).sum(1)
    unit = DISTANCE_PRECISION * float(norms.max()) or 1.0

    def select(block: FloatArray, start: int) -> tuple[NDArray[np.intp], FloatArray]:
        # Rounding makes the distance of equal rows 0 and makes ties exact.
        steps = np.rint(np.divide(block, unit, out=block), out=block)
        query_rows = queries[start : start + len(block)]
        position = np.searchsorted(among, query_rows)
        is_included = among[np.minimum(position, len(among) - 1)] == query_rows
        steps[np.flatnonzero(is_included), position[is_included]] = np.inf
        order = _smallest(steps, k)
        return among[order], np.sqrt(np.take_along_axis(steps, order, 1) * unit)

    options: dict[str, Any] = {"metric": "euclidean", "squared": True, "working_memory": BLOCK_MEGABYTES}
    blocks = list(pairwise_distances_chunked(X[queries], X[among], reduce_func=select, **options))
    return np.concatenate([b[0] for b in blocks]), np.concatenate([b[1] for b in blocks])


def _smallest(values: FloatArray, k: int) -> NDArray[np.intp]:
    """Return the columns of the k smallest entries of each row in ascending order, ties by the smaller column."""
    limit = np.partition(values, k - 1, axis=1)[:, k - 1]
    result = np.empty((len(values), k), dtype=np.intp)
    for i, row in enumerate(values):
        columns = np.flatnonzero(row <= limit[i])
        result[i] = columns[np.argsort(row[columns], kind="stable")[:k]]
    return result


def neighbors_outside(X: Any, folds: NDArray[np.intp], k: int) -> Iterator[Neighbors]:
    """Yield for every fold the k nearest rows outside it of every row; more than k rows must be outside it.

    The distances are computed once, and more than k neighbors are kept. If fewer than k of them are outside a fold, the
    search is repeated for these rows.
    """
    n, n_folds = len(folds), int(folds.max()) + 1
    kept = nearest(X, np.arange(n), np.arange(n), min(n - 1, -(-2 * k * n_folds // max(n_folds - 1, 1))))
    for fold in range(n_folds):
        is_outside = folds[kept[0]] != fold
        order = np.argsort(~is_outside, axis=1, kind="stable")[:, :k]
        index, distance = np.take_along_axis(kept[0], order, 1), np.take_along_axis(kept[1], order, 1)
        incomplete = np.flatnonzero(is_outside.sum(1) < k)
        if incomplete.size:
            padding = ((0, 0), (0, k - index.shape[1]))
            index, distance = np.pad(index, padding), np.pad(distance, padding)
            index[incomplete], distance[incomplete] = nearest(X, incomplete, np.flatnonzero(folds != fold), k)
        yield index, distance


# Stage 1: label propagation


def reconstruction_weights(X: Any, rows: NDArray[np.intp], index: NDArray[np.intp]) -> FloatArray:
    r"""Return the weights with which the neighbors of each row reconstruct it, normalized to sum 1.

    They solve :math:`\min_{w \ge 0} \lVert x_i - \sum_a w_a x_a \rVert^2` without sum constraint and without intercept.
    All-zero weights are not normalized.
    """
    k = index.shape[1]
    weights = np.empty((len(rows), k))
    step = max(1, (BLOCK_MEGABYTES << 17) // max(1, k * X.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        targets = to_dense_floats(X[rows[part]])
        neighbors = to_dense_floats(X[index[part].ravel()]).reshape(-1, k, X.shape[1])
        for i, (target, basis) in enumerate(zip(targets, neighbors), start):
            weights[i] = _non_negative_weights(basis.T, target)
    return _normalize_rows(weights)


def _non_negative_weights(basis: FloatArray, target: FloatArray) -> FloatArray:
    """Return the non-negative least-squares weights; the 3 iterations per unknown of scipy are sometimes not enough."""
    try:
        return np.asarray(nnls(basis, target, maxiter=100 * basis.shape[1])[0])
    except RuntimeError:
        # The active-set method can cycle if neighbors are equal.
        return np.ones(basis.shape[1])


def transition_matrix(weights: FloatArray, index: NDArray[np.intp], n: int) -> scipy.sparse.csr_array:
    """Return a sparse matrix with n columns and the weights at the column numbers ``index``."""
    rows = np.repeat(np.arange(len(index)), index.shape[1])
    return scipy.sparse.csr_array((weights.ravel(), (rows, index.ravel())), shape=(len(index), n))


def propagate(transition: Any, Y: FloatArray, alpha: float, *, max_iter: int = 1000, tol: float = 1e-5) -> FloatArray:
    r"""Return the fixed point of :math:`F \leftarrow \alpha T F + (1 - \alpha) Y`, restricted to the candidates.

    Rows of F are normalized to sum 1 in every iteration; rows without candidates are zero. The iteration stops when the
    spectral norm of the change is below ``tol``; both limits are those of the authors' code.
    """
    F = Y
    for _ in range(max_iter):
        previous = F
        F = _normalize_rows((alpha * np.asarray(transition @ F) + (1 - alpha) * Y) * Y)
        change = F - previous
        # The spectral norm, computed from the small q x q Gram matrix.
        if np.sqrt(max(0.0, np.linalg.eigvalsh(change.T @ change)[-1])) < tol:
            return F
    warn(f"Label propagation did not converge in {max_iter} iterations; decrease alpha", ConvergenceWarning)
    return F


def label_confidence(F: FloatArray, Y: FloatArray) -> FloatArray:
    """Return propagated labels after class-mass normalization and row-wise min-max scaling.

    Column j is multiplied by sum(Y_j) / sum(F_j). Constant rows are replaced by the candidate set.
    """
    mass, propagated = Y.sum(0), F.sum(0)
    normalized = F * np.divide(mass, propagated, out=np.zeros_like(mass), where=propagated > 0)
    return scale_rows(normalized, constant_rows=Y)


def scale_rows(values: FloatArray, constant_rows: FloatArray) -> FloatArray:
    """Scale every row to [0, 1]; a row of equal values is replaced by the row of ``constant_rows``.

    >>> scale_rows(np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0]]), np.array([[0, 0, 0], [0, 1, 0]]))
    array([[0. , 1. , 0.5], [0. , 1. , 0. ]])
    """
    low, high = values.min(1, keepdims=True), values.max(1, keepdims=True)
    is_constant = high - low <= 1e-12 * np.abs(high)
    return np.where(is_constant, constant_rows, (values - low) / np.where(is_constant, 1.0, high - low))


def _normalize_rows(values: FloatArray) -> FloatArray:
    total = values.sum(1, keepdims=True)
    return np.asarray(np.divide(values, total, out=np.zeros_like(values), where=total > 0))


# Stage 1: credible labels


def assign_folds(n: int, n_folds: int, rng: np.random.Generator | None) -> NDArray[np.intp]:
    """Return the fold of every row: contiguous blocks in row order, or shuffled if a generator is given.

    >>> assign_folds(5, 2, None)
    array([0, 0, 0, 1, 1])
    """
    folds = np.sort(np.arange(n) % n_folds)
    return folds if rng is None else rng.permutation(folds)


def elicit_credible(
    X: Any, Y: FloatArray, folds: NDArray[np.intp], *, k: int, alpha: float, thr: float
) -> NDArray[np.int64]:
    """Return credible labels (n, q), 0 or 1; labels of a fold come from label propagation on the other folds."""
    n_available = max(0, len(Y) - int(np.bincount(folds).max()) - 1)
    if k > n_available:
        warn(f"k={k} exceeds the number of available neighbors; using k={n_available}")
        k = n_available
    if k == 0:
        warn("Too few samples for a neighbor search; all candidate labels are used as credible")
        return Y.astype(np.int64)
    credible = np.zeros(Y.shape, dtype=np.int64)
    for fold, (index, distance) in enumerate(neighbors_outside(X, folds, k)):
        inside, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        weights = reconstruction_weights(X, rest, index[rest])
        transition = transition_matrix(weights, np.searchsorted(rest, index[rest]), len(rest))
        F = np.zeros_like(Y)
        F[rest] = label_confidence(propagate(transition, Y[rest], alpha), Y[rest])
        credible[inside] = credible_labels((index[inside], distance[inside]), F, Y[inside], thr)
    return credible


def credible_labels(neighbors: Neighbors, F: FloatArray, candidates: FloatArray, thr: float) -> NDArray[np.int64]:
    r"""Return the labels whose weighted confidence over the neighbors is at least ``thr``.

    The confidence is :math:`r_j = \sum_a (1 - d_a / \sum_b d_b) F_{aj}`, scaled to [0, 1] within the row. Neighbors
    without candidates have zero rows in F and no influence. If all confidences of a row are equal, its candidates are
    credible. If no candidate reaches ``thr``, all labels that reach it are credible, as in the authors' code.
    """
    index, distance = neighbors
    total = distance.sum(1, keepdims=True)
    weights = 1 - np.divide(distance, total, out=np.zeros_like(distance), where=total > 0)
    # Equal weights if k = 1.
    weights = np.where(weights.sum(1, keepdims=True) > 0, weights, 1.0)
    confidence = np.einsum("ik,ikj->ij", weights, F[index])
    is_confident = scale_rows(confidence, constant_rows=candidates) >= thr
    both = is_confident & (candidates > 0)
    return np.where(both.any(1, keepdims=True), both, is_confident).astype(np.int64)


# Stage 2: pairwise classifiers


@dataclass(frozen=True)
class PairClassifiers:
    """Linear classifiers of all P = q (q - 1) / 2 + q pairs.

    ``weights`` are (d, P), ``biases`` (P,) and the training accuracies ``accuracy`` (P,), 0 for pairs without a
    classifier.
    """

    q: int
    weights: FloatArray
    biases: FloatArray
    accuracy: FloatArray

    def votes(self, X: Any) -> NDArray[np.bool_]:
        """Return the votes (n, P): True for the first label of the pair."""
        return np.asarray(np.asarray(X @ self.weights) + self.biases > 0)


def fit_pairs(
    X: Any, credible: NDArray[Any], Y: FloatArray, C: float, *, svm: str = "auto", n_jobs: int | None = None
) -> PairClassifiers:
    """Fit the classifiers of all pairs, in parallel processes if ``n_jobs`` is greater than 1."""
    pairs = label_pairs(Y.shape[1])
    samples = (pair_samples(credible, Y, j, label) for j, label in pairs)
    fitted = Parallel(n_jobs=n_jobs)(delayed(fit_pair)(X, *sample, C, svm) for sample in samples)
    w, b, accuracy, converged = zip(*fitted)
    n_unfinished = len(pairs) - sum(converged)
    if n_unfinished:
        warn(
            f"{n_unfinished} of {len(pairs)} pairwise classifiers did not converge within {MAX_LIBSVM_ITERATIONS} "
            f"iterations of libsvm or {MAX_LIBLINEAR_SWEEPS} sweeps of liblinear. Scale the features, for example with "
            "sklearn.preprocessing.MinMaxScaler in a pipeline, or decrease C.",
            ConvergenceWarning,
        )
    return PairClassifiers(Y.shape[1], np.stack(w, 1), np.array(b), np.array(accuracy))


def label_pairs(q: int) -> list[tuple[int, int]]:
    """Return all pairs j < l, then every label with the virtual label.

    >>> label_pairs(3)
    [(0, 1), (0, 2), (1, 2), (0, -1), (1, -1), (2, -1)]
    """
    return [*itertools.combinations(range(q), 2), *((j, VIRTUAL) for j in range(q))]


def pair_samples(
    credible: NDArray[Any], Y: FloatArray, j: int, label: int
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return the training rows of a pair, and 1 for rows of the first label, 0 for rows of the second.

    A row belongs to a label if this label is credible and the other one is not a candidate; if both hold, to the first.
    It belongs to the virtual label if j is neither candidate nor credible.
    """
    if label == VIRTUAL:
        positive, negative = credible[:, j] == 1, (Y[:, j] == 0) & (credible[:, j] == 0)
    else:
        positive = (credible[:, j] == 1) & (Y[:, label] == 0)
        negative = (credible[:, label] == 1) & (Y[:, j] == 0) & ~positive
    rows = np.flatnonzero(positive | negative)
    return rows, positive[rows].astype(np.int64)


def fit_pair(
    X: Any, rows: NDArray[np.intp], y: NDArray[np.int64], C: float, svm: str
) -> tuple[FloatArray, float, float, bool]:
    """Return w, b, the training accuracy and whether the solver converged; w'x + b > 0 is a vote for the first label.

    With a single class the vote is always for the first label, with weight 0.
    """
    if y.size == 0 or y.min() == y.max():
        return np.zeros(X.shape[1]), 1.0, 0.0, True
    samples = X[rows]
    with warnings.catch_warnings():
        # fit_pairs emits one warning for all pairs.
        warnings.simplefilter("ignore", ConvergenceWarning)
        w, b, converged = SVM_SOLVERS[svm](samples, y, C)
    accuracy = ((np.asarray(samples @ w) + b > 0) == (y == 1)).mean()
    return w, b, float(accuracy), converged


def _fit_libsvm(X: Any, y: NDArray[np.int64], C: float) -> tuple[FloatArray, float, bool]:
    svm = SVC(kernel="linear", C=C, max_iter=MAX_LIBSVM_ITERATIONS).fit(X, y)
    return to_dense_floats(svm.coef_).ravel(), float(svm.intercept_[0]), svm.fit_status_ == 0


def _fit_liblinear(X: Any, y: NDArray[np.int64], C: float) -> tuple[FloatArray, float, bool]:
    svm = LinearSVC(
        C=C,
        loss="hinge",
        dual=True,
        tol=1e-3,
        intercept_scaling=10.0,  # s of the module docstring
        max_iter=MAX_LIBLINEAR_SWEEPS,
        random_state=0,  # The order of the coordinates is random; a constant makes results reproducible.
    ).fit(X, y)
    return svm.coef_.ravel(), float(svm.intercept_[0]), bool(svm.n_iter_ < MAX_LIBLINEAR_SWEEPS)


def _fit_by_size(X: Any, y: NDArray[np.int64], C: float) -> tuple[FloatArray, float, bool]:
    return (_fit_libsvm if len(y) <= MAX_LIBSVM_SAMPLES else _fit_liblinear)(X, y, C)


SVM_SOLVERS: Registry[Callable[[Any, NDArray[np.int64], float], tuple[FloatArray, float, bool]]] = Registry(
    "svm", {"auto": _fit_by_size, "liblinear": _fit_liblinear, "libsvm": _fit_libsvm}
)


# Votes


def weighted_votes(votes: NDArray[np.bool_], accuracy: FloatArray, q: int) -> tuple[FloatArray, FloatArray]:
    r"""Return the votes of the labels (n, q) and of the virtual label (n, 1), weighted by training accuracy.

    .. math:: \zeta_j = \sum_{l > j} a_{jl} h_{jl} + \sum_{l < j} a_{lj} (1 - h_{lj}) + a_{jv} h_{jv}, \qquad
              \zeta_v = \sum_j a_{jv} (1 - h_{jv})

    The sum of all votes is the sum of the accuracies.
    """
    pairs = np.array(label_pairs(q))
    pairs[pairs == VIRTUAL] = q  # the last column collects the votes for the virtual label
    is_first, is_second = (np.equal.outer(part, np.arange(q + 1)).astype(np.float64) for part in pairs.T)
    zeta = (votes * accuracy) @ is_first + (~votes * accuracy) @ is_second
    return zeta[:, :q], zeta[:, q:]


def make_ties_negative(margins: FloatArray) -> FloatArray:
    """Replace margins close to 0 by a negative value, because ``predict`` includes labels with margin 0."""
    return np.where(np.abs(margins) < MIN_VOTE_DIFFERENCE, -MIN_VOTE_DIFFERENCE, margins)


def count_votes(votes: NDArray[np.bool_], q: int) -> NDArray[np.intp]:
    """Return the number of votes (n, q) for each label, 0 to q - 1, without pairs that include the virtual label."""
    weights = np.arange(votes.shape[1]) < q * (q - 1) // 2
    return np.rint(weighted_votes(votes, weights.astype(np.float64), q)[0]).astype(np.intp)


class VotePosterior(NamedTuple):
    """Posterior probability of a label given its number of votes.

    ``prior`` (q,) is the probability of every label, ``if_true`` and ``if_false`` (q, q) are the probabilities of 0 to
    q - 1 votes if it is true or false.
    """

    prior: FloatArray
    if_true: FloatArray
    if_false: FloatArray

    @classmethod
    def fit(cls, Y: FloatArray, counts: NDArray[np.intp], positive: NDArray[Any]) -> VotePosterior:
        """Estimate the prior by smoothed frequencies of the candidates Y, and the others among the counts of votes."""
        (n, q), tables = counts.shape, []
        for selected in (positive, Y == 0):
            columns = [np.bincount(counts[selected[:, j], j], minlength=q) for j in range(q)]
            frequency = np.array(columns, dtype=np.float64)
            tables.append((1 + frequency) / (q + frequency.sum(1, keepdims=True)))
        return cls((1 + Y.sum(0)) / (2 + n), *tables)

    def margins(self, counts: NDArray[np.intp]) -> FloatArray:
        """Return the posterior probabilities minus 1/2."""
        label = np.arange(counts.shape[1])
        true, false = self.prior * self.if_true[label, counts], (1 - self.prior) * self.if_false[label, counts]
        return make_ties_negative(true / (true + false) - 0.5)
