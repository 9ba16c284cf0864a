"""Published losses to compare with, as pure functions of scores and labels; none of them uses noise rates.

Every function returns one value per row, in float32 or higher precision. A NaN target does not contribute.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from ccmn._validation import check_choice, check_scores_and_targets, check_share
from ccmn.losses.multilabel_loss import LABEL_REDUCTIONS, observed


def asymmetric_loss(
    scores: Tensor,
    targets: Tensor,
    *,
    gamma_pos: float = 0.0,
    gamma_neg: float = 4.0,
    margin: float = 0.05,
    label_reduction: str = "sum",
) -> Tensor:
    r"""Return the asymmetric loss (ASL) of every row [1]_.

    .. math:: -\sum_j y_j (1 - \sigma_j)^{\gamma_+} \log \sigma_j
              + (1 - y_j)\, m_j^{\gamma_-} \log (1 - m_j), \qquad m_j = \max(\sigma_j - m, 0)

    Parameters
    ----------
    scores : Tensor of shape (..., q)
        Scores f of the labels; :math:`\sigma_j` is the sigmoid of :math:`f_j`.
    targets : Tensor of shape (..., q)
        Labels y. A NaN target does not contribute.
    gamma_pos, gamma_neg : float, default=0.0 and 4.0
        Focusing parameters of positive and negative labels.
    margin : float, default=0.05
        Probability margin m. Negative labels with a smaller probability have no loss.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over labels.

    Returns
    -------
    Tensor of shape (...)
        Loss of every row.

    References
    ----------
    .. [1] T. Ridnik, E. Ben-Baruch, N. Zamir, A. Noy, I. Friedman, M. Protter and L. Zelnik-Manor, "Asymmetric Loss
       For Multi-Label Classification", ICCV, 2021.

    Examples
    --------
    >>> asymmetric_loss(torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([0.3728])
    """
    f, pos, neg = _weighted(scores, targets)
    shifted = (torch.sigmoid(f) - check_share(margin, "margin")).clamp_min(0)
    # Without a margin, 1 - m_j = sigma(-f_j) can be much smaller than the rounding error of m_j.
    log_negative = torch.log1p(-shifted) if margin else -softplus(f)
    positive = torch.sigmoid(-f) ** gamma_pos * logsigmoid(f)
    return -_over_labels(pos * positive + neg * shifted**gamma_neg * log_negative, label_reduction)


def focal_loss(
    scores: Tensor, targets: Tensor, *, gamma: float = 2.0, alpha: float | None = 0.25, label_reduction: str = "sum"
) -> Tensor:
    r"""Return the focal loss of every row, with a sigmoid per label [1]_.

    .. math:: -\sum_j \alpha\, y_j (1 - \sigma_j)^\gamma \log \sigma_j
              + (1 - \alpha) (1 - y_j)\, \sigma_j^\gamma \log (1 - \sigma_j)

    Parameters
    ----------
    scores : Tensor of shape (..., q)
        Scores f of the labels; :math:`\sigma_j` is the sigmoid of :math:`f_j`.
    targets : Tensor of shape (..., q)
        Labels y. A NaN target does not contribute.
    gamma : float, default=2.0
        Focusing parameter.
    alpha : float or None, default=0.25
        Weight of positive labels; negative labels have the weight 1 - alpha. ``None`` means a weight of 1 for both.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over labels.

    Returns
    -------
    Tensor of shape (...)
        Loss of every row.

    References
    ----------
    .. [1] T.-Y. Lin, P. Goyal, R. Girshick, K. He and P. Dollár, "Focal Loss for Dense Object Detection", ICCV, 2017,
       Eq. (5).

    Examples
    --------
    >>> focal_loss(torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([0.5269])
    """
    f, pos, neg = _weighted(scores, targets)
    weight_pos, weight_neg = (1.0, 1.0) if alpha is None else (alpha, 1 - alpha)
    positive = torch.sigmoid(-f) ** gamma * softplus(-f)
    negative = torch.sigmoid(f) ** gamma * softplus(f)
    return _over_labels(weight_pos * pos * positive + weight_neg * neg * negative, label_reduction)


def generalized_cross_entropy(
    scores: Tensor, targets: Tensor, *, power: float = 0.7, label_reduction: str = "sum"
) -> Tensor:
    r"""Return the generalized cross entropy of every row, with two classes per label [1]_.

    .. math:: \sum_j y_j \frac{1 - \sigma_j^r}{r} + (1 - y_j) \frac{1 - (1 - \sigma_j)^r}{r}

    It is the mean absolute error for r = 1 and tends to the cross entropy for r to 0.

    Parameters
    ----------
    scores : Tensor of shape (..., q)
        Scores f of the labels; :math:`\sigma_j` is the sigmoid of :math:`f_j`.
    targets : Tensor of shape (..., q)
        Labels y. A NaN target does not contribute.
    power : float, default=0.7
        Exponent r, called q in [1]_, above 0 and at most 1.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over labels.

    Returns
    -------
    Tensor of shape (...)
        Loss of every row.

    References
    ----------
    .. [1] Z. Zhang and M. R. Sabuncu, "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy
       Labels", NeurIPS, 2018, Eq. (6).

    Examples
    --------
    >>> generalized_cross_entropy(torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([0.9803])
    """
    f, pos, neg = _weighted(scores, targets)
    if not 0 < power <= 1:
        raise ValueError(f"power must be above 0 and at most 1; got {power!r}")
    # 1 - exp(r log sigma), accurate for sigma close to 1.
    positive, negative = (-torch.expm1(power * logsigmoid(t)) / power for t in (f, -f))
    return _over_labels(pos * positive + neg * negative, label_reduction)


def hill_loss(
    scores: Tensor,
    targets: Tensor,
    *,
    scale: float = 1.5,
    margin: float = 1.0,
    gamma: float = 2.0,
    label_reduction: str = "sum",
) -> Tensor:
    r"""Return the Hill loss of every row, with the focal margin loss for positive labels [1]_.

    .. math:: \sum_j -y_j (1 - m_j)^\gamma \log m_j + (1 - y_j) (\lambda - \sigma_j)\, \sigma_j^2, \qquad
              m_j = \sigma(f_j - m)

    Parameters
    ----------
    scores : Tensor of shape (..., q)
        Scores f of the labels; :math:`\sigma_j` is the sigmoid of :math:`f_j`.
    targets : Tensor of shape (..., q)
        Labels y. A NaN target does not contribute.
    scale : float, default=1.5
        Parameter lambda. With 1.5, the derivative with respect to the probability of a negative label is 0 at the
        probability 1, where the label is probably missing.
    margin : float, default=1.0
        Margin m of positive labels.
    gamma : float, default=2.0
        Focusing parameter of positive labels.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over labels.

    Returns
    -------
    Tensor of shape (...)
        Loss of every row.

    References
    ----------
    .. [1] Y. Zhang, Y. Cheng, X. Huang, F. Wen, R. Feng, Y. Li and Y. Guo, "Simple and Robust Loss Design for
       Multi-Label Learning with Missing Labels", arXiv:2112.07368, 2021.

    Examples
    --------
    >>> hill_loss(torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([0.4336])
    """
    f, pos, neg = _weighted(scores, targets)
    shifted, probability = f - margin, torch.sigmoid(f)
    positive = torch.sigmoid(-shifted) ** gamma * softplus(-shifted)
    return _over_labels(pos * positive + neg * (scale - probability) * probability.square(), label_reduction)


def large_loss_rejection(
    scores: Tensor, targets: Tensor, rejected_fraction: float, *, label_reduction: str = "sum"
) -> Tensor:
    r"""Return the cross entropy of every row without the negative labels that have the largest losses (LL-R) [1]_.

    Negative labels may be missing positive ones, which a network fits late. Of all negative labels in the batch, those
    with the largest losses do not contribute. Training starts with a fraction of 0, which increases by the same amount
    in every epoch; [1]_ uses 0.002.

    Parameters
    ----------
    scores : Tensor of shape (..., q)
        Scores f of the labels.
    targets : Tensor of shape (..., q)
        Labels y. Labels equal to 0 are negative. A NaN target does not contribute.
    rejected_fraction : float
        Fraction of the negative labels that are rejected, from 0 to 1. Their number is rounded up.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over labels.

    Returns
    -------
    Tensor of shape (...)
        Loss of every row.

    References
    ----------
    .. [1] Y. Kim, J. M. Kim, Z. Akata and J. Lee, "Large Loss Matters in Weakly Supervised Multi-Label
       Classification", CVPR, 2022.

    Examples
    --------
    >>> large_loss_rejection(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]), 0.5)
    tensor([0.8201])
    """
    check_share(rejected_fraction, "rejected_fraction")
    f, pos, neg = _weighted(scores, targets)
    values = pos * softplus(-f) + neg * softplus(f)
    negative = (targets == 0).expand_as(values)
    if not rejected_fraction or not values.numel():
        return _over_labels(values, label_reduction)
    # The k-th largest loss is read by a tensor index, so that the host does not wait for the number of negative labels.
    largest = values.detach().masked_fill(~negative, -torch.inf).flatten().sort(descending=True).values
    count = (negative.sum() * rejected_fraction).ceil().long()
    rejected = negative & (values.detach() >= largest.gather(0, (count - 1).clamp_min(0).unsqueeze(0)))
    return _over_labels(values.masked_fill(rejected, 0), label_reduction)


def _weighted(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores in float32 or higher precision, with the weights of positive and negative labels."""
    check_scores_and_targets(scores.shape, targets.shape)
    return observed(scores, targets)


def _over_labels(values: Tensor, label_reduction: str) -> Tensor:
    """Return the sum or mean of values (..., q) over labels."""
    check_choice(label_reduction, "label_reduction", LABEL_REDUCTIONS)
    return values.sum(-1) if label_reduction == "sum" else values.mean(-1)
