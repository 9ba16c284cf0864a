"""The theorems as functions: constants and bounds (Theorems 2 and 4, Corollary 1), consistency (Definition 1, Theorems
1, 3 and 5). This index, one file per matter.

Nothing here knows the surrogates by name: phi comes as a callable, or as its bound and its Lipschitz constant.
"""

from __future__ import annotations

from ccmn.theory.bounds import (
    hamming_bound,
    partial_hamming_bound,
    partial_ranking_bound,
    rademacher_linear,
    ranking_bound,
    rows_needed,
)
from ccmn.theory.conditional import (
    LabelDistribution,
    hamming_excess,
    hamming_risk,
    hamming_surrogate_risk,
    ranking_excess,
    ranking_risk,
    ranking_surrogate_risk,
)
from ccmn.theory.consistency import (
    TARGETS,
    Minimum,
    TargetLoss,
    bayes_margin,
    bayes_risk,
    consistency_gap,
    in_bayes_set,
    minimise_surrogate_risk,
)
from ccmn.theory.constants import kappa, kappa_pair, lipschitz_hamming, lipschitz_ranking, mu_hamming, mu_ranking

__all__ = [
    "TARGETS",
    "LabelDistribution",
    "Minimum",
    "TargetLoss",
    "bayes_margin",
    "bayes_risk",
    "consistency_gap",
    "hamming_bound",
    "hamming_excess",
    "hamming_risk",
    "hamming_surrogate_risk",
    "in_bayes_set",
    "kappa",
    "kappa_pair",
    "lipschitz_hamming",
    "lipschitz_ranking",
    "minimise_surrogate_risk",
    "mu_hamming",
    "mu_ranking",
    "partial_hamming_bound",
    "partial_ranking_bound",
    "rademacher_linear",
    "ranking_bound",
    "ranking_excess",
    "ranking_risk",
    "ranking_surrogate_risk",
    "rows_needed",
]
