"""Average precision over the ranking of a row's labels."""

from __future__ import annotations

from typing import Any, overload

import torch

from ccmn._containers import Labels
from ccmn.metrics.base import Value, in_blocks, read_noisy_scores, read_scores
from ccmn.metrics.estimate import Estimate, Noise
from ccmn.metrics.exclusive import exclusive_average_precision
from ccmn.metrics.expected import corrected_average_precision
from ccmn.metrics.products import estimate_products
from ccmn.metrics.ranking import Ranking


@overload
def average_precision(Y: Labels, scores: Any, noise: None = None) -> Value: ...
@overload
def average_precision(Y: Labels, scores: Any, noise: Noise) -> Estimate: ...
def average_precision(Y: Labels, scores: Any, noise: Noise | None = None) -> Value | Estimate:
    r"""At the place of each true label: the part of true labels down to there; higher is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{|P_i|} \sum_{j \in P_i}
              \frac{|\{k \in P_i : f_{ik} \geq f_{ij}\}|}{|\{k : f_{ik} \geq f_{ij}\}|}

    with :math:`P_i` the true labels of row i. A row with no label, or with all of them, counts 1. This is
    scikit-learn's ``label_ranking_average_precision_score``, not its ``average_precision_score``.

    Parameters
    ----------
    Y : array, tensor, DataFrame or nested lists of shape (n, q), values 0 and 1
    scores : the same, real values :math:`f`
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Unbiased where rates and q
        are small enough for the rows at hand (``ccmn.metrics.products``), else approximate. Rows with NaN are left
        out.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> average_precision([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]])
    0.8333333333333333
    """
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        return estimate_products(
            noisy, f, noise, corrected_average_precision, exclusive_average_precision, metric="average_precision"
        )
    true, real, answer = read_scores(Y, scores)
    return answer(in_blocks(average_precision_rows, true, real).mean())


def average_precision_rows(Y: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """The average precision of each row: (..., q) and (..., q), broadcast, to (...) in float64."""
    return average_precision_from(Ranking.of(Y, scores))


def average_precision_from(ranking: Ranking) -> torch.Tensor:
    """``average_precision_rows`` from a ranking at hand."""
    # Both to float64 first: a division of unlike types is ten times as slow.
    total = ((ranking.labels * ranking.hits).double() / ranking.rank.double()).sum(-1)
    return torch.where(ranking.positives > 0, total / ranking.positives, 1.0)
