"""Pairwise ranking surrogate loss: Eq. (5), unbiased Eq. (6), the dummy label of Eq. (8), and Eq. (10)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ccmn._validation import check_scores_and_targets
from ccmn.losses.hamming import hamming_loss
from ccmn.losses.multilabel_loss import MultiLabelLoss, Weighted, correction_slopes, weigh
from ccmn.losses.pairs import pair_row_sums, pair_sum
from ccmn.losses.surrogates import Surrogate, SurrogateLike, resolve_surrogate
from ccmn.losses.triton import can_fuse, fused_loss
from ccmn.noise import Debiasing, NoiseModel
from ccmn.noise.class_conditional import ClassConditionalDebiasing

_FEWEST_TO_LAY_OUT = 10_000
"""From so many scores on a CPU's double sums want all rows of a label side by side in memory."""


def ranking_loss(scores: Tensor, targets: Tensor, surrogate: SurrogateLike = "sigmoid") -> Tensor:
    r"""Pairwise ranking surrogate, one value per row.

    .. math:: \sum_{j \neq k} p_j (1 - p_k)\, \phi(f_j - f_k)

    Eq. (5) of the paper, first form, for 0/1 targets :math:`p`; Eq. (6) when they come from ``noise.debias`` (any
    real number), and Eq. (10) when that noise is partial. Near-linear in q: see :mod:`ccmn.losses.pairs.pair_sum`.

    Parameters
    ----------
    scores, targets : tensors of shape (..., q)
        NaN targets contribute nothing.
    surrogate : str or callable
        "square", "hinge", "sigmoid", "logistic", or phi(t) on tensors. Only the sigmoid is consistent for the
        ranking loss (Theorem 5).

    Examples
    --------
    >>> ranking_loss(torch.tensor([1.0, 0.0, 0.5]), torch.tensor([1.0, 0.0, 0.0]), "hinge")
    tensor(0.5000)
    """
    check_scores_and_targets(scores.shape, targets.shape)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    phi = resolve_surrogate(surrogate)

    def eager(f: Tensor, p: Tensor) -> Tensor:
        # p_j (1 - p_j) is 0 for true labels but not for debiased ones: pair_sum leaves j = k out.
        return pair_sum(*weigh(f, p), phi)

    if isinstance(phi, Surrogate) and targets.shape == scores.shape and can_fuse(scores, targets, phi):
        return fused_loss(scores, targets, None, phi, dummy=False, reduction="none", again=eager)
    return eager(scores, targets)


class RankingLoss(MultiLabelLoss):
    r"""The pairwise ranking surrogate loss, unbiased under label noise.

    .. math:: \frac1n \sum_i \sum_{j \neq k} p_{ij} (1 - p_{ik})\, \phi(f_{ij} - f_{ik}),
              \qquad p = \mathrm{debias}(\tilde y)

    Products of two different debiased labels are unbiased because labels flip independently. Under
    ``TransitionNoise`` they do not; there exactly one label is true, :math:`y_j (1 - y_k) = y_j`, and the linear
    form :math:`\sum_{j \neq k} p_j \phi(f_j - f_k)` is used.

    Parameters
    ----------
    surrogate : str or callable, default "sigmoid"
        phi; of those by name only the sigmoid is consistent for the ranking loss (Theorem 5).
    noise : NoiseModel or None
        How the labels given to ``forward`` went wrong; None: they are right.
    reduction : "mean", "sum" or "none"
        Over rows; pairs are always summed.
    correction : None, "abs", "relu" or "flood"
        Applied to the row sums :math:`R_j = \frac1n\sum_i p_{ij} \sum_{k \ne j} (1 - p_{ik}) \phi(f_{ij} - f_{ik})`,
        one for each label (and one for the dummy): see :mod:`ccmn.losses.multilabel_loss`.
    dummy : bool
        Learn a cut between relevant and irrelevant labels: output 0 is a dummy label that every relevant label
        should be above and every irrelevant one below (Eq. (8)). Without it ``decision`` is the scores, and 0
        means nothing.
    flood_level : float
        b of "flood".

    Examples
    --------
    >>> from ccmn import PartialNoise
    >>> loss = RankingLoss(noise=PartialNoise([0.3, 0.2, 0.4]))
    >>> loss.n_outputs(3)
    4
    >>> loss(torch.zeros(2, 4), torch.tensor([[1, 0, 1], [0, 1, 1]]))
    tensor(2.8393)
    """

    def __init__(
        self,
        surrogate: SurrogateLike = "sigmoid",
        noise: NoiseModel | None = None,
        reduction: str = "mean",
        correction: str | None = None,
        dummy: bool = True,
        *,
        flood_level: float = 0.0,
    ) -> None:
        super().__init__(surrogate, noise, reduction, correction, flood_level=flood_level)
        self.dummy = bool(dummy)
        self._one_true_label = noise is not None and not noise.flips_independent
        if self._one_true_label and correction is not None:
            raise ValueError(
                f"correction={correction!r} is not defined for the ranking loss under {type(noise).__name__}; "
                "use HammingLoss, or no correction"
            )

    def n_outputs(self, q: int) -> int:
        """q, and one for the dummy label."""
        return q + 1 if self.dummy else q

    def decision(self, outputs: Tensor) -> Tensor:
        """Scores above the dummy label's: a label is predicted when the difference is >= 0."""
        return outputs[..., 1:] - outputs[..., :1] if self.dummy else outputs

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self._one_true_label:
            return self._linear_risk(outputs.to(targets.dtype), targets)
        if targets.dtype != torch.float64 and can_fuse(outputs, targets, self.surrogate):
            return self._fused(outputs, targets, None, "none")
        return self._pair_risk(outputs, targets)

    def _reduced_risk(self, outputs: Tensor, labels: Tensor) -> Tensor:
        # Labels go into the kernels as they are, and are debiased there.
        debias = None if self.noise is None else self.debias
        known = debias is None or isinstance(debias, ClassConditionalDebiasing)
        if known and can_fuse(outputs, labels, self.surrogate):
            return self._fused(outputs, labels, debias, self.reduction)
        return super()._reduced_risk(outputs, labels)

    def _fused(self, outputs: Tensor, labels: Tensor, debias: Debiasing | None, reduction: str) -> Tensor:
        assert isinstance(self.surrogate, Surrogate)
        assert debias is None or isinstance(debias, ClassConditionalDebiasing)

        def again(f: Tensor, y: Tensor) -> Tensor:
            y = y.to(torch.promote_types(f.dtype, torch.float32))
            return self._pair_risk(f, y if debias is None else debias(y))

        return fused_loss(outputs, labels, debias, self.surrogate, dummy=self.dummy, reduction=reduction, again=again)

    def _pair_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return pair_sum(*self._weigh(outputs, targets), self.surrogate)

    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        f, pos, neg = self._weigh(outputs, targets)
        observed = ~targets.isnan()
        if self.dummy:
            observed = pad(observed, (1, 0), value=True)
        rows = pair_row_sums(f, pos, neg, self.surrogate)
        value, slopes = correction_slopes(rows, observed, self._g, self.flood_level)
        # The gradient of sum_j g(R_j) is that of the pair sum whose positive weights carry the slopes g'(R_j);
        # the value is put beside it without a gradient of its own.
        sloped = pair_sum(f, slopes * pos, neg, self.surrogate).mean(-1)
        return sloped + (value - sloped).detach()

    def _weigh(self, outputs: Tensor, targets: Tensor) -> Weighted:
        """Scores and weights, the dummy label among them.

        A dummy that is positive and negative at once, p_0 = n_0 = 1, meets label j as p_j phi(f_j - f_0) and as
        n_j phi(f_0 - f_j): the pair sum over q + 1 labels is Eq. (6) plus Eq. (8).
        """
        outputs = outputs.to(targets.dtype)
        if not self.dummy:
            return weigh(outputs, targets)
        labels = outputs[..., 1:]
        f, pos, neg = weigh(labels, targets)
        # Where no label is missing the outputs are the scores as they are.
        scores = outputs if f is labels else torch.cat((outputs[..., :1], f), -1)
        if scores.device.type == "cpu" and scores.numel() > _FEWEST_TO_LAY_OUT:
            scores = scores.movedim(-1, 0).contiguous().movedim(0, -1)
            return Weighted(scores, _label_by_label(pos), _label_by_label(neg))
        return Weighted(scores, pad(pos, (1, 0), value=1.0), pad(neg, (1, 0), value=1.0))

    def _linear_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        labels = outputs[..., 1:] if self.dummy else outputs
        f, pos, neg = weigh(labels, targets)
        pairs = pair_sum(f, pos, (pos + neg), self.surrogate)
        return pairs + hamming_loss(self.decision(outputs), targets, self.surrogate) if self.dummy else pairs


def _label_by_label(weights: Tensor) -> Tensor:
    """The weights (..., q) with the dummy's, 1, before them; all rows of a label side by side in memory."""
    whole = weights.new_empty(weights.shape[-1] + 1, *weights.shape[:-1])
    whole[0] = 1
    whole[1:] = weights.movedim(-1, 0)
    return whole.movedim(0, -1)
