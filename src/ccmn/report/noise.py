"""Noise models as tables for a terminal (rich)."""

from __future__ import annotations

from rich.table import Table

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


def _transition_table(noise: TransitionNoise) -> Table:
    table = Table(title=f"transition noise, {noise.n_labels} classes", caption="rows: the true class")
    table.add_column("", no_wrap=True)
    for name in _names(noise):
        table.add_column(name, justify="right")
    for name, row in zip(_names(noise), noise.T):
        table.add_row(name, *(f"{p:.3f}" for p in row))
    return table


def _names(noise: NoiseModel) -> tuple[str, ...]:
    return noise.label_names or tuple(str(j) for j in range(noise.n_labels))
