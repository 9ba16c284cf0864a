"""Cross-validated profile likelihood with the other labels as evidence (sections 16 and 17): the default."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.posterior import Counts, caution_with, like_others, log_posterior, rare, rates_of, weights
from ccmn.estimation.rates import NEVER, UNINFORMED, LabelRates
from ccmn.estimation.surface import FEWEST, GRIDS, shares


def profile(evidence: Evidence) -> list[LabelRates]:
    """Rates at which a corrected logistic model explains the noisy labels of rows it has not seen best.

    See :func:`ccmn.estimation.surface.surface` for the likelihood and :func:`ccmn.estimation.posterior.log_posterior`
    for what is made of it. No row need be certain of its label; what is assumed instead is a shape: the posterior of
    the true label is logistic along some direction of the features. Labels with fewer than 20 observed rows of their
    rarer class lean on the others (flag ``shrunk``).
    """
    if evidence.pred_proba is not None:
        raise ValueError("method='profile' fits models of its own: give the features X in place of pred_proba")
    return profile_labels(evidence, [None] * evidence.Y.shape[1])


def profile_labels(evidence: Evidence, counts: Sequence[Counts | None], blind: Sequence[int] = ()) -> list[LabelRates]:
    """Posterior rates of every label; the labels in ``blind`` are judged by their counts, not by their likelihood."""
    log_values = [_log_posterior(evidence, j, counts[j], j in blind) for j in range(len(evidence.sides))]
    rarer = np.minimum((evidence.Y == 1).sum(0), (evidence.Y == 0).sum(0))
    informed = rarer >= FEWEST
    result = []
    for j, side in enumerate(evidence.sides):
        alike = [k for k in np.flatnonzero(informed).tolist() if evidence.sides[k] == side]
        if informed[j] or (len(alike) < 2 and (rarer[j] or counts[j] is not None)):
            result.append(_label(evidence, j, log_values[j], counts[j]))
        elif len(alike) < 2:
            result.append(_unidentified(evidence, j))
        else:
            grid = GRIDS[side]
            others = np.mean([weights(log_values[k] + rare(grid, _observed(evidence, k))) for k in alike], 0)
            label = _label(evidence, j, like_others(others, log_values[j]), counts[j])
            note = f"{int(rarer[j])} observed rows of the rarer class are too few: the rates lean on the other labels"
            result.append(label._replace(notes=(*label.notes, ("shrunk", note))))
    return result


def _log_posterior(evidence: Evidence, j: int, counts: Counts | None, blind: bool) -> FloatArray:
    grid, observed = GRIDS[evidence.sides[j]], _observed(evidence, j)
    surface = evidence.surfaces.values[j]
    if blind:
        surface = np.where(np.isfinite(surface), 0.0, surface)
    known = None if evidence.prevalence is None else float(evidence.prevalence[j])
    rows = int((~np.isnan(evidence.Y[:, j])).sum())
    given = None if known is None or np.isnan(known) else known
    return log_posterior(surface, grid, observed, counts, given, rows, _caution(evidence, j))


def _caution(evidence: Evidence, j: int) -> float:
    found = evidence.surfaces
    return caution_with(evidence.sides[j], found.scores[:, j], evidence.Y[found.rows, j])


def _observed(evidence: Evidence, j: int) -> float:
    return float(shares(evidence.Y[:, [j]])[0])


def _label(evidence: Evidence, j: int, log_values: FloatArray, counts: Counts | None) -> LabelRates:
    pos, neg = rates_of(log_values, GRIDS[evidence.sides[j]], _observed(evidence, j))
    return LabelRates(pos, neg, "point", _method(evidence, counts))


def _method(evidence: Evidence, counts: Counts | None) -> str:
    parts = ("trusted", counts is not None), ("profile", evidence.X is not None)
    return " + ".join(name for name, there in parts if there) or "known prevalence"


def _unidentified(evidence: Evidence, j: int) -> LabelRates:
    side = evidence.sides[j]
    note = "every observed label is the same, and there are no others to lean on"
    return LabelRates(
        NEVER if side == "partial" else UNINFORMED,
        NEVER if side == "missing" else UNINFORMED,
        "point",
        "profile",
        (("unidentified", note),),
    )
