"""Labels debiased for a fit: by the noise given, by an estimate, or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccmn._containers import is_sparse, to_dense_array
from ccmn.losses import LOSSES
from ccmn.models.parameters import ESTIMATED_SIDES
from ccmn.models.samples import Labels
from ccmn.models.targets import Targets, Trusted, debiased, with_trusted
from ccmn.noise import ClassConditionalNoise, GroupedNoise, NoiseModel

FEWEST_TO_ESTIMATE = 100
"""Below this many rows noise rates are not estimated."""
MOST_TO_ESTIMATE = 1 << 27
"""Above this many entries of a label matrix noise rates are not estimated: that takes several dense ones."""

Noise = str | NoiseModel | GroupedNoise | None
"""The parameter ``noise``: a word of ``ESTIMATED_SIDES``, a noise model, or None."""


@dataclass(frozen=True)
class DebiasedLabels:
    """Debiased labels, true ones in trusted rows, and what they were debiased by."""

    p: Labels
    noise: NoiseModel
    rates: Any
    """The estimate (NoiseRates or GroupRates), where rates were estimated."""
    groups: GroupedNoise | None = None


def debias_labels(noise: Noise, X: Any, targets: Targets, trusted: Trusted | None, seed: int) -> DebiasedLabels:
    """All rows by the same rates."""
    if isinstance(noise, GroupedNoise):
        raise ValueError("noise is a GroupedNoise: say which group each row belongs to, fit(X, y, groups=...)")
    check_zeros_for(noise, targets.labels, targets.label_names, trusted)
    rates = None
    if isinstance(noise, NoiseModel):
        model = _check_about(noise, targets)
    elif noise is None:
        model = _no_noise(targets)
    elif targets.n * targets.q > MOST_TO_ESTIMATE:
        raise ValueError(
            f"noise={noise!r} estimates the rates of {targets.q} labels from {targets.n} rows, which are too "
            "many at once: give noise=ClassConditionalNoise(rho_pos, rho_neg), with rates estimated by "
            "estimate_noise on fewer rows or on groups of labels"
        )
    elif targets.n >= FEWEST_TO_ESTIMATE:
        rates = _estimate(noise, X, targets, trusted, seed)
        model = rates.cautious_noise
    else:
        if trusted is None:
            warnings.warn(
                f"{targets.n} rows are too few to estimate noise rates (fewer than {FEWEST_TO_ESTIMATE}): the labels "
                "are taken at their word; give a noise model to correct them",
                stacklevel=3,
            )
        model = _no_noise(targets)
    return DebiasedLabels(debiased(targets, model, trusted), model, rates)


def debias_by_group(
    noise: Noise,
    X: Any,
    targets: Targets,
    trusted: Trusted | None,
    seed: int,
    groups: Sequence[Any],
) -> DebiasedLabels:
    """Every row by the rates of its group."""
    declared = noise.mean(groups) if isinstance(noise, GroupedNoise) else noise
    check_zeros_for(declared, targets.labels, targets.label_names, trusted)
    rates = None
    if isinstance(noise, str):
        rates = _estimate(noise, X, targets, trusted, seed, groups)
        noise = rates.cautious_noise
    if not isinstance(noise, GroupedNoise):
        given = "None" if noise is None else type(noise).__name__
        raise TypeError(f"groups need rates for each: noise='estimate' or a GroupedNoise; got {given}")
    p = with_trusted(noise.debias(targets.labels, groups), trusted)
    return DebiasedLabels(p, noise.mean(groups), rates, noise)


def check_zeros_for(
    noise: Noise, Y: Any, label_names: Sequence[str] | None, trusted: tuple[Any, Any] | None = None
) -> None:
    """Raise an error if labels are 1 or NaN and never 0 under noise that removes true labels."""
    if isinstance(noise, ClassConditionalNoise):
        only_removed = np.asarray((noise.rho_neg == 0) & (noise.rho_pos > 0))
        if only_removed.size != Y.shape[1] or not only_removed.any():
            return
    elif isinstance(noise, str) and noise in ("missing", "estimate"):
        only_removed = np.full(Y.shape[1], noise == "missing")
    else:
        return
    from ccmn.estimation.evidence import check_zeros_observed

    check_zeros_observed(Y, only_removed, label_names, None if trusted is None else trusted[1])


def check_groups_possible(loss: str, targets: Targets, noisy_validation: bool) -> None:
    """What groups do not go with."""
    if loss not in LOSSES:
        raise ValueError(f"groups need a loss that takes debiased labels, 'hamming' or 'ranking'; got {loss!r}")
    if is_sparse(targets.labels):
        raise ValueError(f"groups need dense labels; got {targets.n} x {targets.q} sparse ones: give y.toarray()")
    if noisy_validation:
        raise ValueError("with groups, validation rows must be clean (validation_is_clean=True), or be held out of X")


def _estimate(
    noise: str, X: Any, targets: Targets, trusted: Trusted | None, seed: int, groups: Sequence[Any] | None = None
) -> Any:
    from ccmn.estimation import estimate_noise

    return estimate_noise(
        X, _with_names(targets), sides=ESTIMATED_SIDES[noise], trusted=trusted, random_state=seed, groups=groups
    )


def _with_names(targets: Targets) -> Any:
    """Return the labels with their names, if known, so that estimated rates and warnings name them."""
    if targets.label_names is None:
        return targets.labels
    from pandas import DataFrame

    return DataFrame(to_dense_array(targets.labels), columns=list(targets.label_names))


def _check_about(noise: NoiseModel, targets: Targets) -> NoiseModel:
    names = targets.label_names
    if noise.n_labels != targets.q:
        raise ValueError(f"the noise model has {noise.n_labels} labels, y has {targets.q}")
    if names and noise.label_names and names != noise.label_names:
        raise ValueError(
            f"the noise model is about labels {', '.join(noise.label_names[:4])} ..., y about "
            f"{', '.join(names[:4])} ...: put them into one order, or leave the names out"
        )
    return noise


def _no_noise(targets: Targets) -> ClassConditionalNoise:
    return ClassConditionalNoise(0.0, 0.0, n_labels=targets.q, label_names=targets.label_names)
