"""Competing methods of table 3: scikit-learn style estimators, fitted one at a time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid
from torch import Tensor

from ccmn._registry import Registry
from ccmn.baselines import BASELINES
from ccmn.data.dataset import MultiLabelData
from ccmn.experiments.fleet import HeldOutSet, Outcome, criteria
from ccmn.experiments.paper_tables import SELECTIONS
from ccmn.experiments.protocols import Repeat


@dataclass(frozen=True)
class CompetingMethod:
    """Row of table 3 that is not trained as a fleet (a group of models trained together as one batch)."""

    name: str
    make: Callable[..., Any]
    """Keyword arguments -> an estimator with ``fit(X, candidates)`` and ``decision_function``."""
    grid: tuple[Mapping[str, Any], ...] = ({},)
    """Hyperparameters that are tried on the validation rows; a single one where the literature has defaults."""

    @classmethod
    def from_baseline(cls, name: str, **fixed: Any) -> CompetingMethod:
        """Return a baseline with its search grid and some fixed hyperparameters."""
        baseline = BASELINES[name]
        grid = tuple({**fixed, **point} for point in ParameterGrid(dict(baseline.search_grid)))
        return cls(name, baseline.make, grid)


COMPETING_METHODS: Registry[CompetingMethod] = Registry(
    "competing method",
    {
        method.name: method
        for method in (
            CompetingMethod.from_baseline("PMLNI"),
            # The features are not centered: without an intercept, PMLLRS and fPML could not fit the label frequencies.
            # Residuals of 1e-3 do not change the third decimal of a metric.
            CompetingMethod.from_baseline("PMLLRS", fit_intercept=True, tol=1e-3, max_iter=500),
            CompetingMethod.from_baseline("PARVLS"),
            CompetingMethod.from_baseline("PARMAP"),
            CompetingMethod.from_baseline("fPML", fit_intercept=True),
            CompetingMethod.from_baseline("ridge"),
            CompetingMethod.from_baseline("logistic"),
        )
    },
)
"""Methods that table 3 compares with. They see candidate labels only and no noise rates."""


def run_competing_method(
    method: CompetingMethod, data: MultiLabelData, repeat: Repeat, metrics: Sequence[str], *, refit: bool = False
) -> Outcome:
    """Fit a method with every point of its grid and evaluate the best point for each metric on the test rows.

    Parameters
    ----------
    method : CompetingMethod
        Estimator and search grid.
    data : MultiLabelData
        Features and true labels.
    repeat : Repeat
        Split and candidate labels.
    metrics : sequence of str
        Metrics of the table.
    refit : bool, default=False
        Whether the selected point is fitted again on the training and validation rows before the test.

    Returns
    -------
    Outcome
        Test values and selected hyperparameters.
    """
    fitted = [_fit(method, point, data, repeat, repeat.train) for point in method.grid]
    validation = torch.stack([_scores(estimator, data, repeat.validation) for estimator in fitted])
    wanted = criteria(metrics)
    Y = torch.from_numpy(np.asarray(data.Y))
    debiased = torch.from_numpy(np.asarray(repeat.noise.debias(repeat.noisy[repeat.validation])))
    labels = HeldOutSet(Y[repeat.validation][None, None], debiased[None, None])
    values = labels.measure(wanted, validation.unsqueeze(0))[:, 0].nan_to_num(nan=-torch.inf)
    test, tested = HeldOutSet(Y[repeat.test]), {}
    for number in set(values.argmax(1).tolist()):
        final = _fit(method, method.grid[number], data, repeat, repeat.known) if refit else fitted[number]
        tested[number] = test.metrics(_scores(final, data, repeat.test), metrics)
    outcome = Outcome(method.name, repeat.number, {s: {} for s in SELECTIONS}, {s: {} for s in SELECTIONS})
    for criterion, value in zip(wanted, values):
        number = int(value.argmax())
        choice = {**method.grid[number], "validation": criterion.sign * float(value[number])}
        for metric in criterion.decides:
            outcome.values[criterion.selection][metric] = float(tested[number][metric])
            outcome.chosen[criterion.selection][metric] = choice
    return outcome


def _fit(
    method: CompetingMethod, point: Mapping[str, Any], data: MultiLabelData, repeat: Repeat, rows: NDArray[np.intp]
) -> Any:
    with warnings.catch_warnings():
        # Some points of a grid do not converge; the validation rows decide about them like about the others.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return method.make(**point).fit(data.X[rows], np.asarray(repeat.noisy[rows]))


def _scores(fitted: Any, data: MultiLabelData, rows: Any) -> Tensor:
    return torch.from_numpy(np.asarray(fitted.decision_function(data.X[rows]), dtype=np.float64))
