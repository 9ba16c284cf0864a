"""The forward correction: the likelihood of the noisy labels. Not the paper's; never negative, a peer of it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ccmn.losses.multilabel_loss import MultiLabelLoss, weigh
from ccmn.noise import ClassConditionalNoise
from ccmn.noise.class_conditional import ClassConditionalDebiasing


class ForwardLoss(MultiLabelLoss):
    r"""Negative log-likelihood of noisy labels under a logistic model of the true ones.

    .. math:: -\sum_j \tilde y_j \log g_j + (1 - \tilde y_j) \log (1 - g_j), \qquad
              g_j = \rho_{neg,j} + (1 - \rho_{pos,j} - \rho_{neg,j})\, \sigma(f_j)

    It is not linear in the labels, so debiasing does not apply: the rates go into the model instead. Without noise it
    is the logistic Hamming loss.

    Examples
    --------
    >>> loss = ForwardLoss(ClassConditionalNoise(0.2, 0.1, n_labels=2))
    >>> loss(torch.zeros(1, 2), torch.tensor([[1, 0]]))
    tensor(1.3963)
    """

    def __init__(self, noise: ClassConditionalNoise | None = None, reduction: str = "mean") -> None:
        super().__init__("logistic", noise, reduction, None, flood_level=0.0)
        if noise is not None and not isinstance(noise, ClassConditionalNoise):
            raise TypeError(f"ForwardLoss needs two rates per label; got {type(noise).__name__}")

    def n_outputs(self, q: int) -> int:
        """q: one output per label."""
        return q

    def decision(self, outputs: Tensor) -> Tensor:
        """The outputs: log-odds of the true labels."""
        return outputs

    def debias_tensor(self, labels: Tensor) -> Tensor:
        """Noisy labels stay as they are: the likelihood is theirs."""
        return labels

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        f, pos, neg = weigh(outputs.to(targets.dtype), targets)
        yes, no = logsigmoid(f), logsigmoid(-f)
        if self.noise is not None:
            assert isinstance(self.debias, ClassConditionalDebiasing)
            rho_pos, rho_neg = self.debias.rho_pos.to(f), self.debias.rho_neg.to(f)
            # log g and log(1 - g) without leaving the logarithm; log 0 = -inf is harmless in logaddexp.
            yes, no = (
                torch.logaddexp(rho_neg.log() + no, (1 - rho_pos).log() + yes),
                torch.logaddexp((1 - rho_neg).log() + no, rho_pos.log() + yes),
            )
        return -(pos * yes + neg * no).sum(-1)

    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Never called: a likelihood needs no correction, and none can be asked for."""
        return self.risk(outputs, targets).mean(-1)
