"""Learning curves, from the histories of fitted models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

Points = tuple[tuple[float, float], ...]

_TITLES = {"loss": "training loss", "ranking_and_hamming_loss": "validation: ranking + Hamming loss"}


@dataclass(frozen=True)
class Chart:
    """Curves of one quantity over epochs, or over the weight of l2."""

    title: str
    x_name: str
    series: Mapping[str, Points]


@dataclass(frozen=True)
class CurveFacts:
    """Charts that share their curves' names."""

    charts: tuple[Chart, ...]
    note: str


def curves_of_rates(history: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The part of a history that each learning rate has; a path of l2 is one whole."""
    if "lr" not in history:
        return {"path of l2": history}
    return {f"learning rate {lr:g}": part for lr, part in history.groupby("lr", sort=False)}


def chosen_curve(history: pd.DataFrame) -> pd.DataFrame:
    """The part of a history that the chosen learning rate has: that of the least validation criterion."""
    if "lr" not in history:
        return history
    criterion = history[history.columns[-1]].fillna(math.inf)
    best = history["lr"].iloc[int(criterion.argmin())]
    return pd.DataFrame(history[history["lr"] == best])


def curve_facts(histories: Mapping[str, pd.DataFrame], note: str) -> CurveFacts:
    """A chart of each quantity that the histories have; those of different kinds stand apart."""
    charts = []
    for quantity in dict.fromkeys(name for h in histories.values() for name in _quantities(h)):
        having = {name: h for name, h in histories.items() if quantity in h}
        for x_name in ("epoch", "l2"):
            series = {name: _points(h, x_name, quantity) for name, h in having.items() if x_name in h}
            series = {name: points for name, points in series.items() if points}
            if series:
                title = _TITLES.get(quantity, f"validation: {quantity.replace('_', ' ')}")
                charts.append(Chart(title, "epoch" if x_name == "epoch" else "log10 of l2,", series))
    return CurveFacts(tuple(charts), note)


def _quantities(history: pd.DataFrame) -> Sequence[str]:
    return [str(name) for name in history.columns if name not in ("lr", "epoch", "l2", "labels")]


def _points(history: pd.DataFrame, x_name: str, quantity: str) -> Points:
    def place(x: Any) -> float:
        return math.log10(x) if x_name == "l2" else float(x)

    pairs = zip(history[x_name], history[quantity])
    return tuple((place(x), float(y)) for x, y in pairs if math.isfinite(y) and (x_name == "epoch" or x > 0))
