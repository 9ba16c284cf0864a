"""What came of a fit, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def fit_summary(result: Mapping[str, Any]) -> str:
    """Rows and labels, the noise corrected for, the validation figures, where the model is.

    >>> noise = {"kind": "partial", "rho_pos": [0.0, 0.0], "rho_neg": [0.1, 0.3]}
    >>> validation = {"lr": 0.05, "epoch": 7.0, "loss": 1.5, "ranking_loss": 0.25}
    >>> print(fit_summary({"model": "m.ccmn", "n": 9, "d": 3, "q": 2, "noise": noise, "noise_is_estimated": True,
    ...                    "validation": validation}))
    9 rows, 3 features, 2 labels
    noise: partial, estimated; labels lost at 0, added at 0.1 to 0.3
    validation: lr 0.05, epoch 7, loss 1.5, ranking_loss 0.25
    saved to m.ccmn
    """
    size = f"{result['n']} rows, {result['d']} features, {result['q']} labels"
    chosen = ", ".join(f"{name} {value:.4g}" for name, value in result["validation"].items())
    noise = _noise(result["noise"], result["noise_is_estimated"])
    return f"{size}\nnoise: {noise}\nvalidation: {chosen}\nsaved to {result['model']}"


def _noise(noise: Mapping[str, Any], estimated: bool) -> str:
    kind = f"{noise['kind'].replace('_', '-')}, {'estimated' if estimated else 'as given'}"
    if "rho_pos" not in noise:
        return kind
    if not any((*noise["rho_pos"], *noise["rho_neg"])):
        return "none: the labels are taken at their word"
    return f"{kind}; labels lost at {_range(noise['rho_pos'])}, added at {_range(noise['rho_neg'])}"


def _range(rates: Sequence[float]) -> str:
    low, high = min(rates), max(rates)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
