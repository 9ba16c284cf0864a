"""Rates per source: each group of rows estimated from its own rows, small ones from all rows together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.estimation.evidence import Evidence, Trusted
from ccmn.estimation.noise_rates import Flag, NoiseRates
from ccmn.noise import ClassConditionalNoise, GroupedNoise

FEWEST_ROWS = 100
"""Rows below which a group is not estimated by itself."""


@dataclass(frozen=True, eq=False)
class GroupRates:
    """Estimated rates of every group of rows.

    Attributes
    ----------
    rates : mapping from group to NoiseRates
        A group declared clean has rates of zero, of kind "known".
    """

    rates: Mapping[Any, NoiseRates]

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups, as they first appear."""
        return tuple(self.rates)

    @property
    def noise(self) -> GroupedNoise:
        """The noise model with these rates; it debiases rows by their group."""
        return GroupedNoise({group: as_two_sided(rates) for group, rates in self.rates.items()})

    @property
    def cautious_noise(self) -> GroupedNoise:
        """The noise model to train with; see :attr:`NoiseRates.cautious_noise`."""
        models = {group: rates.cautious_noise for group, rates in self.rates.items()}
        return GroupedNoise({group: as_two_sided(model) for group, model in models.items()})

    @property
    def flags(self) -> tuple[tuple[Any, Flag], ...]:
        """(group, flag) of every doubt."""
        return tuple((group, flag) for group, rates in self.rates.items() for flag in rates.flags)

    def __getitem__(self, group: Any) -> NoiseRates:
        return self.rates[group]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe where the groups are; ``from_dict`` reads it back."""
        return {"groups": [[group, rates.to_dict()] for group, rates in self.rates.items()]}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> GroupRates:
        """The inverse of ``to_dict``."""
        return cls({group: NoiseRates.from_dict(rates) for group, rates in d["groups"]})

    def __repr__(self) -> str:
        return "\n".join(f"group {group!r}: {rates!r}" for group, rates in self.rates.items())


def as_two_sided(rates: NoiseRates | ClassConditionalNoise) -> ClassConditionalNoise:
    """The rates as the plain class of noise models: groups may differ in which side is open."""
    return ClassConditionalNoise(rates.rho_pos, rates.rho_neg, label_names=rates.label_names)


def rows_of(index: NDArray[np.intp], names: Sequence[Any], clean: Sequence[Any]) -> dict[Any, NDArray[np.intp] | None]:
    """The rows each group is estimated from: its own, all that are not clean where it is small, None where clean."""
    strange = [group for group in clean if group not in names]
    if strange:
        raise ValueError(f"clean_groups names {strange[0]!r}, which no row belongs to")
    unclean = np.flatnonzero(~np.isin(index, [names.index(group) for group in clean]))
    result: dict[Any, NDArray[np.intp] | None] = {}
    for number, group in enumerate(names):
        own = np.flatnonzero(index == number)
        result[group] = None if group in clean else own if own.size >= FEWEST_ROWS else unclean
    return result


def of_rows(evidence: Evidence, rows: NDArray[np.intp]) -> Evidence:
    """The part of the evidence that is about some rows."""

    def part(values: Any) -> Any:
        return None if values is None else values[rows]

    trusted = evidence.trusted
    if trusted is not None:
        place = np.full(len(evidence.Y), -1, dtype=np.intp)
        place[rows] = np.arange(rows.size)
        kept = place[trusted.rows] >= 0
        trusted = Trusted(place[trusted.rows[kept]], trusted.Y[kept]) if kept.any() else None
    return replace(
        evidence,
        Y=evidence.Y[rows],
        X=part(evidence.X),
        pred_proba=part(evidence.pred_proba),
        annotators=part(evidence.annotators),
        trusted=trusted,
    )
