"""Reference implementation of the audit as loops over joint probabilities, by Bayes' rule."""

import math

import numpy as np


def scores_of(issues, shape, column="suspicion"):
    """Return a column of a list of label issues as an array, NaN for labels that are not listed."""
    found = np.full(shape, np.nan)
    found[issues.row, issues.label] = issues[column]
    return found


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


def annotator_terms(Y, P, annotators):
    """Return the term of every label, by loops over the rows of its annotator and 50 average rows."""
    q = len(Y[0])
    seen = [(i, j) for i, row in enumerate(Y) for j in range(q) if not math.isnan(row[j])]
    mean = sum(abs(Y[i][j] - P[i][j]) for i, j in seen) / len(seen)
    counts = [sum(k == j for _, k in seen) for j in range(q)]
    share = [(sum(P[i][k] for i, k in seen if k == j) + 0.5) / (counts[j] + 1) for j in range(q)]
    terms = []
    for i, row in enumerate(Y):
        own = [(k, j) for k, j in seen if annotators[k] == annotators[i]]
        deviation = sum(abs(Y[k][j] - P[k][j]) for k, j in own) + 50 * q * mean
        deviates = math.log(deviation / ((len(own) + 50 * q) * mean))
        terms.append([])
        for j in range(q):
            given = sum(Y[k][j] for k, m in own if m == j) + 50 * share[j]
            expected = sum(P[k][j] for k, m in own if m == j) + 50 * share[j]
            terms[-1].append(deviates + (1 if row[j] == 1 else -1) * math.log(given / expected))
    return terms


def vote_term(given, votes, mean_dissent):
    """Return the term of one label with a list of votes."""
    share = (sum(abs(vote - given) for vote in votes) + mean_dissent) / (len(votes) + 1)
    return math.log(share / (1 - share)) - math.log(mean_dissent / (1 - mean_dissent))
