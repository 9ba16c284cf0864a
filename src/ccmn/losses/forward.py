"""Forward noise correction: the likelihood of the noisy labels under a model of the true labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ccmn.losses.multilabel_loss import MultiLabelLoss, observed
from ccmn.noise import ClassConditionalNoise
from ccmn.noise.class_conditional import ClassConditionalDebiasing


class ForwardLoss(MultiLabelLoss):
    r"""Negative log-likelihood of the noisy labels under a logistic model of the true labels [1]_.

    .. math:: -\sum_j \tilde y_j \log g_j + (1 - \tilde y_j) \log (1 - g_j), \qquad
              g_j = \rho_{neg,j} + (1 - \rho_{pos,j} - \rho_{neg,j})\, \sigma(f_j)

    The loss is not linear in the labels, so debiased labels cannot be used. The noise rates are part of the model
    instead. The loss is never negative, and equals the logistic Hamming loss when there is no noise.

    Parameters
    ----------
    noise : ClassConditionalNoise or None, default=None
        Noise model of the labels passed to ``forward``. ``None`` means labels without noise.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over rows.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over labels.

    References
    ----------
    .. [1] G. Patrini, A. Rozza, A. K. Menon, R. Nock and L. Qu, "Making Deep Neural Networks Robust to Label Noise: A
       Loss Correction Approach", CVPR, 2017.

    Examples
    --------
    >>> loss = ForwardLoss(ClassConditionalNoise(0.2, 0.1, n_labels=2))
    >>> loss(torch.zeros(1, 2), torch.tensor([[1, 0]]))
    tensor(1.3963)
    """

    def __init__(
        self, noise: ClassConditionalNoise | None = None, reduction: str = "mean", *, label_reduction: str = "sum"
    ) -> None:
        super().__init__("logistic", None, reduction, None, label_reduction=label_reduction)
        if noise is not None and not isinstance(noise, ClassConditionalNoise):
            raise TypeError(f"noise must be a ClassConditionalNoise (two rates per label); got {type(noise).__name__}")
        self.noise = noise
        if noise is not None:
            self.rates = noise.debiasing()  # labels are not debiased: the rates are part of the model

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log-likelihood of every row."""
        f, pos, neg = observed(outputs, targets)
        log_positive, log_negative = logsigmoid(f), logsigmoid(-f)
        if self.noise is not None:
            assert isinstance(self.rates, ClassConditionalDebiasing)
            rho_pos, rho_neg = self.rates.rho_pos.to(f), self.rates.rho_neg.to(f)
            # log g and log(1 - g), computed in the log domain; logaddexp accepts log 0 = -inf.
            log_positive, log_negative = (
                torch.logaddexp(rho_neg.log() + log_negative, (1 - rho_pos).log() + log_positive),
                torch.logaddexp((1 - rho_neg).log() + log_negative, rho_pos.log() + log_positive),
            )
        return -(pos * log_positive + neg * log_negative).sum(-1)
