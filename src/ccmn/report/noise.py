"""Noise models and estimated rates as tables for a terminal (rich)."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise, NoiseModel, TransitionNoise


def noise_table(noise: NoiseModel) -> Table:
    """The rates of every label, or the transition matrix of classes."""
    if isinstance(noise, TransitionNoise):
        return _transition_table(noise)
    if not isinstance(noise, ClassConditionalNoise):
        raise TypeError(f"no table for {type(noise).__name__}")
    table = Table(title=f"{noise.kind.replace('_', '-')} noise, {noise.n_labels} labels")
    table.add_column("label", no_wrap=True)
    for column in ("lost\nrho_pos", "added\nrho_neg", "signal\n1 - sum"):
        table.add_column(column, justify="right")
    for name, lost, added in zip(_names(noise), noise.rho_pos, noise.rho_neg):
        table.add_row(name, f"{lost:.3f}", f"{added:.3f}", f"{1 - lost - added:.3f}")
    return table


MOST_FLAGS = 5
"""Doubts that are spelt out under a table."""


def estimate_table(rates: NoiseRates) -> Group:
    """Estimated rates with their intervals, what kind of number they are, and the doubts there are."""
    table = Table(title=f"estimated noise, {rates.n_labels} labels", caption="in brackets: intervals that aim at 90 %")
    table.add_column("label", no_wrap=True)
    for column in ("given", "lost\nrho_pos", "", "added\nrho_neg", "", "true\nshare"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("kind")
    table.add_column("method")
    share = rates.n_pos / (rates.n_pos + rates.n_neg).clip(1)
    for j, name in enumerate(_names(rates)):
        lost, added = f"{rates.rho_pos[j]:.3f}", f"{rates.rho_neg[j]:.3f}"
        cells = (f"{share[j]:.3f}", lost, _interval(rates.ci_pos[j]), added, _interval(rates.ci_neg[j]))
        table.add_row(escape(name), *cells, f"{rates.prior[j]:.3f}", rates.kind[j], rates.method[j])
    notes = [f"! {flag}" for flag in rates.flags[:MOST_FLAGS]]
    rest = len(rates.flags) - len(notes)
    notes += [f"! ... and {rest} more (all of them with --json)"] if rest else []
    return Group(table, *(escape(note) for note in notes))


def _interval(ends: Sequence[float]) -> str:
    return "" if ends[0] == ends[1] else f"({ends[0]:.2f}, {ends[1]:.2f})"


def _transition_table(noise: TransitionNoise) -> Table:
    table = Table(title=f"transition noise, {noise.n_labels} classes", caption="rows: the true class")
    table.add_column("", no_wrap=True)
    for name in _names(noise):
        table.add_column(name, justify="right")
    for name, row in zip(_names(noise), noise.T):
        table.add_row(name, *(f"{p:.3f}" for p in row))
    return table


def _names(noise: NoiseModel | NoiseRates) -> tuple[str, ...]:
    return noise.label_names or tuple(str(j) for j in range(noise.n_labels))
