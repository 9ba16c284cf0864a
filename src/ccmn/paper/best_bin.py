r"""Rates of candidate sets by mixture proportion estimation with the best-bin estimator [1]_.

Only labels are added, so that the labels observed as 1 are a mixture of true ones and of added ones, which have the
scores of the zeros. The largest share :math:`\kappa` of the ones that looks like the zeros gives

.. math:: \rho_{neg} = \frac{\tilde p\, \kappa}{1 - \tilde p (1 - \kappa)} .

References
----------
.. [1] S. Garg et al., "Mixture Proportion Estimation and PU Learning: A Modern Approach", NeurIPS 2021.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.noise import PartialNoise
from ccmn.training.default_model import NoisyLabelModel


def best_bin_noise(X: Any, Y: NDArray[Any], random_state: int = 0) -> PartialNoise:
    """Return the rates of candidate sets Y (n, q) from out-of-fold predictions of the default model of noisy labels."""
    scores = NoisyLabelModel(random_state).fit(X, Y).out_of_fold_log_odds(X)
    return PartialNoise([best_bin_rate(f, y == 1) for f, y in zip(scores.T, Y.T)])


def best_bin_rate(scores: FloatArray, positive: NDArray[np.bool_], largest: float = 0.9) -> float:
    """Return rho_neg of one label from its scores (n,) and whether each row was observed as 1.

    Debiased labels of a label with a larger rate have too large a variance to train with.

    >>> best_bin_rate(np.arange(200.0), np.arange(200) >= 100)
    0.0
    """
    if positive.all() or not positive.any():
        return 0.0
    share = mixture_proportion(-scores[~positive], -scores[positive])
    observed = float(positive.mean())
    return min(observed * share / (1 - observed * (1 - share)), largest)


def mixture_proportion(component: FloatArray, mixture: FloatArray, delta: float = 0.1, gamma: float = 0.01) -> float:
    r"""Return the largest share of a component, which has high scores, in a mixture.

    .. math:: \hat\kappa = \frac{q_M(\hat c)}{q_C(\hat c)}, \qquad
        \hat c = \arg\min_c \frac{q_M(c)}{q_C(c)} + (1 + \gamma) \frac{1}{q_C(c)}
        \Bigl(\sqrt{\tfrac{\log(4/\delta)}{2|C|}} + \sqrt{\tfrac{\log(4/\delta)}{2|M|}}\Bigr)

    where :math:`q_C(c)` and :math:`q_M(c)` are the shares of component and mixture with a score of at least c. A bin
    with a single row of the component is not used, unless it contains the whole component.
    """
    thresholds = np.unique(component)
    q_C, q_M = (1 - np.searchsorted(np.sort(part), thresholds) / len(part) for part in (component, mixture))
    usable = (q_C > 1.5 / len(component)) | (q_C == 1)
    q_C, q_M = q_C[usable], q_M[usable]
    width = sum(np.sqrt(np.log(4 / delta) / (2 * len(part))) for part in (component, mixture))
    best = (q_M / q_C + (1 + gamma) * width / q_C).argmin()
    return float(min(q_M[best] / q_C[best], 1))
