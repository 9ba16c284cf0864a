"""Hamming surrogate loss of the CCMN paper: Eq. (3), the unbiased Eq. (4), and Eq. (9) for candidate sets."""

from __future__ import annotations

from torch import Tensor

from ccmn.losses import _fast
from ccmn.losses.multilabel_loss import MultiLabelLoss, corrected_means, observed
from ccmn.losses.surrogates import SurrogateLike, resolve_surrogate


def hamming_loss(scores: Tensor, targets: Tensor, surrogate: SurrogateLike = "square") -> Tensor:
    r"""Return the Hamming surrogate loss of every row: the sum over labels of p phi(f) + (1 - p) phi(-f).

    .. math:: \sum_{j=1}^{q} p_j\, \phi(f_j) + (1 - p_j)\, \phi(-f_j)

    With 0/1 targets :math:`p` this is Eq. (3) of the paper [1]_. With debiased labels, ``noise.debias(Y_noisy)``, it
    is the unbiased loss of Eq. (4), and Eq. (9) for ``PartialNoise``.

    Parameters
    ----------
    scores : Tensor of shape (..., q)
        Scores f of the labels.
    targets : Tensor of shape (..., q)
        Targets p, any real numbers. A NaN target does not contribute.
    surrogate : {"square", "hinge", "sigmoid", "logistic"} or callable, default="square"
        Margin loss phi. A callable maps a tensor t to phi(t).

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
    >>> import torch
    >>> hamming_loss(torch.tensor([0.5, -1.0]), torch.tensor([1.0, 0.0]), "square")
    tensor(0.2500)
    """
    phi = surrogate if callable(surrogate) else resolve_surrogate(surrogate)
    f, p, n = observed(scores, targets)  # n = 1 - p; all three are 0 where p is NaN
    fast = _fast.two_sided_sum(f, p, n, phi)
    return (p * phi(f) + n * phi(-f)).sum(-1) if fast is None else fast


class HammingLoss(MultiLabelLoss):
    r"""Hamming surrogate loss, unbiased under label noise [1]_.

    .. math:: \frac1n \sum_i \sum_j p_{ij}\, \phi(f_{ij}) + (1 - p_{ij})\, \phi(-f_{ij}),
              \qquad p = \mathrm{debias}(\tilde y)

    Parameters
    ----------
    surrogate : {"square", "hinge", "sigmoid", "logistic"} or callable, default="square"
        Margin loss phi. Every convex phi with phi'(0) < 0 is consistent for the Hamming loss (Theorem 3 of [1]_).
    noise : NoiseModel or None, default=None
        Noise model of the labels passed to ``forward``. ``None`` means labels without noise.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over rows.
    correction : {"abs", "relu"} or None, default=None
        Risk correction: function g that keeps the estimated risk from becoming negative. It is applied to the parts
        :math:`R^+_j = \frac1n\sum_i p_{ij}\phi(f_{ij})` and :math:`R^-_j = \frac1n\sum_i (1-p_{ij})\phi(-f_{ij})` of
        every label, which estimate nonnegative numbers.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over labels. The formulas use the sum. The mean divides it by q, so that a learning rate selected for
        ``torch.nn.BCEWithLogitsLoss`` can be used.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.

    Examples
    --------
    >>> import torch
    >>> from ccmn import ClassConditionalNoise
    >>> loss = HammingLoss("logistic", noise=ClassConditionalNoise(0.2, 0.1, n_labels=3))
    >>> loss(torch.zeros(2, 3), torch.tensor([[1, 0, 1], [0, 0, 1]]))
    tensor(2.0794)
    """

    kernels: str | None = "hamming"

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return Eq. (4) for every row: ``hamming_loss`` of outputs (..., q) and debiased labels (..., q)."""
        return hamming_loss(outputs, targets, self.surrogate)

    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum over labels of g(R+_j) + g(R-_j) for outputs (..., n, q) and debiased labels (..., n, q)."""
        f, p, n = observed(outputs, targets)
        phi, known = self.surrogate, ~targets.isnan()
        return sum(corrected_means(part, known, self.g) for part in (p * phi(f), n * phi(-f)))  # type: ignore[return-value]
