"""Noise rates of groups of rows, for example one group per annotator, site or import batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccmn.estimation.noise_rates import Flag, NoiseRates
from ccmn.noise import ClassConditionalNoise, GroupedNoise


@dataclass(frozen=True, eq=False)
class GroupRates:
    """Estimated noise rates of every group of rows.

    Parameters
    ----------
    rates : mapping of group to NoiseRates
        Rates of each group. A group that was declared clean has rates of zero and kind "known".

    Examples
    --------
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.estimation import GroupRates, NoiseRates
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(100, 5, 1, noise=PartialNoise([0.2]), random_state=0)
    >>> rates = GroupRates({"web": NoiseRates.known(task.noise, task.Y_noisy)})
    >>> rates.groups, rates["web"].rho_neg
    (('web',), array([0.2]))
    """

    rates: Mapping[Any, NoiseRates]

    @property
    def groups(self) -> tuple[Any, ...]:
        """Groups in the order of their first row."""
        return tuple(self.rates)

    @property
    def noise(self) -> GroupedNoise:
        """Noise model with these rates; it debiases each row with the rates of its group."""
        return GroupedNoise({group: _two_rates(rates.noise) for group, rates in self.rates.items()})

    @property
    def shrunk_noise(self) -> GroupedNoise:
        """Noise model for training; see :attr:`NoiseRates.shrunk_noise`."""
        return GroupedNoise({group: _two_rates(rates.shrunk_noise) for group, rates in self.rates.items()})

    @property
    def flags(self) -> tuple[tuple[Any, Flag], ...]:
        """Pairs (group, flag) of all groups."""
        return tuple((group, flag) for group, rates in self.rates.items() for flag in rates.flags)

    def __getitem__(self, group: Any) -> NoiseRates:
        """Return the rates of a group."""
        return self.rates[group]

    def to_dict(self) -> dict[str, Any]:
        """Return a description that :meth:`from_dict` reads.

        Returns
        -------
        dict
            The description. It is JSON-serializable if the groups are.
        """
        return {"groups": [[group, rates.to_dict()] for group, rates in self.rates.items()]}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> GroupRates:
        """Return the rates of a description written by :meth:`to_dict`.

        Parameters
        ----------
        d : mapping
            The description.

        Returns
        -------
        GroupRates
            The rates.
        """
        return cls({group: NoiseRates.from_dict(rates) for group, rates in d["groups"]})

    def __repr__(self) -> str:
        """Return the tables of all groups."""
        return "\n".join(f"group {group!r}: {rates!r}" for group, rates in self.rates.items())


def _two_rates(noise: ClassConditionalNoise) -> ClassConditionalNoise:
    """Return the noise model as the base class, since groups may differ in their noise type."""
    return ClassConditionalNoise(noise.rho_pos, noise.rho_neg, label_names=noise.label_names)
