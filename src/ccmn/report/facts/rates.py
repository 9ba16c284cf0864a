"""Noise rates of every label with their intervals, what kind of number they are, and the doubts there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ccmn.estimation import NoiseRates
from ccmn.estimation.rates import LEVEL
from ccmn.noise import ClassConditionalNoise, NoiseModel


@dataclass(frozen=True)
class RateFact:
    """One rate: its value, an interval, and the true rate where it is known."""

    value: float
    low: float
    high: float
    true: float | None = None


@dataclass(frozen=True)
class LabelRate:
    """Both rates of a label: true ones that are lost, false ones that are added."""

    name: str
    lost: RateFact
    added: RateFact
    kind: str
    method: str


@dataclass(frozen=True)
class RateFacts:
    """The rates of every label."""

    labels: tuple[LabelRate, ...]
    doubts: tuple[str, ...] = ()
    level: float = LEVEL
    """Coverage that the intervals aim at."""


def rate_facts(
    noise: NoiseModel | NoiseRates,
    names: Sequence[str],
    true: ClassConditionalNoise | None = None,
    kind: str = "known",
) -> RateFacts | None:
    """Estimated rates, or those of a noise model, of this ``kind``; None for noise without rates per label."""
    if isinstance(noise, NoiseRates):
        return _estimated(noise, names, true)
    if not isinstance(noise, ClassConditionalNoise):
        return None
    labels = (
        LabelRate(name, RateFact(lost, lost, lost), RateFact(added, added, added), kind, "as given")
        for name, lost, added in zip(names, noise.rho_pos.tolist(), noise.rho_neg.tolist())
    )
    return RateFacts(tuple(labels))


def _estimated(rates: NoiseRates, names: Sequence[str], true: ClassConditionalNoise | None) -> RateFacts:
    def fact(j: int, side: str) -> RateFact:
        value, ends = getattr(rates, f"rho_{side}")[j], getattr(rates, f"ci_{side}")[j]
        known = None if true is None else float(getattr(true, f"rho_{side}")[j])
        return RateFact(float(value), float(ends[0]), float(ends[1]), known)

    labels = (
        LabelRate(name, fact(j, "pos"), fact(j, "neg"), rates.kind[j], rates.method[j]) for j, name in enumerate(names)
    )
    doubts = (f"{'all labels' if f.label is None else names[f.label]}: {f.note}" for f in rates.flags)
    return RateFacts(tuple(labels), tuple(doubts))
