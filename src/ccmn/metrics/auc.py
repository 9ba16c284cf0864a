"""Area under the ROC curve, label by label."""

from __future__ import annotations

from typing import Any, overload

import torch

from ccmn._containers import Labels
from ccmn.metrics.base import Value, in_blocks, read_noisy_scores, read_scores
from ccmn.metrics.corrected import corrected_macro_auc, have_both_classes
from ccmn.metrics.estimate import Estimate, Noise, Status, estimate, model_of
from ccmn.metrics.ranking import Ranking, ranking_loss_from


@overload
def macro_auc(Y: Labels, scores: Any, noise: None = None) -> Value: ...
@overload
def macro_auc(Y: Labels, scores: Any, noise: Noise) -> Estimate: ...
def macro_auc(Y: Labels, scores: Any, noise: Noise | None = None) -> Value | Estimate:
    r"""Area under the ROC curve of each label, averaged over labels; higher is better.

    .. math:: \frac{1}{|L|} \sum_{j \in L} \frac{1}{|P_j| |N_j|} \sum_{i \in P_j} \sum_{m \in N_j}
              \left( 1[f_{ij} > f_{mj}] + \tfrac{1}{2}\, 1[f_{ij} = f_{mj}] \right)

    with :math:`P_j` and :math:`N_j` the rows with and without label j, and :math:`L` the labels that have both:
    a label all of whose rows are alike has no curve and is left out. NaN where every label is so.

    Parameters
    ----------
    Y : array, tensor, DataFrame or nested lists of shape (n, q), values 0 and 1
    scores : the same, real values :math:`f`
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Consistent: a ratio of sums
        of debiased labels over pairs of rows. Left out as well are labels whose positives (or negatives) are within
        two standard errors of none; where there are such labels, the average is over fewer than the clean one and is
        called approximate.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> macro_auc([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.3], [0.4, 0.2]])
    0.5
    """
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        status: Status = "approximate" if _leaves_out(noisy, noise) else "consistent"
        return estimate(
            noisy,
            noise,
            lambda p, weights: corrected_macro_auc(p, f, weights),
            status,
            metric="macro_auc",
            undefined="for no label are the corrected numbers of positive and negative rows both more than two "
            "standard errors above 0",
        )
    true, real, answer = read_scores(Y, scores)
    return answer(in_blocks(auc_rows, true.mT, real.mT).nanmean())


def _leaves_out(Y: torch.Tensor, noise: Noise) -> bool:
    """Is there a label with both noisy classes that does not clearly have both true ones?"""
    both = (Y == 0).any(0) & (Y == 1).any(0)
    return bool((both & ~have_both_classes(model_of(noise, Y).debias(Y))).any())


def auc_rows(Y: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """The AUC within each row: (..., n) and (..., n), broadcast, to (...) in float64; NaN where all of Y is alike.

    For one value per label the labels are to be rows: ``auc_rows(Y.mT, scores.mT)``.
    """
    # The AUC is what the ranking loss leaves of 1: its pairs are the same, counted when in order.
    ranking = Ranking.of(Y, scores)
    has_both = (ranking.positives > 0) & (ranking.positives < Y.shape[-1])
    return torch.where(has_both, 1 - ranking_loss_from(ranking, ties="half"), torch.nan)
