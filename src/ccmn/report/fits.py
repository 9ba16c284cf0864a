"""Text summary of a fit: data size, noise rates, selected configuration and path of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_CRITERIA = {
    "hamming_loss": "Hamming loss",
    "ranking_and_hamming_loss": "ranking + Hamming loss",
    "one_error": "one-error",
}


def fit_summary(result: Mapping[str, Any]) -> str:
    """Return the result of ``ccmn fit`` as four lines of text.

    >>> noise = {"kind": "partial", "rho_pos": [0.0, 0.0], "rho_neg": [0.1, 0.3]}
    >>> validation = {"criterion": "hamming_loss", "value": 0.25, "lr": 0.05, "epoch": 7, "epochs": 20, "loss": 1.5}
    >>> print(fit_summary({"model": "m.ccmn", "n": 9, "d": 3, "q": 2, "noise": noise, "noise_is_estimated": True,
    ...                    "validation": validation}))
    9 rows, 3 features, 2 labels
    noise: partial, estimated; missing-label rate 0, added-label rate 0.1 to 0.3
    validation Hamming loss 0.25 (learning rate 0.05, epoch 7 of 20)
    saved to m.ccmn
    """
    size = f"{result['n']} rows, {result['d']} features, {result['q']} labels"
    noise = _noise(result["noise"], result["noise_is_estimated"])
    return f"{size}\nnoise: {noise}\n{_validation(result['validation'])}\nsaved to {result['model']}"


def _validation(selected: Mapping[str, Any]) -> str:
    """Return the criterion and the selected configuration, see ``CCMNClassifier.selected_``."""
    if "lr" in selected:
        how = f"learning rate {selected['lr']:.4g}, epoch {selected['epoch']} of {selected['epochs']}"
    elif selected["n_labels"] == 1:
        how = f"l2 {selected['l2_min']:.2g}"
    else:
        how = f"l2 selected per label, {_range([selected['l2_min'], selected['l2_max']], 2)}"
    return f"validation {_CRITERIA[selected['criterion']]} {selected['value']:.4g} ({how})"


def _noise(noise: Mapping[str, Any], estimated: bool) -> str:
    kind = f"{noise['kind'].replace('_', '-')}, {'estimated' if estimated else 'as given'}"
    if "rho_pos" not in noise:
        return kind
    if not any((*noise["rho_pos"], *noise["rho_neg"])):
        return "none; labels are used without correction"
    rates = f"missing-label rate {_range(noise['rho_pos'])}, added-label rate {_range(noise['rho_neg'])}"
    return f"{kind}; {rates}"


def _range(values: Sequence[float], digits: int = 3) -> str:
    low, high = f"{min(values):.{digits}g}", f"{max(values):.{digits}g}"
    return low if low == high else f"{low} to {high}"
