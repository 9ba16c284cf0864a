"""Rates for the evaluation of noisy labels: a noise model, or rates with their standard errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccmn.cli.rates import rates_for, read_estimate, read_rates

if TYPE_CHECKING:
    from ccmn.estimation import NoiseRates
    from ccmn.noise import NoiseModel


def noise_for(path: Path, label_names: Sequence[str] | None, n_labels: int) -> NoiseModel | NoiseRates:
    """What a file of rates says of some labels, in their order; estimated rates keep their standard errors."""
    from ccmn.data.files import blame, check_file, text_lines

    text = "".join(text_lines(check_file(path)))
    # The names of the entries tell the two apart; whatever is wrong with the file, read_rates says.
    if '"se_pos"' not in text:
        return rates_for(read_rates(path), label_names, n_labels)
    from ccmn.estimation import NoiseRates

    with blame(path):
        content = json.loads(text)
        # What ccmn noise estimate wrote, or NoiseRates.to_dict() as it is.
        nested = isinstance(content, dict) and "estimate" in content
        rates = read_estimate(path) if nested else NoiseRates.from_dict(content)
        assert isinstance(rates, NoiseRates)  # it has standard errors
        return _in_order(rates, label_names, n_labels)


def _in_order(rates: NoiseRates, label_names: Sequence[str] | None, n_labels: int) -> NoiseRates:
    order: Any = _order(rates, label_names, n_labels)
    arrays = ("rho_pos", "rho_neg", "se_pos", "se_neg", "ci_pos", "ci_neg", "prior", "n_pos", "n_neg")
    changed: dict[str, Any] = {name: getattr(rates, name)[order] for name in arrays}
    changed |= {name: tuple(getattr(rates, name)[j] for j in order) for name in ("kind", "method", "sides")}
    changed["flags"] = tuple(
        flag if flag.label is None else flag._replace(label=order.index(flag.label)) for flag in rates.flags
    )
    names = rates.label_names if label_names is None else tuple(label_names)
    return replace(rates, **changed, label_names=names)


def _order(rates: NoiseRates, label_names: Sequence[str] | None, n_labels: int) -> list[int]:
    """Where each label stands among the rates: by name where both have names, else by number."""
    numbered = rates_for(rates.noise, None, n_labels)
    if label_names is None or rates.label_names is None:
        return list(range(n_labels))
    rates_for(numbered, label_names, n_labels)  # refuses rates of other labels
    return [rates.label_names.index(name) for name in label_names]
