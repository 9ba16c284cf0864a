"""Pairwise ranking surrogate loss of the CCMN paper, plain and unbiased: Eq. (5), (6), (8) and (10)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from ccmn.losses import _fast
from ccmn.losses.hamming import hamming_loss
from ccmn.losses.multilabel_loss import MultiLabelLoss, correction_slopes, observed
from ccmn.losses.surrogates import SurrogateLike, resolve_surrogate
from ccmn.noise import NoiseModel


def ranking_loss(scores: Tensor, targets: Tensor, surrogate: SurrogateLike = "sigmoid") -> Tensor:
    r"""Return the ranking surrogate loss of every row: the sum over pairs j != k of p_j (1 - p_k) phi(f_j - f_k).

    .. math:: \sum_{j \neq k} p_j (1 - p_k)\, \phi(f_j - f_k)

    With 0/1 targets :math:`p` this is Eq. (5) of the paper [1]_. With debiased labels, ``noise.debias(Y_noisy)``, it
    is the unbiased loss of Eq. (6), and Eq. (10) for ``PartialNoise``. The time is almost linear in q.

    Parameters
    ----------
    scores : Tensor of shape (..., q)
        Scores f of the labels.
    targets : Tensor of shape (..., q)
        Targets p, any real numbers. A NaN target does not contribute.
    surrogate : {"sigmoid", "square", "hinge", "logistic"} or callable, default="sigmoid"
        Margin loss phi. A callable maps a tensor t to phi(t). Of the four named surrogates, only the sigmoid is
        consistent for the ranking loss (Theorem 5 of [1]_).

    Returns
    -------
    Tensor of shape (...)
        Loss of every row, in float32 or higher precision.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.

    Examples
    --------
    >>> ranking_loss(torch.tensor([1.0, 0.0, 0.5]), torch.tensor([1.0, 0.0, 0.0]), "hinge")
    tensor(0.5000)
    """
    phi = surrogate if callable(surrogate) else resolve_surrogate(surrogate)
    f, p, n = observed(scores, targets)  # n = 1 - p; all three are 0 where p is NaN
    return pair_sum(f, p, n, phi)


def pair_sum(f: Tensor, p: Tensor, n: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the sum over pairs j != k of p_j n_k phi(f_j - f_k) for every row: the definition, or a faster form."""
    fast = _fast.pair_sum(f, p, n, phi)
    if fast is not None:
        return fast
    pairs = p.unsqueeze(-1) * n.unsqueeze(-2) * phi(f.unsqueeze(-1) - f.unsqueeze(-2))
    return pairs.sum((-2, -1)) - pairs.diagonal(0, -2, -1).sum(-1)


def _loss_of_one_true_label(scores: Tensor, targets: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the ranking loss of rows with exactly one true label: y_j (1 - y_k) = y_j, so all weights n_k are 1."""
    f, p, n = observed(scores, targets)
    return pair_sum(f, p, p + n, phi)


def pair_sum_parts(f: Tensor, p: Tensor, n: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the part of every label in the pair sum, p_j times the sum over k != j of n_k phi(f_j - f_k), detached."""
    with torch.enable_grad():
        leaf = p.detach().requires_grad_()
        (by_p,) = torch.autograd.grad(pair_sum(f.detach(), leaf, n.detach(), phi).sum(), leaf)
    return leaf.detach() * by_p


class RankingLoss(MultiLabelLoss):
    r"""Pairwise ranking surrogate loss, unbiased under label noise [1]_.

    .. math:: \frac1n \sum_i \sum_{j \neq k} p_{ij} (1 - p_{ik})\, \phi(f_{ij} - f_{ik}),
              \qquad p = \mathrm{debias}(\tilde y)

    Products of two debiased labels are unbiased, because labels flip independently. This does not hold under
    ``TransitionNoise``: exactly one label of a sample is true, so :math:`y_j (1 - y_k) = y_j`, and the linear
    form :math:`\sum_{j \neq k} p_j \phi(f_j - f_k)` is used instead. With ``dummy=True``, Eq. (8) is added.

    Parameters
    ----------
    surrogate : {"sigmoid", "square", "hinge", "logistic"} or callable, default="sigmoid"
        Margin loss phi. Of the four named surrogates, only the sigmoid is consistent for the ranking loss (Theorem 5
        of [1]_).
    noise : NoiseModel or None, default=None
        Noise model of the labels passed to ``forward``. ``None`` means labels without noise.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over rows.
    correction : {"abs", "relu"} or None, default=None
        Risk correction: function g that keeps the estimated risk from becoming negative. It is applied to the part
        :math:`R_j = \frac1n\sum_i p_{ij} \sum_{k \ne j} (1 - p_{ik}) \phi(f_{ij} - f_{ik})` of the risk of every
        label and of the dummy label.
    dummy : bool, default=True
        Whether to learn a threshold between relevant and irrelevant labels. Output 0 is then a dummy label, which is
        trained to rank below the relevant labels and above the others (Eq. (8) of [1]_). Without it, ``decision``
        returns scores without a threshold.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over pairs. The formulas use the sum. The mean divides it by the number of ordered pairs of outputs,
        so that gradients have the order of magnitude of those of ``torch.nn.BCEWithLogitsLoss``.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.

    Examples
    --------
    >>> from ccmn import PartialNoise
    >>> loss = RankingLoss(noise=PartialNoise([0.3, 0.2, 0.4]))
    >>> loss.n_outputs(3)
    4
    >>> loss(torch.zeros(2, 4), torch.tensor([[1, 0, 1], [0, 1, 1]]))
    tensor(2.8393)
    """

    kernels: str | None = "ranking"

    def __init__(
        self,
        surrogate: SurrogateLike = "sigmoid",
        noise: NoiseModel | None = None,
        reduction: str = "mean",
        correction: str | None = None,
        dummy: bool = True,
        *,
        label_reduction: str = "sum",
    ) -> None:
        super().__init__(surrogate, noise, reduction, correction, label_reduction=label_reduction)
        self.dummy = bool(dummy)
        self.extra_outputs = int(self.dummy)
        self._one_true_label = noise is not None and not noise.flips_independent
        if self._one_true_label:
            self.kernels = None
        if self._one_true_label and correction is not None:
            raise ValueError(
                f"correction={correction!r} is not defined for RankingLoss under {type(noise).__name__}; use "
                "correction=None or HammingLoss"
            )

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return Eq. (6) plus Eq. (8) for every row of outputs (..., n_outputs(q)) and debiased labels (..., q)."""
        ranking = _loss_of_one_true_label if self._one_true_label else ranking_loss
        if not self.dummy:
            return ranking(outputs, targets, self.surrogate)
        f0, f = torch.split(outputs.to(targets.dtype), [1, outputs.shape[-1] - 1], -1)
        return ranking(f, targets, self.surrogate) + hamming_loss(f - f0, targets, self.surrogate)

    def n_terms(self, q: int) -> int:
        """Return the number of ordered pairs of outputs."""
        return self.n_outputs(q) * (self.n_outputs(q) - 1)

    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum over labels of g(R_j) for outputs (..., n, n_outputs) and debiased labels (..., n, q)."""
        f, p, n = observed(outputs[..., self.extra_outputs :], targets)
        known = ~targets.isnan()
        if self.dummy:  # a label with both weights 1: its pairs with j are p_j phi(f_j - f_0) and n_j phi(f_0 - f_j)
            f = torch.cat((outputs[..., :1].to(f.dtype), f), -1)
            p, n, known = (pad(t, (1, 0), value=1) for t in (p, n, known))
        value, slopes = correction_slopes(pair_sum_parts(f, p, n, self.surrogate), known, self.g)
        # The gradient of sum_j g(R_j) is that of the pair sum whose positive weights are multiplied by g'(R_j). The
        # value is added without a gradient.
        weighted = pair_sum(f, slopes * p, n, self.surrogate).mean(-1)
        return weighted + (value - weighted).detach()
