r"""Conditional risks: what a score vector costs under a known distribution of the label vector (section 4.1).

Both losses see the labels through few numbers: the Hamming loss through the marginals :math:`\pi_j = P(y_j = 1)`, the
ranking loss through :math:`P(y_j = 1, y_k = 0)`, which is the appendix's :math:`\Delta_{k,j}`. Since

.. math:: \Delta_{k,j} - \Delta_{j,k} = P(y_j = 1, y_k = 0) - P(y_j = 0, y_k = 1) = \pi_j - \pi_k,

the Bayes predictors of the ranking loss are the scores that order labels by their marginals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import product

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ccmn._validation import check_distribution

Phi = Callable[[Tensor], Tensor]


class LabelDistribution:
    """Probabilities of all 2^q label vectors, for small q.

    Parameters
    ----------
    p : array of shape (2^q,)
        In the order of binary numbers, the first label in front: 00, 01, 10, 11 for q = 2.

    Examples
    --------
    >>> p = LabelDistribution([0.1, 0.2, 0.3, 0.4])
    >>> p.marginals.tolist()
    [0.7, 0.6]
    >>> p.pairs[0, 1].item()
    0.3
    """

    def __init__(self, p: ArrayLike) -> None:
        self.p = torch.from_numpy(check_distribution(p))
        self.q = len(self.p).bit_length() - 1

    @cached_property
    def vectors(self) -> Tensor:
        """The label vectors, (2^q, q), in the order of ``p``."""
        return torch.tensor(list(product((0.0, 1.0), repeat=self.q)), dtype=torch.float64)

    @cached_property
    def marginals(self) -> Tensor:
        """P(y_j = 1), (q,)."""
        return self.p @ self.vectors

    @cached_property
    def pairs(self) -> Tensor:
        """P(y_j = 1, y_k = 0), (q, q); the paper's Delta_{k,j}."""
        return (self.p[:, None] * self.vectors).T @ (1 - self.vectors)

    def __repr__(self) -> str:
        return f"LabelDistribution({[round(x, 4) for x in self.p.tolist()]})"


def hamming_risk(p: LabelDistribution, scores: Tensor) -> Tensor:
    r"""The conditional risk :math:`l(p, f)` of the Hamming loss, Eq. (1), one value per score vector.

    .. math:: \frac1q \sum_j P(y_j \neq 1[f_j \ge 0])

    >>> hamming_risk(LabelDistribution([0.1, 0.2, 0.3, 0.4]), torch.tensor([1.0, -1.0]))
    tensor(0.4500, dtype=torch.float64)
    """
    return torch.where(scores >= 0, 1 - p.marginals, p.marginals).mean(-1)


def ranking_risk(p: LabelDistribution, scores: Tensor) -> Tensor:
    r"""The conditional risk :math:`l(p, f)` of the ranking loss, Eq. (2), one value per score vector.

    .. math:: \sum_{j \neq k} P(y_j = 1, y_k = 0) \big( 1[f_j < f_k] + \tfrac12 1[f_j = f_k] \big)

    >>> ranking_risk(LabelDistribution([0.1, 0.2, 0.3, 0.4]), torch.tensor([0.0, 1.0]))
    tensor(0.3000, dtype=torch.float64)
    """
    return (p.pairs * _reversed(_differences(scores))).sum((-2, -1))


def hamming_surrogate_risk(p: LabelDistribution, scores: Tensor, phi: Phi) -> Tensor:
    r"""The conditional surrogate risk :math:`W(p, f)` of Eq. (3), one value per score vector.

    .. math:: \sum_j \pi_j\, \phi(f_j) + (1 - \pi_j)\, \phi(-f_j)

    By Lemma 1 it is also that of the unbiased loss, Eq. (4), under any noise (proof of Theorem 3).
    """
    return (p.marginals * phi(scores) + (1 - p.marginals) * phi(-scores)).sum(-1)


def ranking_surrogate_risk(p: LabelDistribution, scores: Tensor, phi: Phi) -> Tensor:
    r"""The conditional surrogate risk :math:`W(p, f)` of Eq. (5), one value per score vector.

    .. math:: \sum_{j \neq k} P(y_j = 1, y_k = 0)\, \phi(f_j - f_k)

    By Lemma 2 it is also that of the unbiased loss, Eq. (6), under any noise (proof of Theorem 5).
    """
    return (p.pairs * phi(_differences(scores))).sum((-2, -1))


def hamming_excess(marginals: Tensor, scores: Tensor) -> Tensor:
    r"""Conditional risk above the Bayes risk, Hamming loss, from the marginals alone.

    .. math:: \frac1q \sum_j |2 \pi_j - 1|\, 1[f_j \text{ on the wrong side of } 0]

    Parameters
    ----------
    marginals, scores : tensors of shape (..., q)

    Examples
    --------
    >>> hamming_excess(torch.tensor([0.7, 0.6]), torch.tensor([1.0, -1.0]))
    tensor(0.1000)
    """
    wrong = (scores >= 0) != (marginals >= 0.5)
    return ((2 * marginals - 1).abs() * wrong).mean(-1)


def ranking_excess(marginals: Tensor, scores: Tensor) -> Tensor:
    r"""Conditional risk above the Bayes risk, ranking loss, from the marginals alone.

    .. math:: \sum_{\pi_j > \pi_k} (\pi_j - \pi_k) \big( 1[f_j < f_k] + \tfrac12 1[f_j = f_k] \big)

    Parameters
    ----------
    marginals, scores : tensors of shape (..., q)

    Examples
    --------
    >>> ranking_excess(torch.tensor([0.7, 0.6]), torch.tensor([0.0, 1.0]))
    tensor(0.1000)
    """
    ahead = _differences(marginals).clamp_min(0)
    return (ahead * _reversed(_differences(scores))).sum((-2, -1))


def _differences(values: Tensor) -> Tensor:
    """v_j - v_k, (..., q, q)."""
    return values[..., :, None] - values[..., None, :]


def _reversed(differences: Tensor) -> Tensor:
    """1 where the first is below the second, 1/2 where they tie."""
    return (differences < 0).to(differences.dtype) + (differences == 0).to(differences.dtype) / 2
