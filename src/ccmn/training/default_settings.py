"""Constants of the default method: the numbers that were selected on data are fields of one dataclass."""

from __future__ import annotations

from dataclasses import dataclass

N_BINS = 64
"""Numerical resolution: bins of equal size into which out-of-fold log-odds are grouped for the likelihood."""
N_NEWTON_STEPS = 12
"""Numerical resolution: Newton steps of slope and offset; the last ones change the likelihood by less than 1e-6."""
N_GRADIENT_STEPS = 40
"""Numerical resolution: largest number of gradient steps of the forward-corrected models; the best step is kept."""
MIN_PROBABILITY = 1e-6
"""Guard against overflow: probabilities are limited to [1e-6, 1 - 1e-6] before their logarithm is taken."""


@dataclass(frozen=True)
class DefaultSettings:
    """Constants of the default method. ``results/ablation.csv`` has a row for each of them."""

    # Inverse l2 weights of the logistic regressions; each label uses the one with the smallest out-of-fold log loss.
    c_grid: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
    n_folds: int = 3  # folds of the out-of-fold predictions
    n_trees: int = 100  # trees of the random forest
    min_samples_leaf: int = 5  # smallest number of rows in a leaf of the forest
    # Rows that get out-of-fold predictions and enter the likelihood. The final logistic regressions use all rows.
    max_rows: int = 20_000
    # Directions on which sparse features, or more than four times as many dense features, are projected for the forest
    # and for the forward-corrected models.
    n_components: int = 100
    # Steps of the grid of rho_pos, the share of true labels that are missing, and phi, the share of given labels that
    # are false; and values of both at whose pairs forward-corrected models are fitted.
    grid: tuple[float, float] = (0.05, 0.04)
    coarse: tuple[tuple[float, ...], tuple[float, ...]] = ((0.0, 0.25, 0.5), (0.0, 0.3, 0.6, 0.85))
    # Mean and standard deviation of the normal prior of log a: cross-fitted log-odds are too small.
    slope: tuple[float, float] = (0.2, 1.0)
    temperature: float = 2.5  # divisor of the log-likelihood, because equation (*) holds only approximately
    # Largest prior means of rho_pos, of phi, and of phi if added labels are declared; means are uniform below and
    # common to all labels. Concentrations are the smallest and largest sum of the two parameters of the Beta priors.
    max_means: tuple[float, float, float] = (0.5, 0.5, 0.95)
    concentrations: tuple[float, float] = (1.0, 4.0)
    # Exponent of the prior factor o / max(pi, o) against prevalences pi above the observed share o; of o / pi if added
    # labels are declared.
    rarity: float = 1.0


DEFAULTS = DefaultSettings()
