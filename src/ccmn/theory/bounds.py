r"""The right-hand sides of Theorem 2, Theorem 4 and Corollary 1, and their inverse.

Each bounds, with probability at least :math:`1 - \delta`, the excess surrogate risk
:math:`R_L(\hat f) - \min_{f \in F} R_L(f)` of the minimiser of the unbiased empirical risk over ``n`` noisy rows. The
scores :math:`f_1, \dots, f_q` are each drawn from one class F of real functions with Rademacher complexity at most
``rademacher``, and :math:`0 \le \phi \le \Theta` on all margins that F can produce.

The default is the form that holds. ``printed=True`` is the paper's, which differs in four places: ln(1/delta) where two
sides need ln(2/delta); the too small mu (see :mod:`ccmn.theory.constants`); the minimum over labels in Corollary 1 for
the maximum that the theorems have; and, on the loose side, q(q-1) pairs in the second term of Theorem 4 where there are
q(q-1)/2. This last slack saves Theorem 4 as printed for delta <= 1/2, since the valid mu is at most sqrt(2) times the
printed one. Nothing of the kind saves Theorem 2, or the minimum in the corollary.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ccmn._validation import check_count, check_rates_known, check_real
from ccmn.noise import ClassConditionalNoise, PartialNoise
from ccmn.theory.constants import kappa, lipschitz_hamming, lipschitz_ranking, mu_hamming, mu_ranking

_MOST_ROWS = 2**60


def rademacher_linear(n: int, feature_norm: float, weight_norm: float) -> float:
    r"""A bound on the Rademacher complexity of linear functions of bounded norm.

    .. math:: R_n(\{x \mapsto \langle w, x\rangle : \|w\| \le B\}) \le \frac{B X}{\sqrt n},
              \qquad \|x\| \le X

    A bias counts as one more feature that is always 1.

    >>> rademacher_linear(10_000, feature_norm=1.0, weight_norm=5.0)
    0.05
    """
    X = check_real(feature_norm, "feature_norm", 0, math.inf)
    B = check_real(weight_norm, "weight_norm", 0, math.inf)
    return X * B / math.sqrt(check_count(n, "n"))


def hamming_bound(
    n: int,
    noise: ClassConditionalNoise,
    *,
    theta: float,
    lipschitz: float,
    rademacher: float,
    delta: float = 0.05,
    printed: bool = False,
) -> float:
    r"""Theorem 2: the excess Hamming surrogate risk of the unbiased loss, Eq. (4).

    .. math:: 4 q K R_n(F) + 2 q \mu \Theta \sqrt{\frac{\ln(2/\delta)}{2n}}

    Parameters
    ----------
    n : int
        Rows.
    noise : ClassConditionalNoise
        The rates of the q labels.
    theta : float
        :math:`\Theta`, the largest value of phi (its least is taken to be 0).
    lipschitz : float
        The Lipschitz constant of phi itself; :func:`~ccmn.theory.constants.lipschitz_hamming` makes K of it.
    rademacher : float
        :math:`R_n(F)` or a bound on it, such as :func:`rademacher_linear` at the same n.
    delta : float
        The probability with which the bound may fail.
    printed : bool
        What the paper prints (ln(1/delta), the smaller mu); not a valid bound.

    Examples
    --------
    >>> noise = ClassConditionalNoise(0.2, 0.1, n_labels=5)
    >>> at = dict(theta=1.0, lipschitz=0.25, rademacher=rademacher_linear(10**6, 1.0, 1.0))
    >>> round(hamming_bound(10**6, noise, **at), 4), round(hamming_bound(10**6, noise, **at, printed=True), 4)
    (0.0292, 0.0253)
    """
    K, q = lipschitz_hamming(noise, lipschitz), noise.n_labels
    complexity = 4 * q * K * _check_rademacher(rademacher)
    return complexity + 2 * q * mu_hamming(noise, printed=printed) * _deviation(n, theta, delta, printed)


def ranking_bound(
    n: int,
    noise: ClassConditionalNoise,
    *,
    theta: float,
    lipschitz: float,
    rademacher: float,
    delta: float = 0.05,
    printed: bool = False,
) -> float:
    r"""Theorem 4: the excess ranking surrogate risk of the unbiased loss, Eq. (6).

    .. math:: 4 q (q-1) K R_n(F) + q (q-1) \mu \Theta \sqrt{\frac{\ln(2/\delta)}{2n}}

    Parameters
    ----------
    n, noise, rademacher, delta : see :func:`hamming_bound`
    theta : float
        The largest value of phi on differences of scores :math:`f_j - f_k`.
    lipschitz : float
        The Lipschitz constant of phi itself; :func:`~ccmn.theory.constants.lipschitz_ranking` makes K of it.
    printed : bool
        What the paper prints: ln(1/delta), mu over single labels, and twice the second term. Its factor 2 outweighs
        its slips for delta <= 1/2, where it is valid but looser.

    Examples
    --------
    >>> noise = ClassConditionalNoise(0.2, 0.1, n_labels=5)
    >>> at = dict(theta=1.0, lipschitz=0.25, rademacher=rademacher_linear(10**6, 1.0, 1.0))
    >>> round(ranking_bound(10**6, noise, **at), 4), round(ranking_bound(10**6, noise, **at, printed=True), 4)
    (0.0912, 0.1401)
    """
    K, q = lipschitz_ranking(noise, lipschitz), noise.n_labels
    complexity = 4 * q * (q - 1) * K * _check_rademacher(rademacher)
    pairs = q * (q - 1) * (2 if printed else 1)
    return complexity + pairs * mu_ranking(noise, printed=printed) * _deviation(n, theta, delta, printed)


def partial_hamming_bound(
    n: int, noise: PartialNoise, *, rademacher: float, delta: float = 0.05, printed: bool = False
) -> float:
    r"""Corollary 1, first part: Theorem 2 for candidate sets, Eq. (9), and the square loss.

    .. math:: 4 q K R_n(F) + 8 q \max_j \frac{1 + \rho_j}{1 - \rho_j} \sqrt{\frac{\ln(2/\delta)}{2n}},
              \qquad \text{printed: } \frac{1}{1 - \min_j \rho_j} \text{ and } \ln(1/\delta)

    The factor 8 is 2 Theta with Theta = 4: scores must satisfy :math:`|f_j| \le 1`. There the square has the
    Lipschitz constant 4.

    Parameters
    ----------
    n, rademacher, delta : see :func:`hamming_bound`
    noise : PartialNoise
    printed : bool
        What the paper prints; not a valid bound.

    Examples
    --------
    >>> noise = PartialNoise([0.1, 0.5])
    >>> at = dict(rademacher=rademacher_linear(10**6, 1.0, 1.0))
    >>> round(partial_hamming_bound(10**6, noise, **at), 4)
    0.1612
    >>> round(partial_hamming_bound(10**6, noise, **at, printed=True), 4)
    0.1178
    """
    check_rates_known(noise, PartialNoise)
    if not printed:
        return hamming_bound(n, noise, theta=4.0, lipschitz=4.0, rademacher=rademacher, delta=delta)
    q, mu = noise.n_labels, float(kappa(noise).min())
    complexity = 4 * q * lipschitz_hamming(noise, 4.0) * _check_rademacher(rademacher)
    return complexity + 2 * q * mu * _deviation(n, 4.0, delta, printed)


def partial_ranking_bound(
    n: int, noise: PartialNoise, *, rademacher: float, delta: float = 0.05, printed: bool = False
) -> float:
    r"""Corollary 1, second part: Theorem 4 for candidate sets, Eq. (10), and the square loss.

    .. math:: 4 q (q-1) K R_n(F)
              + 4 q (q-1) \max_{j \neq k} \frac{1 + \max(\rho_j, \rho_k)}{(1 - \rho_j)(1 - \rho_k)}
              \sqrt{\frac{\ln(2/\delta)}{2n}},
              \qquad \text{printed: } 8 q (q-1) \min_j \frac{1 + \rho_j}{(1 - \rho_j)^2} \text{ and } \ln(1/\delta)

    Theta = 4 asks for :math:`|f_j - f_k| \le 1`. For scores with :math:`|f_j| \le 1` take :func:`ranking_bound` with
    theta = 9 and lipschitz = 6.

    Parameters
    ----------
    n, rademacher, delta : see :func:`hamming_bound`
    noise : PartialNoise
        Of at least two labels.
    printed : bool
        What the paper prints; not a valid bound, because of the minimum.

    Examples
    --------
    >>> noise = PartialNoise([0.1, 0.5])
    >>> at = dict(rademacher=rademacher_linear(10**6, 1.0, 1.0))
    >>> round(partial_ranking_bound(10**6, noise, **at), 4)
    0.1002
    >>> round(partial_ranking_bound(10**6, noise, **at, printed=True), 4)
    0.0906
    """
    check_rates_known(noise, PartialNoise)
    if not printed:
        return ranking_bound(n, noise, theta=4.0, lipschitz=4.0, rademacher=rademacher, delta=delta)
    q, rho = noise.n_labels, noise.rho_neg
    mu = float(((1 + rho) / (1 - rho) ** 2).min())
    complexity = 4 * q * (q - 1) * lipschitz_ranking(noise, 4.0) * _check_rademacher(rademacher)
    return complexity + 2 * q * (q - 1) * mu * _deviation(n, 4.0, delta, printed)


def rows_needed(excess: float, bound: Callable[[int], float]) -> int:
    """The inverse of a bound: the least number of rows at which it is no more than ``excess``.

    Parameters
    ----------
    excess : float
        The excess surrogate risk that can be borne.
    bound : callable
        Rows to bound, not increasing: one of the bounds above with everything else given.

    Returns
    -------
    int
        n with bound(n) <= excess < bound(n - 1).

    Examples
    --------
    >>> noise = ClassConditionalNoise(0.2, 0.1, n_labels=5)
    >>> def bound(n):
    ...     R = rademacher_linear(n, feature_norm=1.0, weight_norm=1.0)
    ...     return hamming_bound(n, noise, theta=1.0, lipschitz=0.25, rademacher=R)
    >>> rows_needed(0.1, bound)
    85257
    """
    check_real(excess, "excess", 0, math.inf)
    enough = 1
    while bound(enough) > excess:
        if enough > _MOST_ROWS:
            raise ValueError(
                f"no number of rows brings the bound down to {excess:g}: it is still {bound(enough):g} at {enough}. "
                "Does its Rademacher complexity fall with n?"
            )
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (middle, enough) if bound(middle) > excess else (too_few, middle)
    return enough


def _deviation(n: int, theta: float, delta: float, printed: bool) -> float:
    """Theta sqrt(ln(2/delta) / 2n); the paper's theorems have ln(1/delta)."""
    theta = check_real(theta, "theta", 0, math.inf, "Bound the scores: phi must be bounded on them.")
    sides = (1 if printed else 2) / check_real(delta, "delta", 0, 1)
    return theta * math.sqrt(math.log(sides) / (2 * check_count(n, "n")))


def _check_rademacher(rademacher: float) -> float:
    # A class of one function has complexity 0.
    return 0.0 if rademacher == 0 else check_real(rademacher, "rademacher", 0, math.inf)
