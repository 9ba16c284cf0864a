"""Why is the unbiased ranking loss with the square surrogate less accurate?
=========================================================================

For a linear model f = W x this loss is a quadratic form in W: the sum over pairs of p_j n_k (1 - f_j + f_k)^2, with
debiased labels p and n = 1 - p. True labels give weights of 0 and 1 and a convex form. Debiased labels give weights of
either sign: the form is convex in expectation, but not on a finite sample. If its Hessian has a negative eigenvalue,
the risk has no minimum, and only early stopping prevents divergence in that direction.

Result: the plain form has no negative eigenvalue. The unbiased form has negative ones, which are larger if there are
few rows per weight. Enron, with 851 training rows and 1002 weights per label, has the largest of these datasets.

    python examples/03_ranking_square.py --data-dir DIR            (about one minute)
    python examples/03_ranking_square.py --data-dir DIR --quick    (only yeast)
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from ccmn.paper.protocols import LITERAL, MODERATE, make_repeat
from ccmn.paper.runner import load
from ccmn.paper.tables import TABLES


def hessian(X: np.ndarray, p: np.ndarray) -> LinearOperator:
    """Return the Hessian of the mean ranking-square risk in W, (d + 1) x (q + 1) with the dummy label first.

    The form of a row is 2 sum_{j<k} S_jk (f_j - f_k)^2 / 2 with S_jk = p_j n_k + p_k n_j, and S_j0 = 1 for the dummy.
    """
    n_rows, q = p.shape
    design = np.hstack([X, np.ones((n_rows, 1))])
    n = 1 - p
    # Sums over the other labels, plus 1 for the dummy label.
    sums = p * n.sum(1, keepdims=True) + n * p.sum(1, keepdims=True) - 2 * p * n + 1

    def product(flat: np.ndarray) -> np.ndarray:
        f = design @ flat.reshape(-1, q + 1)
        labels, dummy = f[:, 1:], f[:, :1]
        mixed = p * (n * labels).sum(1, keepdims=True) + n * (p * labels).sum(1, keepdims=True) - 2 * p * n * labels
        along = np.hstack([q * dummy - labels.sum(1, keepdims=True), sums * labels - mixed - dummy])
        return (2 / n_rows * design.T @ along).ravel()

    size = design.shape[1] * (q + 1)
    return LinearOperator((size, size), matvec=product, dtype=np.float64)


def extremes(X: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest eigenvalue, to a thousandth of the largest."""
    form = hessian(X, p)
    high = _largest(form)
    # The plain form has many zero eigenvalues, for which a direct search of the smallest one converges slowly.
    flipped = LinearOperator(form.shape, matvec=lambda w: high * w - form @ w, dtype=np.float64)
    return high - _largest(flipped), high


def _largest(form: LinearOperator) -> float:
    return float(eigsh(form, 1, which="LA", tol=3e-4, ncv=30, return_eigenvectors=False)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=None, help="folder of the datasets (default: CCMN_DATA)")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    print("smallest / largest eigenvalue of the Hessian")
    print(
        f"{'':<12}{'rows':>7}{'weights per label':>19}{'plain':>10}{'unbiased, moderate':>20}{'unbiased, literal':>20}"
    )
    for name in ("yeast",) if options.quick else ("yeast", "scene", "mirflickr", "enron"):
        data = load(TABLES["table1"], name, options.data_dir)
        ratios = []
        for protocol, unbiased in ((MODERATE, False), (MODERATE, True), (LITERAL, True)):
            repeat = make_repeat(data, protocol, 0)
            X = data.X[repeat.train]
            X = np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, dtype=np.float64)
            noisy = np.asarray(repeat.noisy)[repeat.train].astype(float)
            low, high = extremes(X, np.asarray(repeat.noise.debias(noisy)) if unbiased else noisy)
            ratios.append(low / high)
        figures = f"{ratios[0]:>10.3f}{ratios[1]:>20.3f}{ratios[2]:>20.3f}"
        print(f"{name:<12}{len(X):>7}{X.shape[1] + 1:>19}{figures}")


if __name__ == "__main__":
    main()
