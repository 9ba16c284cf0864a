"""Pairwise ranking surrogate loss of the CCMN paper, plain and unbiased: Eq. (5), (6), (8) and (10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ccmn._validation import check_scores_and_targets
from ccmn.losses._fast import pair_sum, pair_sums_by_label
from ccmn.losses._fast.cuda import can_fuse, fused_loss
from ccmn.losses._fast.direct import Needs
from ccmn.losses._fast.pair_sum import fast_pair_sums, is_compiled_inline
from ccmn.losses.hamming import hamming_loss
from ccmn.losses.multilabel_loss import MultiLabelLoss, Weighted, correction_slopes, with_weights
from ccmn.losses.surrogates import SURROGATES, Surrogate, SurrogateLike, resolve_surrogate
from ccmn.noise import NoiseModel


def ranking_loss(scores: Tensor, targets: Tensor, surrogate: SurrogateLike = "sigmoid") -> Tensor:
    r"""Return the pairwise ranking surrogate loss of every row.

    .. math:: \sum_{j \neq k} p_j (1 - p_k)\, \phi(f_j - f_k)

    With 0/1 targets :math:`p` this is Eq. (5) of the paper [1]_. With debiased labels, ``noise.debias(Y_noisy)``, it
    is the unbiased loss of Eq. (6), and Eq. (10) for ``PartialNoise``. The time is almost linear in q, see
    :mod:`ccmn.losses._fast.pair_sum`.

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
    check_scores_and_targets(scores.shape, targets.shape)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    phi = resolve_surrogate(surrogate)

    def eager(f: Tensor, p: Tensor) -> Tensor:
        return _ranking_rows(f, p, phi, dummy=False)

    if isinstance(phi, Surrogate) and targets.shape == scores.shape and can_fuse(scores, targets, phi):
        return fused_loss(scores, targets, None, phi, eager, loss="ranking")
    return eager(scores, targets)


def _ranking_rows(
    outputs: Tensor, targets: Tensor, phi: Surrogate | Callable[[Tensor], Tensor], *, dummy: bool
) -> Tensor:
    """Return the ranking loss of every row without fused kernels; with ``dummy``, output 0 is the dummy label."""
    if not torch.compiler.is_compiling() or not isinstance(phi, Surrogate) or targets.requires_grad:
        return pair_sum(*_with_weights(outputs, targets, dummy=dummy), phi)
    if is_compiled_inline(outputs, phi):
        if not dummy or phi.pair_method != "moments":
            return pair_sum(*_with_weights(outputs, targets, dummy=dummy), phi)
        # The pairs with the dummy label are a Hamming loss. Padded weights would slow down the compiled code.
        outputs = outputs.to(targets.dtype)
        labels, threshold = outputs[..., 1:], outputs[..., :1]
        return pair_sum(*with_weights(labels, targets), phi) + hamming_loss(labels - threshold, targets, phi)
    # The compiler would write masks and padded weights to memory before the pair sums; the operator has no need to.
    rows = outputs.shape[:-1]
    f, p = outputs.reshape(-1, outputs.shape[-1]), targets.expand(*rows, -1).reshape(-1, targets.shape[-1])
    values: Tensor = _CompiledRows.apply(f, p, phi.name, dummy)  # type: ignore[no-untyped-call]
    return values.reshape(rows)


def _with_weights(outputs: Tensor, targets: Tensor, *, dummy: bool) -> Weighted:
    """Return the scores and the positive and negative weights of all labels, including the dummy label.

    Both weights of the dummy label are 1. Its pairs with label j are p_j phi(f_j - f_0) and n_j phi(f_0 - f_j), so
    the pair sum over q + 1 labels is Eq. (6) plus Eq. (8) of the paper.
    """
    outputs = outputs.to(targets.dtype)
    if not dummy:
        return with_weights(outputs, targets)
    labels = outputs[..., 1:]
    f, pos, neg = with_weights(labels, targets)
    # If no target is NaN, the outputs are used without a copy.
    scores = outputs if f is labels else torch.cat((outputs[..., :1], f), -1)
    return Weighted(scores, pad(pos, (1, 0), value=1.0), pad(neg, (1, 0), value=1.0))


class _CompiledRows(torch.autograd.Function):
    """Ranking loss of rows for torch.compile, which does not look into the operator ``ccmn::ranking_rows``."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, targets: Tensor, surrogate: str, dummy: bool) -> Tensor:
        value, slope = torch.ops.ccmn.ranking_rows(outputs, targets, surrogate, dummy, ctx.needs_input_grad[0])
        ctx.save_for_backward(slope)
        ctx.dtype = outputs.dtype
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return (grad.unsqueeze(-1) * slope).to(ctx.dtype), None, None, None


_LIBRARY: Any = torch.library.Library("ccmn", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(
    "ranking_rows(Tensor outputs, Tensor targets, str surrogate, bool dummy, bool needs_gradient) -> (Tensor, Tensor)"
)


def _ranking_rows_op(
    outputs: Tensor, targets: Tensor, surrogate: str, dummy: bool, needs_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return the loss of every row and its gradient, which is empty unless it is needed."""
    weighted = _with_weights(outputs, targets, dummy=dummy)
    sums = fast_pair_sums(*weighted, SURROGATES[surrogate], Needs(needs_gradient, False))
    return sums.value, sums.value.new_empty(0) if sums.by_scores is None else sums.by_scores.contiguous()


_LIBRARY.impl("ranking_rows", _ranking_rows_op, "CompositeExplicitAutograd")


@torch.library.register_fake("ccmn::ranking_rows", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _(outputs: Tensor, targets: Tensor, surrogate: str, dummy: bool, needs_gradient: bool) -> tuple[Tensor, Tensor]:
    return targets.new_empty(len(outputs)), targets.new_empty(outputs.shape if needs_gradient else (0,))


class RankingLoss(MultiLabelLoss):
    r"""Pairwise ranking surrogate loss, unbiased under label noise [1]_.

    .. math:: \frac1n \sum_i \sum_{j \neq k} p_{ij} (1 - p_{ik})\, \phi(f_{ij} - f_{ik}),
              \qquad p = \mathrm{debias}(\tilde y)

    Products of two debiased labels are unbiased, because labels flip independently. This does not hold under
    ``TransitionNoise``: exactly one label of a sample is true, so :math:`y_j (1 - y_k) = y_j`, and the linear
    form :math:`\sum_{j \neq k} p_j \phi(f_j - f_k)` is used instead.

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
        label and of the dummy label; :class:`MultiLabelLoss` lists the functions.
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
        self._one_true_label = noise is not None and not noise.flips_independent
        if self._one_true_label and correction is not None:
            raise ValueError(
                f"correction={correction!r} is not defined for RankingLoss under {type(noise).__name__}; use "
                "correction=None or HammingLoss"
            )

    def n_outputs(self, q: int) -> int:
        """Return the number of network outputs: q, plus one with a dummy label.

        Parameters
        ----------
        q : int
            Number of labels.

        Returns
        -------
        int
            Number of outputs.
        """
        return q + 1 if self.dummy else q

    def decision(self, outputs: Tensor) -> Tensor:
        """Return the scores minus the score of the dummy label, or the outputs if there is no dummy label.

        Parameters
        ----------
        outputs : Tensor of shape (..., n_outputs(q))
            Outputs of the network.

        Returns
        -------
        Tensor of shape (..., q)
            Scores. With a dummy label, a label is predicted when its score is at least 0.
        """
        return outputs[..., 1:] - outputs[..., :1] if self.dummy else outputs

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every row for outputs (..., n_outputs(q)) and real-valued targets (..., q)."""
        if self._one_true_label:
            outputs = outputs.to(targets.dtype)
            f, pos, neg = with_weights(outputs[..., 1:] if self.dummy else outputs, targets)
            pairs = pair_sum(f, pos, (pos + neg), self.surrogate)
            return pairs + hamming_loss(self.decision(outputs), targets, self.surrogate) if self.dummy else pairs
        if targets.dtype != torch.float64 and self._can_fuse(outputs, targets):
            return self._fused_risk(outputs, targets, None)
        return self._eager_risk(outputs, targets)

    _fused_name: ClassVar[str] = "ranking"

    def _can_fuse(self, outputs: Tensor, labels: Tensor) -> bool:
        return can_fuse(outputs, labels, self.surrogate)

    def _eager_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _ranking_rows(outputs, targets, self.surrogate, dummy=self.dummy)

    def _n_terms(self, q: int) -> int:
        """Return the number of ordered pairs of outputs."""
        return self.n_outputs(q) * (self.n_outputs(q) - 1)

    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum over labels of g(R_j) for outputs (..., n, n_outputs) and targets (..., n, q)."""
        f, pos, neg = _with_weights(outputs, targets, dummy=self.dummy)
        observed = ~targets.isnan()
        if self.dummy:
            observed = pad(observed, (1, 0), value=True)
        parts = pair_sums_by_label(f, pos, neg, self.surrogate)
        value, slopes = correction_slopes(parts, observed, self._correct)
        # The gradient of sum_j g(R_j) is that of the pair sum whose positive weights are multiplied by g'(R_j). The
        # value is added without a gradient.
        weighted = pair_sum(f, slopes * pos, neg, self.surrogate).mean(-1)
        return weighted + (value - weighted).detach()
