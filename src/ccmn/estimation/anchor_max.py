"""Anchors by maximum (section 3): the estimator of the journal version of the paper, the reference to beat."""

from __future__ import annotations

from ccmn.estimation.anchor_quantile import ends_label
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import LabelRates


def anchor_max(evidence: Evidence) -> list[LabelRates]:
    r"""The noisy posterior at its two ends.

    .. math:: \hat\rho_{pos} = 1 - \max_i \hat{\tilde\eta}(x_i), \qquad \hat\rho_{neg} = \min_i \hat{\tilde\eta}(x_i)

    A single row decides either, and the probabilities are taken at their word. Kept for comparison.
    """
    return [
        ends_label(evidence.observed(j)[0], side, 1.0, "anchor, maximum", evidence.generator(j))
        for j, side in enumerate(evidence.sides)
    ]
