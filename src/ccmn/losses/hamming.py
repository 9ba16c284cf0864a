"""Hamming surrogate loss: Eq. (3), unbiased Eq. (4), and Eq. (9) for candidate sets."""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.losses.base import MultiLabelLoss
from ccmn.losses.corrections import corrected_means
from ccmn.losses.surrogates import Surrogate, SurrogateLike, phi_of, resolve_surrogate
from ccmn.losses.targets import weigh
from ccmn.noise import NoiseModel
from ccmn.validation import check_scores_and_targets


def hamming_loss(scores: Tensor, targets: Tensor, surrogate: SurrogateLike = "square") -> Tensor:
    r"""Sum over labels of a margin loss, one value per row.

    .. math:: \sum_{j=1}^{q} p_j\, \phi(f_j) + (1 - p_j)\, \phi(-f_j)

    Eq. (3) of the paper for 0/1 targets :math:`p`; Eq. (4) when they come from ``noise.debias`` (any real number),
    and Eq. (9) when that noise is partial.

    Parameters
    ----------
    scores, targets : tensors of shape (..., q)
        NaN targets contribute nothing.
    surrogate : str or callable
        "square", "hinge", "sigmoid", "logistic", or phi(t) on tensors.

    Examples
    --------
    >>> hamming_loss(torch.tensor([0.5, -1.0]), torch.tensor([1.0, 0.0]), "square")
    tensor(0.2500)
    """
    check_scores_and_targets(scores.shape, targets.shape)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return _label_terms(*weigh(scores, targets), surrogate).sum(-1)


def _label_terms(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: SurrogateLike) -> Tensor:
    """pos phi(f) + neg phi(-f), label by label."""
    phi = resolve_surrogate(surrogate)
    if isinstance(phi, Surrogate):
        return phi.two_sided(scores, pos, neg)
    return pos * phi(scores) + neg * phi(-scores)


class HammingLoss(MultiLabelLoss):
    r"""The Hamming surrogate loss, unbiased under label noise.

    .. math:: \frac1n \sum_i \sum_j p_{ij}\, \phi(f_{ij}) + (1 - p_{ij})\, \phi(-f_{ij}),
              \qquad p = \mathrm{debias}(\tilde y)

    Parameters
    ----------
    surrogate : str or callable, default "square"
        phi; every convex phi with phi'(0) < 0 is consistent for the Hamming loss (Theorem 3).
    noise : NoiseModel or None
        How the labels given to ``forward`` went wrong; None: they are right.
    reduction : "mean", "sum" or "none"
        Over rows; labels are always summed.
    correction : None, "abs", "relu" or "flood"
        Applied to the parts :math:`R^+_j = \frac1n\sum_i p_{ij}\phi(f_{ij})` and
        :math:`R^-_j = \frac1n\sum_i (1-p_{ij})\phi(-f_{ij})` of every label, which estimate numbers that cannot be
        negative: see :mod:`ccmn.losses.corrections`.
    flood_level : float
        b of "flood".

    Examples
    --------
    >>> from ccmn import ClassConditionalNoise
    >>> loss = HammingLoss("logistic", noise=ClassConditionalNoise(0.2, 0.1, n_labels=3))
    >>> loss(torch.zeros(2, 3), torch.tensor([[1, 0, 1], [0, 0, 1]]))
    tensor(2.0794)
    """

    def __init__(
        self,
        surrogate: SurrogateLike = "square",
        noise: NoiseModel | None = None,
        reduction: str = "mean",
        correction: str | None = None,
        *,
        flood_level: float = 0.0,
    ) -> None:
        super().__init__(surrogate, noise, reduction, correction, flood_level=flood_level)

    def n_outputs(self, q: int) -> int:
        """q: one output per label."""
        return q

    def decision(self, outputs: Tensor) -> Tensor:
        """The outputs themselves; a label is predicted when its score is >= 0."""
        return outputs

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return hamming_loss(outputs, targets, self.surrogate)

    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        f, pos, neg = weigh(outputs.to(targets.dtype), targets)
        phi, observed = phi_of(self.surrogate), ~targets.isnan()
        positive, negative = (
            corrected_means(part, observed, self._g, self.flood_level) for part in (pos * phi(f), neg * phi(-f))
        )
        return positive + negative
