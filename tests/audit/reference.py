"""Reference implementation of the audit as loops over joint probabilities, by Bayes' rule."""

from __future__ import annotations

import math


def p_wrong(given, p_noisy, rho_pos, rho_neg):
    """Return P(true label differs | given label, x) from the joint probabilities of true and noisy label."""
    clean = min(max((p_noisy - rho_neg) / (1 - rho_pos - rho_neg), 0.0), 1.0)
    p_true = {1: clean, 0: 1 - clean}
    p_given = {1: {1: 1 - rho_pos, 0: rho_pos}, 0: {1: rho_neg, 0: 1 - rho_neg}}
    joint = {true: p_true[true] * p_given[true][given] for true in (0, 1)}
    total = joint[0] + joint[1]
    return joint[1 - given] / total if total else 0.0


def issues(Y, P, rho_pos, rho_neg, least):
    """Return (row, label, given, p_wrong) of every observed label with p_wrong >= least, by row and label."""
    return [
        (i, j, int(y), p)
        for i, row in enumerate(Y)
        for j, y in enumerate(row)
        if not math.isnan(y) and (p := p_wrong(int(y), P[i][j], rho_pos[j], rho_neg[j])) >= least
    ]


def smallest_share(ones, least):
    """Return the smallest share of ones among the first k values, k >= least, plus its standard error."""
    best = math.inf
    for k in range(min(least, len(ones)), len(ones) + 1):
        share = (sum(ones[:k]) + 0.5) / (k + 1)
        best = min(best, share + math.sqrt(share * (1 - share) / k))
    return best


def end_rates(given, probabilities):
    """Return (share of ones at the lower end, share of zeros at the upper end) of one label without ties."""
    pairs = sorted((p, y) for p, y in zip(probabilities, given) if not math.isnan(y))
    labels = [y for _, y in pairs]
    low = smallest_share(labels, max(15, int(0.02 * len(given))))
    return low, smallest_share([1 - y for y in reversed(labels)], 15)


def unsupervised(given, p_noisy, calibrated, low, high, mean_low, mean_contradiction):
    """Return the mixture of posterior and self-confidence for one label; rho_pos has two equally probable values."""
    weight = min(max((mean_low - 0.15) / 0.015, 0), 0.995)
    levels = [high * (0.5 - 12**-0.5), high * (0.5 + 12**-0.5)]
    posterior = sum(p_wrong(given, calibrated, rho_pos, min(low, 0.5)) for rho_pos in levels) / 2
    contradiction = 1 - p_noisy if given == 1 else p_noisy
    return weight * posterior + (1 - weight) * (0.2 * mean_contradiction + 0.16 * contradiction)


def emptied(given, p_noisy, share, other):
    """Return the error probabilities of one row; ``other`` are those of labels that were not removed together."""
    if any(y != 0 for y in given):
        return other
    removed = share / (share + (1 - share) * math.prod(1 - p for p in p_noisy))
    return [removed * min(p / (1 - share), 1) + (1 - removed) * score for p, score in zip(p_noisy, other)]


def diverse_order(labels, p):
    """Return the order of a diverse list by repeated selection of the best discounted issue."""
    left, taken, order = list(range(len(p))), dict.fromkeys(labels, 0), []
    while left:
        best = max(left, key=lambda i: (p[i] * 0.9 ** taken[labels[i]], p[i], -i))
        left.remove(best)
        taken[labels[best]] += 1
        order.append(best)
    return order
