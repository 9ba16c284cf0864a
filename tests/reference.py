"""Reference implementations of the formulas of the paper as plain loops, independent of the library.

Labels are in {-1, +1}, as in the paper; ``rho[+1]`` and ``rho[-1]`` are its two rates.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from ccmn.noise import ClassConditionalNoise

Phi = Callable[[float], float]

PHI: dict[str, Phi] = {
    "square": lambda t: (1 - t) ** 2,
    "hinge": lambda t: max(0.0, 1 - t),
    "sigmoid": lambda t: 1 / (1 + math.exp(t)),
    "logistic": lambda t: math.log1p(math.exp(-t)),
}


def noisy_vectors(
    y: Sequence[int], rho_pos: Sequence[float], rho_neg: Sequence[float]
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield all 2^q noisy versions of the 0/1 vector y with their probabilities."""
    for noisy in itertools.product((0, 1), repeat=len(y)):
        probability = 1.0
        for j, (true, seen) in enumerate(zip(y, noisy)):
            flip = rho_pos[j] if true == 1 else rho_neg[j]
            probability *= flip if seen != true else 1 - flip
        yield noisy, probability


def posterior(noisy: int, eta: float, rho_pos: float, rho_neg: float) -> float:
    """Return P(y = 1 | noisy label) for P(y = 1) = eta, as a ratio of joint probabilities."""
    joint = {
        true: prior * probability
        for true, prior in ((1, eta), (0, 1 - eta))
        for seen, probability in noisy_vectors([true], [rho_pos], [rho_neg])
        if seen == (noisy,)
    }
    return joint[1] / (joint[0] + joint[1])


def paper_rates(noise: ClassConditionalNoise) -> list[dict[int, float]]:
    """Return the rates of a noise model as ``rho[+1]``, ``rho[-1]`` of every label."""
    return [{+1: a, -1: b} for a, b in zip(noise.rho_pos, noise.rho_neg)]


def eq3(f: Sequence[float], y: Sequence[int], phi: Phi) -> float:
    """Return the Hamming surrogate: sum_j phi(y_j f_j), y in {-1, +1}."""
    return sum(phi(y[j] * f[j]) for j in range(len(f)))


def eq4(f: Sequence[float], y: Sequence[int], rho: Sequence[dict[int, float]], phi: Phi) -> float:
    """Return the unbiased Hamming surrogate.

    sum_j kappa_j [(1 - rho_{-y_j}) phi(y_j f_j) - rho_{y_j} phi(-y_j f_j)].
    """
    total = 0.0
    for j in range(len(f)):
        kappa = 1 / (1 - rho[j][+1] - rho[j][-1])
        total += kappa * ((1 - rho[j][-y[j]]) * phi(y[j] * f[j]) - rho[j][y[j]] * phi(-y[j] * f[j]))
    return total


def eq5(f: Sequence[float], y: Sequence[int], phi: Phi) -> float:
    """Return the ranking surrogate: sum_{j<k} I(y_j > y_k) phi(f_jk) + I(y_j < y_k) phi(f_kj)."""
    total = 0.0
    for j in range(len(f)):
        for k in range(j + 1, len(f)):
            if y[j] > y[k]:
                total += phi(f[j] - f[k])
            elif y[j] < y[k]:
                total += phi(f[k] - f[j])
    return total


def eq6(f: Sequence[float], y: Sequence[int], rho: Sequence[dict[int, float]], phi: Phi) -> float:
    """Return the unbiased ranking surrogate, with the coefficients a, b, c, d and kappa of the paper."""
    total = 0.0
    for j in range(len(f)):
        for k in range(j + 1, len(f)):
            kappa = 1 / ((1 - rho[j][+1] - rho[j][-1]) * (1 - rho[k][+1] - rho[k][-1]))
            f_jk = f[j] - f[k]
            if y[j] != y[k]:
                y_jk = (y[j] - y[k]) // 2
                a = (1 - rho[j][-y_jk]) * (1 - rho[k][y_jk])
                b = rho[j][y_jk] * rho[k][-y_jk]
                total += kappa * (a * phi(y_jk * f_jk) + b * phi(-y_jk * f_jk))
            else:
                c = rho[j][y[j]] * (1 - rho[k][-y[k]])
                d = rho[k][y[k]] * (1 - rho[j][-y[j]])
                total -= kappa * (c * phi(-y[j] * f_jk) + d * phi(y[j] * f_jk))
    return total


def eq9(f: Sequence[float], y: Sequence[int], rho: Sequence[float], phi: Phi) -> float:
    """Return the Hamming surrogate of candidate sets.

    (phi(-f_j) - rho_j phi(f_j)) / (1 - rho_j) if y_j = -1, else phi(f_j).
    """
    return sum((phi(-f[j]) - rho[j] * phi(f[j])) / (1 - rho[j]) if y[j] == -1 else phi(f[j]) for j in range(len(f)))


def eq10(f: Sequence[float], y: Sequence[int], rho: Sequence[float], phi: Phi) -> float:
    """Return the ranking surrogate of candidate sets, in the four cases of the paper."""
    total = 0.0
    for j in range(len(f)):
        for k in range(j + 1, len(f)):
            f_jk = f[j] - f[k]
            if y[j] > y[k]:
                total += phi(f_jk) / (1 - rho[k])
            elif y[j] < y[k]:
                total += phi(-f_jk) / (1 - rho[j])
            elif y[j] == -1:
                total += (-rho[j] * phi(f_jk) - rho[k] * phi(-f_jk)) / ((1 - rho[j]) * (1 - rho[k]))
    return total


def eq8(f0: float, f: Sequence[float], y: Sequence[int], rho: Sequence[dict[int, float]], phi: Phi) -> float:
    """Return the loss of the dummy label: Eq. (4) on the differences f_j - f_0."""
    return eq4([fj - f0 for fj in f], y, rho, phi)


def double_sum(f: Sequence[float], p: Sequence[float], n: Sequence[float], phi: Phi) -> float:
    """Return sum_{j != k} p_j n_k phi(f_j - f_k)."""
    q = len(f)
    return sum(p[j] * n[k] * phi(f[j] - f[k]) for j in range(q) for k in range(q) if j != k)
