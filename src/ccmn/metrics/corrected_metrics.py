r"""Metrics on debiased labels, for a stack of models at once: what training chooses epochs and learning rates by.

Labels here are real numbers p with E[p | y] = y, NaN where a label is not observed; for clean labels they are 0 and 1
and nothing is corrected. Each function takes p (n, q), scores or predictions (..., n, q) and row weights (n,); (...)
in float64 comes back. All are differentiable in p and in the weights, which is where standard errors come from.

Metrics of rows with exactly one true label, which noise turns into another one (a transition matrix).

Labels of a row do not flip independently there, so no product of debiased labels is unbiased. None is needed: a product
of two different labels is 0 when exactly one is true, and what is left is linear in the labels, hence unbiased.

Labels p are (n, q), scores (..., n, q), row weights (n,); (...) in float64 comes back.

Metrics whose multilinear form has products of many labels: which soft labels to put into them.

Debiased labels make the form unbiased, but the variance of a product of q of them grows like :math:`\prod_j c_j`,
where :math:`c_j` is the largest that the second moment of a factor :math:`1 - p_j` can be:

.. math:: c_j = \max\Big(1 +
rac{
ho_{neg,j} (1 -
ho_{neg,j})}{r_j^2},\;
rac{
ho_{pos,j} (1 -
ho_{pos,j})}
          {r_j^2}\Big), \qquad r_j = 1 -
ho_{pos,j} -
ho_{neg,j}

Where that is more than the rows at hand can average out, posterior probabilities take their place, and the estimate is
called approximate. Which it is depends on rates, q and n alone, so models compared on the same rows are compared by
the same estimate. Labels only lost, at rates up to 1/2, have :math:`c_j = 1`: always unbiased.

How probable each true label is, given its noisy value and its score: soft labels of small variance.

.. math:: P(y = 1 \mid  ilde y, f) =
rac{\eta\, P(     ilde y \mid 1)}{\eta\, P(       ilde y \mid 1) + (1 - \eta)
          P(    ilde y \mid 0)}, \qquad \eta = P(y = 1 \mid f)

with :math:`\eta` from the rows at hand: debiased labels regressed on the scores, label by label, by a function that
increases, and brought into [0, 1]. For labels without noise this is the label itself.

What it stands for: debiased labels are unbiased in products, but a product of q of them has a variance that grows
exponentially with q. Posterior probabilities do not; in return a product of them takes the labels of a row as
independent, given scores and noisy labels. They are not quite: the estimate is approximate.

Average precision and coverage of a row as multilinear functions of its labels.

Both are built from products and quotients of labels, but every function of 0/1 labels has one multilinear form, in
which no label occurs twice in a term. In it real numbers may stand for the labels:

- debiased labels give an unbiased estimate, since labels flip independently (and never is one p squared);
- probabilities give the expectation under labels that are independent, each with its probability.

Labels p are (n, q), scores (..., n, q), row weights (n,); (...) in float64 comes back. O(n q) memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from ccmn.metrics.metric import Estimate, Noise, Soften, Status, debias, estimate, model_of
from ccmn.noise import ClassConditionalNoise

_TINY = torch.finfo(torch.float64).tiny


def corrected_hamming(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Unbiased Hamming loss: the mean of :math:`p_j (1 - h_j) + (1 - p_j) h_j` over the labels observed.

    Unbiased because it is linear in the labels; it may be negative on few rows.
    """
    return hamming_sums(p, predicted, weights).ratio()


def corrected_one_error(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    """Unbiased one-error: the mean of 1 - p of the top-scored label (ties shared), rows with NaN left out."""
    return one_error_sums(p, scores, weights).ratio()


def pooled_ranking_loss(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Ranking loss over all pairs of all rows, ties 1/2: a ratio of two unbiased sums, so consistent.

    .. math:: \frac{\sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik}) (1[f_{ij} < f_{ik}] + \frac12 1[f_{ij} = f_{ik}])}
                   {\sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik})}
    """
    sums = pooled_ranking_sums(p, scores, weights)
    # Few noisy rows can have no pairs on balance: then there is nothing to rank by.
    return torch.where(sums.total > 0, sums.ratio(), torch.nan)


class Sums(NamedTuple):
    """A metric of many rows as a quotient of sums over rows: rows may be summed block by block."""

    wrong: Tensor
    """(...), one for each model."""
    total: Tensor
    """A single number."""

    def ratio(self) -> Tensor:
        return self.wrong / self.total.clamp_min(_TINY)


def hamming_sums(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Sums:
    """The two sums of ``corrected_hamming``."""
    p, share = _known(p, weights)
    wrong = p + (1 - 2 * p) * predicted.double()
    return Sums((wrong * share).sum((-1, -2)), share.sum())


def one_error_sums(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Sums:
    """The two sums of ``corrected_one_error``."""
    top = scores == scores.amax(-1, keepdim=True)
    wrong = 1 - (top * p.double().nan_to_num(0.0)).sum(-1) / top.sum(-1)
    return _row_sums(wrong, p, weights)


def pooled_ranking_sums(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Sums:
    """The two sums of ``pooled_ranking_loss``: wrong pairs, and all pairs."""
    seen = ~p.isnan()
    pos = p.double().nan_to_num(0.0)
    neg = torch.where(seen, 1 - pos, 0.0)
    wrong = wrong_pair_weights(pos, neg, scores)
    pairs = pos.sum(-1) * neg.sum(-1) - (pos * neg).sum(-1)
    if weights is not None:
        wrong, pairs = wrong * weights.double(), pairs * weights.double()
    return Sums(wrong.sum(-1), pairs.sum())


def corrected_micro_f1(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""F1 of all entries together, :math:`2 TP / (PP + P)` of unbiased sums: consistent.

    :math:`TP = \sum h p`, :math:`P = \sum p`, :math:`PP = \sum h`. 0 without positives, as for clean labels; NaN
    where there are fewer than none on balance, which tells nothing.
    """
    p, share = _known(p, weights)
    f1, positives = _f1(p, predicted, share, dim=(-2, -1))
    return torch.where(positives < 0, torch.nan, f1)


def corrected_macro_f1(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    """F1 of each label as in ``corrected_micro_f1``, averaged over the labels observed anywhere: consistent.

    A label with no positives on balance counts 0, like one that has none.
    """
    p, share = _known(p, weights)
    f1, _ = _f1(p, predicted, share, dim=(-2,))
    seen = (share > 0).any(-2)
    return torch.where(seen, f1, 0.0).sum(-1) / seen.sum().clamp_min(1)


def corrected_macro_auc(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""AUC of each label, averaged over labels: each a ratio of two unbiased sums, so consistent.

    .. math:: \frac{\sum_{i \ne m} p_i (1 - p_m) (1[f_i > f_m] + \frac12 1[f_i = f_m])}{\sum_{i \ne m} p_i (1 - p_m)}

    Labels that do not clearly have both classes are left out (``have_both_classes``).
    """
    clear = have_both_classes(p, weights)
    p, share = _known(p.mT, weights, rows=-1)
    pos, neg = p * share, (1 - p) * share
    wrong = wrong_pair_weights(pos, neg, scores.mT)
    pairs = pos.sum(-1) * neg.sum(-1) - (pos * neg).sum(-1)
    clear = clear & (pairs > 0)
    auc = torch.where(clear, 1 - wrong / torch.where(clear, pairs, 1.0), 0.0)
    return torch.where(clear.any(-1), auc.sum(-1) / clear.sum(-1).clamp_min(1), torch.nan)


def have_both_classes(p: Tensor, weights: Tensor | None = None) -> Tensor:
    """(q,): are positives and negatives of a label more than two standard errors from none?

    Of a label for which they are not, a ratio of sums may be anything at all. E[p^2 - p] is the variance that noise
    gives to p, hence the standard error; for clean labels it is 0, and any positive and any negative will do.
    """
    p, share = _known(p.detach(), weights)
    spread = 2 * (share.square() * (p.square() - p)).sum(-2).clamp_min(0).sqrt()
    return ((p * share).sum(-2) > spread) & (((1 - p) * share).sum(-2) > spread)


def mean_of_rows(values: Tensor, p: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of values (..., n), weighted; rows with a label that was not observed are left out."""
    return _row_sums(values, p, weights).ratio()


def _row_sums(values: Tensor, p: Tensor, weights: Tensor | None) -> Sums:
    seen = ~p.isnan().any(-1)
    share = seen.double() if weights is None else seen * weights.double()
    return Sums((torch.where(seen, values, 0.0) * share).sum(-1), share.sum())


def wrong_pair_weights(pos: Tensor, neg: Tensor, scores: Tensor) -> Tensor:
    """Per row: the weight of pairs j != k with f_j < f_k, and half of that of ties; one sort."""
    ordered, order = scores.contiguous().sort(dim=-1)
    p, n = (t.expand(scores.shape).gather(-1, order) for t in (pos, neg))
    below = torch.searchsorted(ordered, ordered)
    up_to = torch.searchsorted(ordered, ordered, right=True)
    prefix = pad(n.cumsum(-1), (1, 0))
    total = prefix[..., -1:]
    # Above j: total - up_to; tied with j, itself included: up_to - below. The tie of j with itself is taken off.
    above = total - (prefix.gather(-1, up_to) + prefix.gather(-1, below)) / 2
    return (p * (above - n / 2)).sum(-1)


def _known(p: Tensor, weights: Tensor | None, rows: int = -2) -> tuple[Tensor, Tensor]:
    """Labels with 0 for NaN, and the weight of every entry: that of its row, 0 where it was not observed."""
    seen = (~p.isnan()).double()
    share = seen if weights is None else seen * weights.double().unsqueeze(-3 - rows)
    return p.double().nan_to_num(0.0), share


def _f1(p: Tensor, predicted: Tensor, share: Tensor, dim: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """F1 along ``dim``, 0 where there are no positives on balance; and the number of positives."""
    both = (share * p * predicted).sum(dim)
    positives = (share * p).sum(dim)
    either = torch.where(positives > 0, positives + (share * predicted).sum(dim), 1.0)
    return torch.where(positives > 0, 2 * both / either, 0.0), positives


def exclusive_ranking_loss(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""The part of the other labels above the true one, ties 1/2: the mean of :math:`\sum_j p_j a_j / (q - 1)`."""
    not_below, above = _ranks(scores)
    wrong = (not_below - 1 + above) / 2 / max(1, scores.shape[-1] - 1)
    return mean_of_rows(_of_the_true_one(p, wrong), p, weights)


def exclusive_average_precision(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""The mean of :math:`\sum_j p_j / r_j`, with :math:`r_j` the number of labels not below j."""
    return mean_of_rows(_of_the_true_one(p, 1 / _ranks(scores)[0]), p, weights)


def exclusive_coverage(p: Tensor, scores: Tensor, weights: Tensor | None = None, *, normalised: bool = False) -> Tensor:
    r"""The mean of :math:`\sum_j p_j r_j`; normalised, of :math:`\sum_j p_j (r_j - 1) / q`."""
    depth = _ranks(scores)[0]
    depth = (depth - 1) / scores.shape[-1] if normalised else depth
    return mean_of_rows(_of_the_true_one(p, depth), p, weights)


def _ranks(scores: Tensor) -> tuple[Tensor, Tensor]:
    """For each label the number of labels not below it, itself included, and that of labels strictly above it."""
    ordered = scores.sort(dim=-1).values.contiguous()
    scores, q = scores.contiguous(), scores.shape[-1]
    lower, up_to = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    return (q - lower).double(), (q - up_to).double()


def _of_the_true_one(p: Tensor, values: Tensor) -> Tensor:
    return (p.double().nan_to_num(0.0) * values).sum(-1)


ROWS_PER_INFLATION = 100
"""Rows for each unit of variance: a standard error of about a tenth of the metric's own spread, at most."""

Corrected = Callable[[Tensor, Tensor, Tensor], Tensor]


def estimate_products(
    Y: Tensor,
    scores: Tensor,
    noise: Noise,
    multilinear: Corrected,
    exclusive: Corrected,
    *,
    metric: str,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """A metric from its multilinear form (``exclusive``: where exactly one label of a row is true)."""
    model = model_of(noise, Y)
    form = multilinear
    status: Status = "unbiased"
    soften: Soften = debias
    if not model.flips_independent:
        form = exclusive
    elif isinstance(model, ClassConditionalNoise) and inflation(model) > max(1.0, len(Y) / ROWS_PER_INFLATION):
        status, soften = "approximate", by_scores(scores)
    return estimate(
        Y,
        noise,
        lambda p, weights: form(p, scores, weights),
        status,
        soften,
        metric=metric,
        complete_rows=True,
        bounds=bounds,
    )


def inflation(noise: ClassConditionalNoise) -> float:
    """How much larger the variance of a product over all labels may be than with clean labels.

    >>> inflation(ClassConditionalNoise(0.0, 0.5, n_labels=10)), inflation(ClassConditionalNoise(0.5, 0.0, n_labels=10))
    (1024.0, 1.0)
    """
    signal = (1 - noise.rho_pos - noise.rho_neg) ** 2
    if_false = 1 + noise.rho_neg * (1 - noise.rho_neg) / signal
    with np.errstate(over="ignore"):
        return float(np.maximum(if_false, noise.rho_pos * (1 - noise.rho_pos) / signal).prod())


_EDGE = 1e-9
"""Probabilities stay this far from 0 and 1, so that evidence is never divided by nothing."""

_HALVINGS = 60


def by_scores(scores: Tensor) -> Soften:
    """Posterior probabilities given these scores (n, q)."""

    def soften(Y: Tensor, rho_pos: Tensor, rho_neg: Tensor, weights: Tensor) -> Tensor:
        prior = clean_probability(debias(Y, rho_pos, rho_neg, weights), scores, weights)
        return posterior(Y, prior, rho_pos, rho_neg)

    return soften


def posterior(Y: Tensor, prior: Tensor, rho_pos: Tensor, rho_neg: Tensor) -> Tensor:
    """Bayes' rule for noisy labels with these rates; NaN stays NaN."""
    prior = prior.clamp(_EDGE, 1 - _EDGE)
    if_true = prior * torch.where(Y == 1, 1 - rho_pos, rho_pos)
    if_false = (1 - prior) * torch.where(Y == 1, rho_neg, 1 - rho_neg)
    return torch.where(Y.isnan(), torch.nan, if_true / (if_true + if_false))


def clean_probability(p: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
    r"""P(y = 1 | f) for every entry, from debiased labels: isotonic in the score, in [0, 1], with the right total.

    Debiased labels are noisy, so their means over stretches of scores leave [0, 1]; cut off, they would add up to too
    many labels, many times too many where labels are many and rare. The nearest probabilities that add up to
    :math:`\sum p` are :math:`\min(\max(m - t, 0), 1)` with one t for all.
    """
    seen = ~p.isnan()
    cell = torch.from_numpy(_isotonic_cells(p, scores, weights)).to(p.device)
    share = (seen * weights.unsqueeze(-1)).flatten()
    empty = share.new_zeros(int(cell.max()) + 1)
    size = empty.index_add(0, cell.flatten(), share)
    total = empty.index_add(0, cell.flatten(), share * p.nan_to_num(0.0).flatten())
    mean = total / size.clamp_min(torch.finfo(torch.float64).tiny)
    shift = _shift(mean, size)
    return (mean - shift).clamp(0, 1)[cell]


def _shift(mean: Tensor, size: Tensor) -> Tensor:
    """The t at which the probabilities have the total of the means; differentiable, though found by halving."""
    goal = (size * mean).sum()
    with torch.no_grad():
        low, high = mean.min() - 1, mean.max()
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            above = (size * (mean - middle).clamp(0, 1)).sum() > goal
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    inside, full = (mean > middle) & (mean < middle + 1), mean >= middle + 1
    # With the cells known that are cut at neither end, the total is linear in t.
    room = (size * inside).sum()
    exact = ((size * mean * inside).sum() + (size * full).sum() - goal) / room.clamp_min(torch.finfo(room.dtype).tiny)
    return torch.where(room > 0, exact, middle)


def _isotonic_cells(p: Tensor, scores: Tensor, weights: Tensor) -> NDArray[np.int64]:
    """(n, q) numbers of cells: in each, the increasing function that fits the label best has one value."""
    targets, f, w = (t.detach().double().cpu().numpy() for t in (p, scores, weights))
    cells, first = np.zeros(targets.shape, dtype=np.int64), 0
    for j in range(targets.shape[1]):
        rows = np.flatnonzero(~np.isnan(targets[:, j]))
        if rows.size:
            cells[rows, j] = first + _blocks(targets[rows, j], f[rows, j], w[rows])
            first = int(cells[rows, j].max()) + 1
    return cells


def _blocks(p: NDArray[np.float64], f: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.int64]:
    from sklearn.isotonic import isotonic_regression

    # Largest first among tied scores: a run that falls becomes one block.
    order = np.lexsort((-p, f))
    fitted = isotonic_regression(p[order], sample_weight=w[order])
    number = np.concatenate(([0], np.cumsum(np.diff(fitted) > 0)))
    result = np.empty(len(p), dtype=np.int64)
    result[order] = number
    return result


_MOST_NODES = 32
"""Exact for up to 64 labels; beyond, to 1e-9 and better: the integrand is smooth."""

_TRIES = 6
"""Sets of nodes to choose from: products are divided by their factors, so none should be near 0."""


def corrected_average_precision(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""The mean of the multilinear average precision of rows; rows with NaN left out.

    .. math:: \prod_i (1 - p_i) + \int_0^1 \sum_j \frac{p_j}{r_j} \Big( \prod_{i \ne j} g_i(z)
              + z \sum_{k \ne j,\, f_k \ge f_j} p_k \prod_{i \ne j, k} g_i(z) \Big) dz,
              \qquad g_i(z) = 1 - p_i + p_i z

    with :math:`r_j` the rank of label j. The integral is that of :math:`z^{|P| - 1}`, which is :math:`1 / |P|`: what
    the average over the true labels divides by. The first product is the row without labels, which counts 1.
    """
    labels, place = _sorted_labels(p, scores)
    integral: Tensor = _Integral.apply(labels, place, _nodes(p))  # type: ignore[no-untyped-call]
    return mean_of_rows((1 - labels).prod(-1) + integral, p, weights)


def corrected_coverage(p: Tensor, scores: Tensor, weights: Tensor | None = None, *, normalised: bool = False) -> Tensor:
    r"""The mean of the multilinear coverage of rows; rows with NaN left out.

    .. math:: \sum_k \Big( 1 - \prod_{i:\, f_i \le f_k} (1 - p_i) \Big)

    Label k is passed on the way down where a label with its score or a lower one is true. ``normalised`` takes off
    one for the top label where any is true, :math:`1 - \prod_i (1 - p_i)`, and divides by q.
    """
    labels, _ = _sorted_labels(p, scores)
    ordered = scores.sort(dim=-1).values.contiguous()
    last_tied = torch.searchsorted(ordered, ordered, right=True) - 1
    none_below = (1 - labels).cumprod(-1)
    count = (1 - none_below.gather(-1, last_tied)).sum(-1)
    if normalised:
        count = (count - (1 - none_below[..., -1])) / labels.shape[-1]
    return mean_of_rows(count, p, weights)


def _sorted_labels(p: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Labels from the lowest score to the highest, 0 for NaN; and for each how many have strictly lower scores."""
    ordered, order = scores.contiguous().sort(dim=-1)
    labels = p.double().nan_to_num(0.0).expand(scores.shape).gather(-1, order)
    return labels, torch.searchsorted(ordered, ordered)


def _nodes(p: Tensor) -> list[tuple[float, float]]:
    """Nodes and weights of Gauss and Legendre on [0, 1], enough for polynomials of degree q - 1."""
    fewest = min(p.shape[-1] // 2 + 1, _MOST_NODES)
    # The factor 1 - p + p z is 0 at some z where p is above 1: at 1/2, say, for p = 2.
    large = np.unique(p.detach()[p > 1].double().cpu().numpy())
    ways = [np.polynomial.legendre.leggauss(fewest + more) for more in range(_TRIES if large.size else 1)]
    rooms = [np.abs(1 - large * (1 - (z[:, None] + 1) / 2)).min(initial=1.0) for z, _ in ways]
    nodes, shares = ways[int(np.argmax(rooms))]
    return [((z + 1) / 2, share / 2) for z, share in zip(nodes.tolist(), shares.tolist())]


class _Integral(torch.autograd.Function):
    """The sum of ``_precision_at`` over nodes, whose derivative is worked out with it, node by node.

    Rows do not mix, so the derivative is one matrix (..., n, q); what is kept does not grow with the number of nodes.
    """

    @staticmethod
    def forward(ctx: Any, labels: Tensor, place: Tensor, nodes: list[tuple[float, float]]) -> Tensor:
        wanted = ctx.needs_input_grad[0]
        total, slope = labels.new_zeros(labels.shape[:-1]), torch.zeros_like(labels)
        for z, share in nodes:
            leaf = labels.detach().requires_grad_(wanted)
            with torch.set_grad_enabled(wanted):
                part = share * _precision_at(leaf, place, z)
                if wanted:
                    slope += torch.autograd.grad(part.sum(), leaf)[0]
            total += part.detach()
        ctx.save_for_backward(slope)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None


def _precision_at(labels: Tensor, place: Tensor, z: float) -> Tensor:
    """The integrand: products without one or two factors, by dividing the whole product by them."""
    factor = 1 - labels + labels * z
    odds = labels / factor
    # All with this score or a higher one, but for the label itself.
    others = odds.sum(-1, keepdim=True) - (odds.cumsum(-1) - odds).gather(-1, place) - odds
    rank = labels.shape[-1] - place
    return factor.prod(-1) * (odds / rank * (1 + z * others)).sum(-1)
