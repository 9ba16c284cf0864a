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
