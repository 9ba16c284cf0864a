"""Reference implementations of all metrics as loops over rows, labels and pairs."""

import itertools
import math


def hamming_loss(Y, Y_pred):
    return _mean([_mean([float(y != h) for y, h in zip(row, predicted)]) for row, predicted in zip(Y, Y_pred)])


def ranking_loss(Y, scores, ties="full"):
    return _mean([_wrong_pairs(row, f, {"full": 1.0, "half": 0.5}[ties]) or 0.0 for row, f in zip(Y, scores)])


def average_precision(Y, scores):
    values = []
    for row, f in zip(Y, scores):
        true = [j for j, y in enumerate(row) if y == 1]
        precisions = []
        for j in true:
            down_to_j = [k for k in range(len(row)) if f[k] >= f[j]]
            precisions.append(sum(k in true for k in down_to_j) / len(down_to_j))
        values.append(_mean(precisions) if precisions else 1.0)
    return _mean(values)


def coverage(Y, scores, normalized=False):
    values = []
    for row, f in zip(Y, scores):
        true = [fj for y, fj in zip(row, f) if y == 1]
        count = sum(fk >= min(true) for fk in f) if true else 0
        values.append(max(count - 1, 0) / len(row) if normalized else count)
    return _mean(values)


def one_error(Y, scores):
    return _mean([1 - _mean([y for y, fj in zip(row, f) if fj == max(f)]) for row, f in zip(Y, scores)])


def micro_f1(Y, Y_pred):
    return _f1([y for row in Y for y in row], [h for row in Y_pred for h in row])


def macro_f1(Y, Y_pred):
    return _mean([_f1(label, predicted) for label, predicted in zip(zip(*Y), zip(*Y_pred))])


def macro_auc(Y, scores):
    wrong = [_wrong_pairs(label, f, 0.5) for label, f in zip(zip(*Y), zip(*scores))]
    known = [1 - value for value in wrong if value is not None]
    return _mean(known) if known else math.nan


def mean_average_precision(Y, scores):
    labels = [(label, f) for label, f in zip(zip(*Y), zip(*scores)) if 1 in label]
    return _mean([average_precision([label], [f]) for label, f in labels]) if labels else math.nan


def _mean(values):
    return sum(values) / len(values)


def _wrong_pairs(row, f, tie):
    """Return the fraction of (positive, negative) pairs in the wrong order; None if there is no pair."""
    pairs = [(f[j], f[k]) for j, y in enumerate(row) if y == 1 for k, z in enumerate(row) if z == 0]
    return _mean([1.0 if up < down else tie if up == down else 0.0 for up, down in pairs]) if pairs else None


def _f1(true, predicted):
    both = sum(y == h == 1 for y, h in zip(true, predicted))
    either = sum(true) + sum(predicted)
    return 2 * both / either if either else 0.0


def multilinear(row, p, f):
    """Return the multilinear form of a function of 0/1 labels.

    It is the mean over all label vectors, weighted by the product of p or 1 - p; p can lie outside [0, 1].
    """
    total = 0.0
    for y in itertools.product((0, 1), repeat=len(p)):
        total += math.prod(pj if yj else 1 - pj for yj, pj in zip(y, p)) * row([y], [f])
    return total


def corrected_f1(p, predicted):
    """Return 2 TP / (PP + P) over one list of entries; 0 if P is not positive."""
    positives = sum(p)
    return 2 * sum(pj * h for pj, h in zip(p, predicted)) / (positives + sum(predicted)) if positives > 0 else 0.0


def pair_sums(p, f):
    """Return the weights p_i (1 - p_m) of ordered pairs (ties 1/2) and of all pairs of different entries."""
    ordered = pairs = 0.0
    for i, m in itertools.permutations(range(len(p)), 2):
        weight = p[i] * (1 - p[m])
        pairs += weight
        ordered += weight * (1.0 if f[i] > f[m] else 0.5 if f[i] == f[m] else 0.0)
    return ordered, pairs


def top_labels(f, k):
    """Return the k labels with the highest scores, by descending score and ascending index; None is not a score."""
    scored = [j for j, fj in enumerate(f) if fj is not None]
    return sorted(scored, key=lambda j: (-f[j], j))[:k]


def precision_at_k(Y, scores, k):
    return _mean([sum(y[j] for j in top_labels(f, k)) / k for y, f in zip(Y, scores)])


def recall_at_k(Y, scores, k):
    return _mean([sum(y[j] for j in top_labels(f, k)) / max(1, sum(y)) for y, f in zip(Y, scores)])


def ndcg_at_k(Y, scores, k):
    return _mean([_discounted(y, top_labels(f, k)) / _ideal(y, k) for y, f in zip(Y, scores)])


def psp_at_k(Y, scores, k, propensity):
    """Return the propensity-scored precision of pyxclib: the ratio of two means over rows; 0 without any label."""
    weighted = [[yj / pj for yj, pj in zip(y, propensity)] for y in Y]
    best = precision_at_k(weighted, weighted, k)
    return precision_at_k(weighted, scores, k) / best if best else 0.0


def _discounted(gain, labels):
    return sum(gain[j] / math.log2(r + 2) for r, j in enumerate(labels))


def _ideal(y, k):
    """Return the discounted gain of a perfect ranking; 1 for a row without labels, whose gain is 0."""
    return sum(1 / math.log2(r + 2) for r in range(min(k, sum(y)))) or 1.0
