"""Methods that are fitted one at a time, by the face they share with scikit-learn's estimators."""

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

from ccmn._registry import Catalogue
from ccmn.baselines import BASELINES
from ccmn.data.multilabel import MultiLabelData
from ccmn.experiments.criteria import SELECTIONS, HeldOutLabels, clean_metrics, criteria
from ccmn.experiments.fleet import Outcome
from ccmn.experiments.protocols import Repeat


@dataclass(frozen=True)
class Rival:
    """A row of table 3 that a fleet does not train.

    Parameters
    ----------
    make : keyword arguments -> an estimator with ``fit(X, candidates)`` and ``decision_function``
    grid : the settings tried on validation rows; a single one where the literature has defaults
    """

    name: str
    make: Callable[..., Any]
    grid: tuple[Mapping[str, Any], ...] = ({},)

    @classmethod
    def of(cls, name: str, **given: Any) -> Rival:
        """A baseline with the grid it is searched over; what is given holds for all of it."""
        entry = BASELINES[name]
        grid = tuple({**given, **point} for point in ParameterGrid(dict(entry.search_grid)))
        return cls(name, entry.make, grid)


def run_rival(
    rival: Rival, data: MultiLabelData, repeat: Repeat, metrics: Sequence[str], *, refit: bool = False
) -> Outcome:
    """Fit at every setting of its grid; for each metric the test value at the setting best on validation rows.

    With ``refit`` that setting is fitted once more on training and validation rows together before it is tested.
    """
    fitted = [_fitted(rival, setting, data, repeat, repeat.train) for setting in rival.grid]
    validation = [_scores(each, data, repeat.validation) for each in fitted]
    wanted = criteria(metrics)
    Y = torch.from_numpy(np.asarray(data.Y))
    debiased = torch.from_numpy(np.asarray(repeat.noise.debias(repeat.noisy[repeat.validation])))
    labels = HeldOutLabels(Y[repeat.validation][None, None], debiased[None, None])
    best = labels.measure(wanted, torch.stack(validation).unsqueeze(0))
    best = best[:, 0].nan_to_num(nan=-torch.inf)
    tested = {}
    for number in set(best.argmax(1).tolist()):
        final = _fitted(rival, rival.grid[number], data, repeat, repeat.known) if refit else fitted[number]
        tested[number] = clean_metrics(Y[repeat.test], _scores(final, data, repeat.test), metrics)
    outcome = Outcome(rival.name, repeat.number, {s: {} for s in SELECTIONS}, {s: {} for s in SELECTIONS})
    for criterion, value in zip(wanted, best):
        number = int(value.argmax())
        choice = {**rival.grid[number], "validation": criterion.sign * float(value[number])}
        for metric in criterion.decides:
            outcome.values[criterion.selection][metric] = float(tested[number][metric])
            outcome.chosen[criterion.selection][metric] = choice
    return outcome


def _fitted(
    rival: Rival, setting: Mapping[str, Any], data: MultiLabelData, repeat: Repeat, rows: NDArray[np.intp]
) -> Any:
    with warnings.catch_warnings():
        # Part of a grid may not converge in time; it is judged like the rest.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return rival.make(**setting).fit(data.X[rows], np.asarray(repeat.noisy[rows]))


def _scores(fitted: Any, data: MultiLabelData, rows: Any) -> Tensor:
    return torch.from_numpy(np.asarray(fitted.decision_function(data.X[rows]), dtype=np.float64))


# Without an intercept these two could not fit how common a label is, on features that are not centred.
RIVALS: Catalogue[Rival] = Catalogue(
    "rival",
    {
        rival.name: rival
        for rival in (
            Rival.of("PMLNI"),
            # Residuals of 1e-3 are below what moves a third decimal of a metric.
            Rival.of("PMLLRS", fit_intercept=True, tol=1e-3, max_iter=500),
            Rival.of("PARVLS"),
            Rival.of("PARMAP"),
            Rival.of("fPML", fit_intercept=True),
            Rival.of("ridge"),
            Rival.of("logistic"),
        )
    },
)
"""What table 3 compares with. All take candidate labels alone; none is told a rate."""
