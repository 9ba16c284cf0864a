"""Constants and estimation-error bounds of the paper (Theorems 2 and 4, Corollary 1).

The functions do not depend on a surrogate. They take the bound and the Lipschitz constant of phi.
"""

from __future__ import annotations

from ccmn.theory.bounds import (
    hamming_bound,
    kappa,
    lipschitz_hamming,
    lipschitz_ranking,
    mu_hamming,
    mu_ranking,
    partial_hamming_bound,
    partial_ranking_bound,
    rademacher_linear,
    ranking_bound,
    samples_needed,
)

__all__ = [
    "hamming_bound",
    "kappa",
    "lipschitz_hamming",
    "lipschitz_ranking",
    "mu_hamming",
    "mu_ranking",
    "partial_hamming_bound",
    "partial_ranking_bound",
    "rademacher_linear",
    "ranking_bound",
    "samples_needed",
]
