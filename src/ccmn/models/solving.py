"""Which way a fit goes: in closed form, by L-BFGS, or by the loop."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ccmn.models.features import scale_warning
from ccmn.models.fitting import Fitted, Recipe, fit_loop, held_out_rows, in_memory
from ccmn.models.paths import fit_closed_form, fit_logistic_path
from ccmn.models.progress import progress_of
from ccmn.models.samples import Labels, Sample
from ccmn.training import Ranks
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.lbfgs import can_decompose
from ccmn.training.ridge import LARGEST_DECOMPOSITION, few_threads

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier

MOST_ROWS_FOR_LBFGS = 5000
"""Up to this many rows "auto" prefers L-BFGS to Adam (docs/training.md has the measurements)."""
_LINEAR = (
    "model='linear', loss='hamming', surrogate={!r}, no correction and every label observed (and dense, or not so many)"
)
NEEDS = {
    "closed_form": f"solver='closed_form' needs {_LINEAR.format('square')}; use solver='auto'",
    "lbfgs": f"solver='lbfgs' needs {_LINEAR.format('logistic')}, and at most {LARGEST_DECOMPOSITION} rows or "
    "features (features, if X is sparse, of which the rows must then fit 256 MB when dense); use solver='auto'",
}
"""The solvers that look at all rows at once, and what to say where they cannot."""


def solve(
    clf: CCMNClassifier,
    recipe: Recipe,
    training: Sample,
    labels: Labels,
    held_out: Sample,
    verbose: int,
    keeper: Checkpoint | None,
) -> Fitted:
    """Train on rows in memory; ``labels`` are what the loss takes, debiased or not."""
    way = choose_solver(clf, training, held_out)
    if way == "closed_form":
        with few_threads(training.X):
            return fit_closed_form(recipe, training, held_out)
    if way == "lbfgs":
        with few_threads(training.X):
            return fit_logistic_path(recipe, training, held_out)
    warn_if_badly_scaled(clf, training.X)
    ready, rows = in_memory(recipe, training, labels), held_out_rows(recipe, held_out)
    with progress_of(verbose, recipe.criterion) as tell:
        return fit_loop(recipe, ready, rows, tell, keeper)


def warn_if_badly_scaled(clf: CCMNClassifier, X: Any, stacklevel: int = 4) -> None:
    """Warn if the built-in networks train poorly on these features; a network of the user may scale them itself."""
    message = scale_warning(X, getattr(clf, "feature_names_in_", None)) if isinstance(clf.model, str) else None
    if message is not None and Ranks.current().writes:
        warnings.warn(message, stacklevel=stacklevel)


def choose_solver(clf: CCMNClassifier, training: Sample, held_out: Sample) -> str:
    """The solver asked for, or for "auto" the quickest that these parameters and rows allow."""
    plain = clf.model == "linear" and clf.loss == "hamming" and clf.correction is None
    # Both paths need all labels at once.
    plain = plain and isinstance(held_out.p, np.ndarray)
    plain = plain and isinstance(training.p, np.ndarray) and not np.isnan(training.p).any()
    possible = {
        "closed_form": plain and clf.surrogate == "square",
        "lbfgs": plain and clf.surrogate == "logistic" and can_decompose(training.X),
    }
    if clf.solver != "auto":
        if not possible.get(clf.solver, True):
            raise ValueError(NEEDS[clf.solver])
        return clf.solver
    if possible["closed_form"]:
        return "closed_form"
    few = training.X.shape[0] <= MOST_ROWS_FOR_LBFGS
    return "lbfgs" if possible["lbfgs"] and few else "adam"
