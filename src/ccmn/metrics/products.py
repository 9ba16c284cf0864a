r"""Metrics whose multilinear form has products of many labels: which soft labels to put into them.

Debiased labels make the form unbiased, but the variance of a product of q of them grows like :math:`\prod_j c_j`,
where :math:`c_j` is the largest that the second moment of a factor :math:`1 - p_j` can be:

.. math:: c_j = \max\Big(1 + \frac{\rho_{neg,j} (1 - \rho_{neg,j})}{r_j^2},\; \frac{\rho_{pos,j} (1 - \rho_{pos,j})}
          {r_j^2}\Big), \qquad r_j = 1 - \rho_{pos,j} - \rho_{neg,j}

Where that is more than the rows at hand can average out, posterior probabilities take their place, and the estimate is
called approximate. Which it is depends on rates, q and n alone, so models compared on the same rows are compared by
the same estimate. Labels only lost, at rates up to 1/2, have :math:`c_j = 1`: always unbiased.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from ccmn.metrics.estimate import Estimate, Noise, Soften, Status, debias, estimate, model_of
from ccmn.metrics.posterior import by_scores
from ccmn.noise import ClassConditionalNoise

ROWS_PER_INFLATION = 100
"""Rows for each unit of variance: a standard error of about a tenth of the metric's own spread, at most."""

Corrected = Callable[[Tensor, Tensor, Tensor], Tensor]


def estimate_products(
    Y: Tensor,
    scores: Tensor,
    noise: Noise,
    multilinear: Corrected,
    exclusive: Corrected,
    *,
    metric: str,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """A metric from its multilinear form (``exclusive``: where exactly one label of a row is true)."""
    model = model_of(noise, Y)
    form = multilinear
    status: Status = "unbiased"
    soften: Soften = debias
    if not model.flips_independent:
        form = exclusive
    elif isinstance(model, ClassConditionalNoise) and inflation(model) > max(1.0, len(Y) / ROWS_PER_INFLATION):
        status, soften = "approximate", by_scores(scores)
    return estimate(
        Y,
        noise,
        lambda p, weights: form(p, scores, weights),
        status,
        soften,
        metric=metric,
        complete_rows=True,
        bounds=bounds,
    )


def inflation(noise: ClassConditionalNoise) -> float:
    """How much larger the variance of a product over all labels may be than with clean labels.

    >>> inflation(ClassConditionalNoise(0.0, 0.5, n_labels=10)), inflation(ClassConditionalNoise(0.5, 0.0, n_labels=10))
    (1024.0, 1.0)
    """
    signal = (1 - noise.rho_pos - noise.rho_neg) ** 2
    if_false = 1 + noise.rho_neg * (1 - noise.rho_neg) / signal
    with np.errstate(over="ignore"):
        return float(np.maximum(if_false, noise.rho_pos * (1 - noise.rho_pos) / signal).prod())
