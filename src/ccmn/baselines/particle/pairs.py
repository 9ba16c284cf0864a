r"""Stage 2: a linear support vector machine for every pair of labels, and for every label against a virtual one.

Two solvers. "libsvm" is the released program's: SVC with a linear kernel, time between quadratic and cubic in the rows.
"liblinear" minimises the same hinge loss and the same penalty, by dual coordinate descent over features instead of
kernel values. It differs in that the bias is penalised as well, :math:`\tfrac12 (\lVert w \rVert^2 + (b / s)^2)`; at
s = 1, scikit-learn's default, one vote in fifty differed on 22 pairs of tmc, at s = 10 one in 2,500 (on all pairs of
half of yeast one in 90, and one in 1,500); a larger s is slower still. It is many times faster than libsvm on pairs of
thousands of rows, such as those of tmc, and slower on hundreds, such as those of yeast: "auto" takes libsvm up to 2,000
rows.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC

from ccmn._registry import Catalogue
from ccmn._validation import FloatArray
from ccmn.baselines.decomposition import dense
from ccmn.baselines.particle.progress import Progress

T = TypeVar("T")

VIRTUAL = -1
"""The label that every row has, in place of the second of a pair."""
MOST_FOR_LIBSVM = 2000
"""Rows of a pair, up to which "auto" takes libsvm."""
MAX_LIBSVM_ITERATIONS = 1_000_000
"""Limit of libsvm for one pair, about one second on 500 rows. Pairs of scaled features need less than 20,000; without a
limit libsvm does not end on some unscaled features."""
MAX_LIBLINEAR_SWEEPS = 50_000
"""Limit of liblinear for one pair, in passes over its rows."""
_BIAS_SCALE = 10.0
_TOLERANCE = 1e-3
_NATIVE_CALL = threading.Lock()
"""Held during a call of libsvm or liblinear: both keep global state."""
_BLOCKS = 20


class Hyperplane(NamedTuple):
    """w'x + b > 0 is a vote for the first label; its accuracy on the rows it was fitted to."""

    w: FloatArray
    b: float
    accuracy: float
    converged: bool


def label_pairs(q: int) -> list[tuple[int, int]]:
    """All pairs j < l, then every label with the virtual one.

    >>> label_pairs(3)
    [(0, 1), (0, 2), (1, 2), (0, -1), (1, -1), (2, -1)]
    """
    return [*itertools.combinations(range(q), 2), *((j, VIRTUAL) for j in range(q))]


def pair_rows(credible: NDArray[Any], Y: FloatArray, j: int, label: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """The rows that tell two labels apart, and 1 where they speak for the first.

    For: j is credible and the other no candidate. Against: the other way round, unless it is for already. The virtual
    label is beaten where j is credible and wins where j is neither candidate nor credible.
    """
    if label == VIRTUAL:
        positive, negative = credible[:, j] == 1, (Y[:, j] == 0) & (credible[:, j] == 0)
    else:
        positive = (credible[:, j] == 1) & (Y[:, label] == 0)
        negative = (credible[:, label] == 1) & (Y[:, j] == 0) & ~positive
    rows = np.flatnonzero(positive | negative)
    return rows, positive[rows].astype(np.int64)


def _liblinear(X: Any, y: NDArray[np.int64], C: float) -> tuple[FloatArray, float, bool]:
    # The order in which rows are visited is random but always the same.
    svm = LinearSVC(
        C=C,
        loss="hinge",
        dual=True,
        tol=_TOLERANCE,
        intercept_scaling=_BIAS_SCALE,
        max_iter=MAX_LIBLINEAR_SWEEPS,
        random_state=0,
    ).fit(X, y)
    return svm.coef_.ravel(), float(svm.intercept_[0]), bool(svm.n_iter_ < MAX_LIBLINEAR_SWEEPS)


def _libsvm(X: Any, y: NDArray[np.int64], C: float) -> tuple[FloatArray, float, bool]:
    svm = SVC(kernel="linear", C=C, max_iter=MAX_LIBSVM_ITERATIONS).fit(X, y)
    return dense(svm.coef_).ravel(), float(svm.intercept_[0]), svm.fit_status_ == 0


def _by_size(X: Any, y: NDArray[np.int64], C: float) -> tuple[FloatArray, float, bool]:
    return (_libsvm if len(y) <= MOST_FOR_LIBSVM else _liblinear)(X, y, C)


SVMS: Catalogue[Callable[[Any, NDArray[np.int64], float], tuple[FloatArray, float, bool]]] = Catalogue(
    "svm", {"auto": _by_size, "liblinear": _liblinear, "libsvm": _libsvm}
)


def _run_interruptible(call: Callable[[], T]) -> T:
    """Return the result of a native call; the calling thread handles signals such as Ctrl-C meanwhile.

    The call runs in a daemon thread. After an interrupt that thread ends at the iteration limit of the solver, and the
    next call waits for it.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    cancelled = threading.Event()

    def run() -> None:
        with _NATIVE_CALL:
            if cancelled.is_set():
                return
            try:
                results.append(call())
            except BaseException as error:
                errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except BaseException:
        cancelled.set()
        raise
    if errors:
        raise errors[0]
    return results[0]


def fit_pair(X: Any, rows: NDArray[np.intp], y: NDArray[np.int64], C: float, svm: str) -> Hyperplane:
    """One classifier. With nothing on one side there is none: it votes for the first label, with weight 0."""
    if y.size == 0 or y.min() == y.max():
        return Hyperplane(np.zeros(X.shape[1]), 1.0, 0.0, True)
    own = X[rows]
    with warnings.catch_warnings():
        # Said once for all pairs.
        warnings.simplefilter("ignore", ConvergenceWarning)
        w, b, converged = _run_interruptible(lambda: SVMS[svm](own, y, C))
    right = ((np.asarray(own @ w) + b > 0) == (y == 1)).mean()
    return Hyperplane(w, b, float(right), converged)


@dataclass(frozen=True)
class PairClassifiers:
    """The hyperplanes of all pairs side by side: weights (d, P), biases and accuracies (P,)."""

    q: int
    weights: FloatArray
    biases: FloatArray
    accuracy: FloatArray

    def votes(self, X: Any) -> NDArray[np.bool_]:
        """(n, P): True is a vote for the first label of the pair."""
        return np.asarray(np.asarray(X @ self.weights) + self.biases > 0)


def fit_pairs(
    X: Any,
    credible: NDArray[Any],
    Y: FloatArray,
    C: float,
    *,
    svm: str = "auto",
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> PairClassifiers:
    """q (q - 1) / 2 + q classifiers, in parallel processes (both solvers keep global state: threads would not do)."""
    pairs = label_pairs(Y.shape[1])
    size = max(1, -(-len(pairs) // _BLOCKS))
    found: list[Hyperplane] = []
    with Parallel(n_jobs=n_jobs) as parallel:
        for start in range(0, len(pairs), size):
            jobs = (pair_rows(credible, Y, j, label) for j, label in pairs[start : start + size])
            found += parallel(delayed(fit_pair)(X, rows, y, C, svm) for rows, y in jobs)
            if progress is not None:
                progress.show(len(found), len(pairs))
    _warn_of_unfinished(found)
    w, b, accuracy, _ = zip(*found)
    return PairClassifiers(Y.shape[1], np.stack(w, 1), np.array(b), np.array(accuracy))


def _warn_of_unfinished(found: list[Hyperplane]) -> None:
    unfinished = sum(not h.converged for h in found)
    if unfinished:
        warnings.warn(
            f"{unfinished} of {len(found)} pair classifiers did not converge within {MAX_LIBSVM_ITERATIONS} iterations "
            f"of libsvm or {MAX_LIBLINEAR_SWEEPS} sweeps of liblinear. Scale the features, for example with "
            "sklearn.preprocessing.MinMaxScaler in a pipeline, or decrease C.",
            ConvergenceWarning,
            stacklevel=4,
        )
