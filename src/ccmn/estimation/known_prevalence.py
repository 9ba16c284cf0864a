"""Rates from known prevalence (section 1, item 5): closed form where labels were only added, or only lost."""

from __future__ import annotations

import numpy as np

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.profile import profile_labels
from ccmn.estimation.rates import NEVER, UNINFORMED, Z_LEVEL, LabelRates, Rate, Side
from ccmn.estimation.surface import shares


def known_prevalence(evidence: Evidence) -> list[LabelRates]:
    r"""Rates that turn the known share of true positives into the observed one.

    .. math:: \text{only added: } \rho_{neg} = \frac{\tilde p - \pi}{1 - \pi}, \qquad
              \text{only lost: } \rho_{pos} = 1 - \frac{\tilde p}{\pi}

    With both sides open the prevalence fixes one rate given the other, and the profile likelihood decides between the
    pairs that are left; that needs features or scores.
    """
    if evidence.prevalence is None:
        raise ValueError("method='known_prevalence' needs prevalence=, the share of true positives of every label")
    open_sides = [j for j, side in enumerate(evidence.sides) if side == "both" or np.isnan(evidence.prevalence[j])]
    if open_sides and evidence.X is None:
        raise ValueError("with both sides open a prevalence is not enough: declare sides, or give the features X, too")
    rest = profile_labels(evidence, [None] * len(evidence.sides)) if open_sides else []
    observed = shares(evidence.Y)
    rows = (~np.isnan(evidence.Y)).sum(0)
    return [
        rest[j]._replace(method="profile, known prevalence")
        if j in open_sides
        else closed_form(float(observed[j]), int(rows[j]), float(evidence.prevalence[j]), side)
        for j, side in enumerate(evidence.sides)
    ]


def closed_form(observed: float, n: int, prevalence: float, side: Side) -> LabelRates:
    """One label whose side is declared; a prevalence that no rate of that side explains is flagged."""
    missing = side == "missing"
    if not n or (prevalence == 0 if missing else prevalence == 1):
        note = "no rate can be told: nothing was observed, or there is no row that could be wrong"
        return _label(UNINFORMED, side, (("unidentified", note),))
    room = prevalence if missing else 1 - prevalence
    value = 1 - observed / prevalence if missing else (observed - prevalence) / room
    se = np.sqrt(max(observed * (1 - observed), 0.25 / n) / n) / room
    notes: tuple[tuple[str, str], ...] = ()
    if value < -2 * se:
        wrong = "more" if missing else "fewer"
        note = f"{wrong} positives were observed ({observed:.3f}) than there are ({prevalence:.3f}): check the side"
        notes = (("side_contradicted", note),)
    kept = float(np.clip(value, 0, 1))
    ends = (float(np.clip(value + sign * Z_LEVEL * se, 0, 1)) for sign in (-1, 1))
    return _label(Rate(kept, float(se), *ends), side, notes)


def _label(rate: Rate, side: Side, notes: tuple[tuple[str, str], ...]) -> LabelRates:
    pos, neg = (rate, NEVER) if side == "missing" else (NEVER, rate)
    return LabelRates(pos, neg, "point", "known prevalence", notes)


def read_prevalence(prevalence: FloatArray, q: int) -> FloatArray:
    """(q,) shares of true positives, from one number or one for each label; NaN where not known."""
    given = np.asarray(prevalence, dtype=np.float64)
    values = np.full(q, float(given)) if given.ndim == 0 else given
    if values.shape != (q,) or not ((values >= 0) & (values <= 1) | np.isnan(values)).all():
        raise ValueError(
            f"prevalence must be a share between 0 and 1, or one for each of the {q} labels (NaN: not known); "
            f"got {prevalence!r}"
        )
    return values
