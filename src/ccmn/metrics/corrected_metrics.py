r"""Metrics on debiased labels, for one model or a stack of models. They are also used for model selection in training.

Labels p are real numbers with E[p | y] = y, NaN where a label is not observed. True labels are 0 and 1. Each function
takes p of shape (n, q), scores or predictions of shape (..., n, q) and row weights of shape (n,), and returns (...) in
float64. All are differentiable in p and in the weights; standard errors are computed from these derivatives. Ratios of
unbiased sums are consistent.

The functions ``single_label_*`` are for rows with exactly one true label, under noise with a transition matrix. Flips
of a row are then dependent, but the metrics are linear functions of the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from ccmn.metrics.metric import Form, debias_transform
from ccmn.noise import ClassConditionalNoise, NoiseModel

MIN_ROWS_PER_INFLATION = 100
"""Minimum number of rows per unit of variance inflation for the unbiased estimate. The standard error is then at most
about a tenth of the standard deviation of the metric over rows."""

MAX_NODES = 32
"""Maximum number of Gauss-Legendre nodes: exact for up to 64 labels; for more labels the error is below 1e-9."""
N_NODE_SETS = 6
"""Number of node sets to select from. Products are divided by their factors, so no factor should be close to 0."""

MetricFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Function (soft labels, scores, row weights) -> metric."""

_TINY = torch.finfo(torch.float64).tiny


class Sums(NamedTuple):
    """Numerators (...) and denominator of a metric: sums over rows, which can be accumulated block by block."""

    wrong: Tensor
    total: Tensor

    def ratio(self) -> Tensor:
        """Return the quotient; NaN if the denominator is not positive, which can happen with few rows."""
        return torch.where(self.total > 0, self.wrong / self.total.clamp_min(_TINY), torch.nan)


def quotient(sums: Callable[[Tensor, Tensor, Tensor], Sums]) -> MetricFunction:
    """Return the metric that is the ratio of these sums."""
    return lambda p, second, weights: sums(p, second, weights).ratio()


def hamming_sums(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Sums:
    r"""Return the sums of the unbiased Hamming loss: the mean of :math:`p_j (1 - h_j) + (1 - p_j) h_j`."""
    p, entry_weights = _fill_unobserved(p, weights)
    wrong = p + (1 - 2 * p) * predicted.double()
    return Sums((wrong * entry_weights).sum((-1, -2)), entry_weights.sum())


def one_error_sums(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Sums:
    """Return the sums of the unbiased one-error: the mean of 1 - p of the top label over rows without NaN."""
    top = scores == scores.amax(-1, keepdim=True)
    wrong = 1 - (top * p.double().nan_to_num(0.0)).sum(-1) / top.sum(-1)
    return _row_sums(wrong, p, weights)


def pooled_ranking_sums(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Sums:
    r"""Return the sums of the ranking loss over all pairs of all rows: wrong pairs and pairs.

    .. math:: \sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik}) (1[f_{ij} < f_{ik}] + \tfrac12 1[f_{ij} = f_{ik}]),
              \qquad \sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik})
    """
    pos, observed = _fill_unobserved(p, None)
    neg = (1 - pos) * observed
    wrong = wrong_pair_weights(pos, neg, scores)
    pairs = pos.sum(-1) * neg.sum(-1) - (pos * neg).sum(-1)
    if weights is not None:
        wrong, pairs = wrong * weights.double(), pairs * weights.double()
    return Sums(wrong.sum(-1), pairs.sum())


def wrong_pair_weights(pos: Tensor, neg: Tensor, scores: Tensor) -> Tensor:
    """Return for each row the sum of pos_j neg_k over pairs j != k with f_j < f_k; tied pairs count 1/2."""
    ordered, order = scores.contiguous().sort(dim=-1)
    p, n = (t.expand(scores.shape).gather(-1, order) for t in (pos, neg))
    below = torch.searchsorted(ordered, ordered)
    up_to = torch.searchsorted(ordered, ordered, right=True)
    prefix = pad(n.cumsum(-1), (1, 0))
    total = prefix[..., -1:]
    # Weight above j: total - up_to. Weight tied with j: up_to - below, minus j itself.
    above = total - (prefix.gather(-1, up_to) + prefix.gather(-1, below)) / 2
    return (p * (above - n / 2)).sum(-1)


def f1(p: Tensor, predicted: Tensor, weights: Tensor | None = None, *, macro: bool) -> Tensor:
    r"""Return :math:`2 TP / (PP + P)` over all labels, or its mean over the labels: ratios of unbiased sums.

    Here :math:`TP = \sum h p`, :math:`P = \sum p` and :math:`PP = \sum h`. F1 is 0 if P = 0, as for true labels. If
    P < 0, F1 of all labels is NaN; F1 of one label counts 0.
    """
    p, entry_weights = _fill_unobserved(p, weights)
    dim = (-2,) if macro else (-2, -1)
    true_positives, positives = ((entry_weights * values).sum(dim) for values in (p * predicted, p))
    denominator = torch.where(positives > 0, positives + (entry_weights * predicted).sum(dim), 1.0)
    f1 = torch.where(positives > 0, 2 * true_positives / denominator, 0.0)
    if macro:
        return f1.sum(-1) / (entry_weights > 0).any(-2).sum()
    return torch.where(positives < 0, torch.nan, f1)


def macro_auc(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the AUC averaged over the labels that have both classes; each is a ratio of two unbiased sums.

    .. math:: \frac{\sum_{i \ne m} p_i (1 - p_m) (1[f_i > f_m] + \frac12 1[f_i = f_m])}{\sum_{i \ne m} p_i (1 - p_m)}
    """
    included = have_both_classes(p, weights)
    p, entry_weights = _fill_unobserved(p.mT, weights, rows=-1)
    pos, neg = p * entry_weights, (1 - p) * entry_weights
    wrong = wrong_pair_weights(pos, neg, scores.mT)
    pairs = pos.sum(-1) * neg.sum(-1) - (pos * neg).sum(-1)
    return _mean_over_labels(pairs - wrong, pairs, included & (pairs > 0))


def mean_average_precision(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the average precision averaged over the labels that have positives; each is a ratio of unbiased sums.

    .. math:: \frac{\sum_i \frac{p_i}{r_i} \Big( 1 + \sum_{m \ne i,\, f_m \ge f_i} p_m \Big)}{\sum_i p_i}

    Here :math:`r_i` is the number of rows with the score of row i or a higher one. Flips of different rows are
    independent, so that the numerator, which contains no label twice in a term, is unbiased.
    """
    return _mean_over_labels(*average_precision_sums(p, scores, weights), have_positives(p, weights))


def _mean_over_labels(numerator: Tensor, denominator: Tensor, included: Tensor) -> Tensor:
    """Return the mean of the ratios (..., q) of the included labels; NaN if there is none."""
    ratios = torch.where(included, numerator / torch.where(included, denominator, 1.0), 0.0)
    return torch.where(included.any(-1), ratios.sum(-1) / included.sum(-1).clamp_min(1), torch.nan)


def average_precision_sums(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return numerator (..., q) and denominator (q,) of the average precision of each label."""
    labels, entry_weights = _fill_unobserved(p.mT, weights, rows=-1)
    ordered, order = scores.mT.contiguous().sort(dim=-1)
    y, w = (t.expand(ordered.shape).gather(-1, order) for t in (labels, entry_weights))
    first_tied = torch.searchsorted(ordered, ordered)

    def at_or_above(values: Tensor) -> Tensor:
        sums = pad(values.cumsum(-1), (1, 0))
        return sums[..., -1:] - sums.gather(-1, first_tied)

    hits = at_or_above(w * y) - w * y + w
    return (w * y * hits / at_or_above(w).clamp_min(_TINY)).sum(-1), (labels * entry_weights).sum(-1)


def have_positives(p: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return for each label (q,) whether the number of its positive rows exceeds 0 by two standard errors.

    The standard error follows from E[p^2 - p], the variance that noise adds to p, which is 0 for true labels.
    """
    p, entry_weights = _fill_unobserved(p.detach(), weights)
    margin = 2 * (entry_weights.square() * (p.square() - p)).sum(-2).clamp_min(0).sqrt()
    return (p * entry_weights).sum(-2) > margin


def have_both_classes(p: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return for each label (q,) whether its positives and its negatives exceed 0 by two standard errors."""
    return have_positives(p, weights) & have_positives(1 - p, weights)


def single_label_ranking_loss(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the mean of :math:`\sum_j p_j a_j / (q - 1)`; :math:`a_j` counts labels above j, and ties as 1/2."""
    not_below, above = _ranks(scores)
    wrong = (not_below - 1 + above) / 2 / max(1, scores.shape[-1] - 1)
    return _mean_at_true_label(wrong, p, weights)


def single_label_average_precision(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the mean of :math:`\sum_j p_j / r_j`, where :math:`r_j` is the number of labels not below j."""
    return _mean_at_true_label(1 / _ranks(scores)[0], p, weights)


def single_label_coverage(
    p: Tensor, scores: Tensor, weights: Tensor | None = None, *, normalized: bool = False
) -> Tensor:
    r"""Return the mean of :math:`\sum_j p_j r_j`, or of :math:`\sum_j p_j (r_j - 1) / q` if normalized."""
    depth = _ranks(scores)[0]
    return _mean_at_true_label((depth - 1) / scores.shape[-1] if normalized else depth, p, weights)


def _ranks(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each label the number of labels not below it, including itself, and of labels strictly above it."""
    ordered = scores.sort(dim=-1).values.contiguous()
    scores, q = scores.contiguous(), scores.shape[-1]
    lower, up_to = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    return (q - lower).double(), (q - up_to).double()


def _mean_at_true_label(values: Tensor, p: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean over rows of the value (..., n, q) at the true label."""
    return _row_sums((p.double().nan_to_num(0.0) * values).sum(-1), p, weights).ratio()


def _row_sums(values: Tensor, p: Tensor, weights: Tensor | None) -> Sums:
    """Return the sum of values (..., n) over rows in which every label is observed, and that of the row weights."""
    observed = ~p.isnan().any(-1)
    row_weights = observed.double() if weights is None else observed * weights.double()
    return Sums((torch.where(observed, values, 0.0) * row_weights).sum(-1), row_weights.sum())


def _fill_unobserved(p: Tensor, weights: Tensor | None, rows: int = -2) -> tuple[Tensor, Tensor]:
    """Return labels with NaN replaced by 0, and the weight of every entry: that of its row, or 0 if not observed."""
    observed = (~p.isnan()).double()
    entry_weights = observed if weights is None else observed * weights.double().unsqueeze(-3 - rows)
    return p.double().nan_to_num(0.0), entry_weights


def multilinear_form(
    multilinear: MetricFunction, single_label: MetricFunction, Y: Tensor, scores: Tensor, model: NoiseModel
) -> Form:
    r"""Return the form of average precision or coverage: multilinear, or for rows with exactly one true label.

    Every function of 0/1 labels has exactly one multilinear form, in which no label occurs twice in a term. Debiased
    labels give an unbiased estimate in this form, because labels flip independently. The variance of a product of q
    debiased labels grows like :math:`\prod_j c_j`, where :math:`c_j` is the largest possible second moment of a factor
    :math:`1 - p_j`:

    .. math:: c_j = \max\Big(1 + \frac{\rho_{neg,j} (1 - \rho_{neg,j})}{r_j^2},\;
              \frac{\rho_{pos,j} (1 - \rho_{pos,j})}{r_j^2}\Big), \qquad r_j = 1 - \rho_{pos,j} - \rho_{neg,j}

    If the product is too large for the number of rows, posterior probabilities replace the debiased labels:

    .. math:: P(y = 1 \mid \tilde y, f) = \frac{\eta\, P(\tilde y \mid 1)}{\eta\, P(\tilde y \mid 1) + (1 - \eta)
              P(\tilde y \mid 0)}, \qquad \eta = P(y = 1 \mid f)

    Here :math:`\eta` is an isotonic regression of the debiased labels on the scores, label by label. Products of
    posterior probabilities have a small variance, but assume that the labels of a row are independent given scores and
    noisy labels, so that the estimate is approximate. The choice depends only on rates, q and n: models that are
    compared on the same rows are compared by the same estimator.
    """
    if not model.flips_independent:
        return Form(single_label, "unbiased", complete_rows=True)
    max_inflation = max(1.0, len(Y) / MIN_ROWS_PER_INFLATION)
    if isinstance(model, ClassConditionalNoise) and variance_inflation(model) > max_inflation:
        return Form(multilinear, "approximate", complete_rows=True, transform=partial(posterior_labels, scores))
    return Form(multilinear, "unbiased", complete_rows=True)


def variance_inflation(noise: ClassConditionalNoise) -> float:
    """Return the largest factor by which noise increases the variance of a product over all labels.

    >>> variance_inflation(ClassConditionalNoise(0.0, 0.5, n_labels=10))
    1024.0
    >>> variance_inflation(ClassConditionalNoise(0.5, 0.0, n_labels=10))
    1.0
    """
    squared_signal = (1 - noise.rho_pos - noise.rho_neg) ** 2
    if_false = 1 + noise.rho_neg * (1 - noise.rho_neg) / squared_signal
    if_true = noise.rho_pos * (1 - noise.rho_pos) / squared_signal
    with np.errstate(over="ignore"):
        return float(np.maximum(if_false, if_true).prod())


def average_precision(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the mean multilinear average precision over rows without NaN.

    .. math:: \prod_i (1 - p_i) + \int_0^1 \sum_j \frac{p_j}{r_j} \Big( \prod_{i \ne j} g_i(z)
              + z \sum_{k \ne j,\, f_k \ge f_j} p_k \prod_{i \ne j, k} g_i(z) \Big) dz,
              \qquad g_i(z) = 1 - p_i + p_i z

    Here :math:`r_j` is the rank of label j. The integral of :math:`z^{|P| - 1}` equals :math:`1 / |P|`, the divisor
    of the average over true labels. The first product is the case of no true label, which counts 1. O(n q) memory.
    """
    labels, n_lower = _sorted_labels(p, scores)
    integral: Tensor = _PrecisionIntegral.apply(labels, n_lower, _quadrature(p))  # type: ignore[no-untyped-call]
    return _row_sums((1 - labels).prod(-1) + integral, p, weights).ratio()


def coverage(p: Tensor, scores: Tensor, weights: Tensor | None = None, *, normalized: bool = False) -> Tensor:
    r"""Return the mean multilinear coverage over rows without NaN.

    .. math:: \sum_k \Big( 1 - \prod_{i:\, f_i \le f_k} (1 - p_i) \Big)

    Label k counts if a label with the same or a lower score is true. If ``normalized``, 1 is subtracted for rows with a
    true label, in expectation :math:`1 - \prod_i (1 - p_i)`, and the result is divided by q.
    """
    labels, _ = _sorted_labels(p, scores)
    ordered = scores.sort(dim=-1).values.contiguous()
    last_tied = torch.searchsorted(ordered, ordered, right=True) - 1
    none_below = (1 - labels).cumprod(-1)
    count = (1 - none_below.gather(-1, last_tied)).sum(-1)
    if normalized:
        count = (count - (1 - none_below[..., -1])) / labels.shape[-1]
    return _row_sums(count, p, weights).ratio()


def _sorted_labels(p: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the labels by ascending score (NaN replaced by 0), and for each the number of strictly lower scores."""
    ordered, order = scores.contiguous().sort(dim=-1)
    labels = p.double().nan_to_num(0.0).expand(scores.shape).gather(-1, order)
    return labels, torch.searchsorted(ordered, ordered)


def _quadrature(p: Tensor) -> list[tuple[float, float]]:
    """Return Gauss-Legendre nodes and weights on [0, 1], exact for polynomials of degree q - 1 up to ``MAX_NODES``."""
    fewest = min(p.shape[-1] // 2 + 1, MAX_NODES)
    # The factor 1 - p + p z has a root in [0, 1] if p > 1: select the node set that is farthest from all roots.
    large = np.unique(p.detach()[p > 1].double().cpu().numpy())
    node_sets = [np.polynomial.legendre.leggauss(fewest + more) for more in range(N_NODE_SETS if large.size else 1)]
    distances = [np.abs(1 - large * (1 - (z[:, None] + 1) / 2)).min(initial=1.0) for z, _ in node_sets]
    nodes, node_weights = node_sets[int(np.argmax(distances))]
    return [((z + 1) / 2, weight / 2) for z, weight in zip(nodes.tolist(), node_weights.tolist())]


class _PrecisionIntegral(torch.autograd.Function):
    """Sum of ``_precision_at`` over the nodes. Its derivative, one matrix (..., n, q), is accumulated node by node."""

    @staticmethod
    def forward(ctx: Any, labels: Tensor, n_lower: Tensor, nodes: list[tuple[float, float]]) -> Tensor:
        needs_grad = ctx.needs_input_grad[0]
        total, slope = labels.new_zeros(labels.shape[:-1]), torch.zeros_like(labels)
        for z, weight in nodes:
            leaf = labels.detach().requires_grad_(needs_grad)
            with torch.set_grad_enabled(needs_grad):
                term = weight * _precision_at(leaf, n_lower, z)
                if needs_grad:
                    slope += torch.autograd.grad(term.sum(), leaf)[0]
            total += term.detach()
        ctx.save_for_backward(slope)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None


def _precision_at(labels: Tensor, n_lower: Tensor, z: float) -> Tensor:
    """Return the integrand; products without one or two factors are the full product divided by these factors."""
    factor = 1 - labels + labels * z
    odds = labels / factor
    # Sum over all labels with the same or a higher score, without the label itself.
    others = odds.sum(-1, keepdim=True) - (odds.cumsum(-1) - odds).gather(-1, n_lower) - odds
    rank = labels.shape[-1] - n_lower
    return factor.prod(-1) * (odds / rank * (1 + z * others)).sum(-1)


def posterior_labels(scores: Tensor, Y: Tensor, rho_pos: Tensor, rho_neg: Tensor, weights: Tensor) -> Tensor:
    """Return P(y = 1) given the noisy label and the scores (n, q), by Bayes' rule; NaN stays NaN."""
    prior = clean_probability(debias_transform(Y, rho_pos, rho_neg, weights), scores, weights)
    prior = prior.clamp(1e-9, 1 - 1e-9)  # no 0 / 0
    if_true = prior * torch.where(Y == 1, 1 - rho_pos, rho_pos)
    if_false = (1 - prior) * torch.where(Y == 1, rho_neg, 1 - rho_neg)
    return torch.where(Y.isnan(), torch.nan, if_true / (if_true + if_false))


def clean_probability(p: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
    r"""Return P(y = 1 | f) for every entry, from debiased labels p: isotonic in the score, with the sum :math:`\sum p`.

    The means m of debiased labels over ranges of scores can leave [0, 1]. Clipping alone would increase their sum, by a
    large factor if there are many rare labels. The closest probabilities with the correct sum are
    :math:`\min(\max(m - t, 0), 1)` with a common shift t.
    """
    observed = ~p.isnan()
    cell = torch.from_numpy(_isotonic_cells(p, scores, weights)).to(p.device)
    entry_weights = (observed * weights.unsqueeze(-1)).flatten()
    empty = entry_weights.new_zeros(int(cell.max()) + 1)
    size = empty.index_add(0, cell.flatten(), entry_weights)
    total = empty.index_add(0, cell.flatten(), entry_weights * p.nan_to_num(0.0).flatten())
    mean = total / size.clamp_min(_TINY)
    return (mean - _shift(mean, size)).clamp(0, 1)[cell]


def _isotonic_cells(p: Tensor, scores: Tensor, weights: Tensor) -> NDArray[np.int64]:
    """Return (n, q) cell numbers: entries of one cell share one value of the isotonic regression of their label."""
    from sklearn.isotonic import isotonic_regression

    targets, f, w = (t.detach().double().cpu().numpy() for t in (p, scores, weights))
    cells, first = np.zeros(targets.shape, dtype=np.int64), 0
    for j in range(targets.shape[1]):
        rows = np.flatnonzero(~np.isnan(targets[:, j]))
        if not rows.size:
            continue
        # Tied scores are ordered by descending target, so that isotonic regression merges them into one cell.
        rows = rows[np.lexsort((-targets[rows, j], f[rows, j]))]
        fitted = isotonic_regression(targets[rows, j], sample_weight=w[rows])
        cells[rows, j] = first + np.concatenate(([0], np.cumsum(np.diff(fitted) > 0)))
        first = int(cells[rows, j].max()) + 1
    return cells


def _shift(mean: Tensor, size: Tensor) -> Tensor:
    """Return the shift t for which the clipped means have the sum of the means, differentiable in both arguments."""
    goal = (size * mean).sum()
    with torch.no_grad():
        low, high = mean.min() - 1, mean.max()
        for _ in range(60):  # down to the precision of float64
            middle = (low + high) / 2
            above = (size * (mean - middle).clamp(0, 1)).sum() > goal
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    inside, full = (mean > middle) & (mean < middle + 1), mean >= middle + 1
    # On the cells that are not clipped, the sum is linear in t.
    unclipped = (size * inside).sum()
    exact = ((size * mean * inside).sum() + (size * full).sum() - goal) / unclipped.clamp_min(_TINY)
    return torch.where(unclipped > 0, exact, middle)
