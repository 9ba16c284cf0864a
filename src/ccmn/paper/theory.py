r"""Constants and estimation-error bounds of Theorem 2, Theorem 4 and Corollary 1 of the paper.

Each bound holds with probability at least :math:`1 - \delta` for the excess surrogate risk
:math:`R_L(\hat f) - \min_{f \in F} R_L(f)` of the minimizer of the unbiased empirical risk on ``n`` noisy samples. Each
score :math:`f_1, \dots, f_q` belongs to a class F of real functions with Rademacher complexity at most ``rademacher``,
and :math:`0 \le \phi \le \Theta` on all margins that F can produce. Throughout, for label :math:`j`,

.. math:: r_j = 1 - \rho_{pos,j} - \rho_{neg,j}, \qquad d_j = \rho_{pos,j} - \rho_{neg,j}

The functions compute valid bounds by default and the printed ones with ``printed=True``. The paper differs in four
places:

- ln(1/delta), where a two-sided bound needs ln(2/delta).
- The two :math:`\mu` are too small. The proof changes the noisy label and keeps ``f(x)``, but McDiarmid's inequality
  replaces a whole sample including ``x``, so that ``phi(f)`` and ``phi(-f)`` change as well.
- Corollary 1 has the minimum over labels instead of the maximum of the theorems.
- The second term of Theorem 4 counts q(q-1) pairs instead of q(q-1)/2. This factor 2 makes the printed Theorem 4 valid
  for delta <= 1/2, since the valid mu is at most sqrt(2) times the printed one.
"""

from __future__ import annotations

import math

import numpy as np

from ccmn._validation import FloatArray, check_count, check_rates_known, check_real
from ccmn.noise import ClassConditionalNoise, PartialNoise

__all__ = [
    "hamming_bound",
    "kappa",
    "partial_hamming_bound",
    "partial_ranking_bound",
    "rademacher_linear",
    "ranking_bound",
]


# -- Constants


def kappa(noise: ClassConditionalNoise) -> FloatArray:
    r"""Return the factor kappa of Eq. (4) of the paper for every label.

    .. math:: \kappa_j = \frac{1}{1 - \rho_{pos,j} - \rho_{neg,j}}

    The factor of Eq. (6) for a pair of labels is :math:`\kappa_{jk} = \kappa_j \kappa_k`.

    Parameters
    ----------
    noise : ClassConditionalNoise
        Noise rates of the q labels.

    Returns
    -------
    array of shape (q,)
        Factors.

    Examples
    --------
    >>> kappa(ClassConditionalNoise([0.5, 0.1], [0.0, 0.1]))
    array([2.  , 1.25])
    """
    check_rates_known(noise, ClassConditionalNoise)
    return 1 / (1 - noise.rho_pos - noise.rho_neg)


def _mu_hamming(noise: ClassConditionalNoise, *, printed: bool = False) -> float:
    r"""Return the range of the modified phi of Eq. (4) of the paper, divided by Theta = max phi: the mu of Theorem 2.

    .. math:: \mu = \max_j \frac{1 + |d_j|}{r_j}, \qquad \text{printed: } \max_j \frac{1}{r_j}

    :math:`\tilde\phi` attains :math:`-\kappa_j \max(\rho_{pos,j}, \rho_{neg,j}) \Theta` and
    :math:`\kappa_j (1 - \min(\rho_{pos,j}, \rho_{neg,j})) \Theta`. With the printed value, a bound can be violated.
    """
    factors = kappa(noise)
    widths = factors if printed else factors * (1 + np.abs(noise.rho_pos - noise.rho_neg))
    return float(widths.max())


def _mu_ranking(noise: ClassConditionalNoise, *, printed: bool = False) -> float:
    r"""Return the range of the modified phi of Eq. (6) of the paper, divided by Theta = max phi: the mu of Theorem 4.

    .. math:: \mu = \max_{j \neq k} \frac{1 + \max(|d_j|, |d_k|)}{r_j r_k},
              \qquad \text{printed: } \max_j \frac{1 + |d_j|}{r_j^2}

    A noisy pair (1, 0) or (0, 1) gives the largest :math:`\tilde\phi`, a pair (1, 1) or (0, 0) the smallest. The four
    differences are :math:`1 \pm d_j` and :math:`1 \pm d_k`, divided by :math:`r_j r_k`. The printed value is not valid
    if labels have different rates: two of them can have a wider range than two labels with the rates of either.
    """
    factors = kappa(noise)
    _check_several_labels(noise.n_labels)
    widths = factors * (1 + np.abs(noise.rho_pos - noise.rho_neg))
    # The maximum over ordered pairs contains both cases: the larger |d| is that of j or that of k.
    return float((widths * factors).max()) if printed else _max_product(widths, factors)


def _lipschitz_hamming(noise: ClassConditionalNoise, lipschitz: float) -> float:
    r"""Return the Lipschitz constant of the modified phi of Eq. (4) of the paper: the K of Theorem 2.

    .. math:: K = L \max_j \frac{1 + |d_j|}{r_j}

    Functions phi that are steepest at 0, such as the sigmoid, attain it.
    """
    return _check_lipschitz(lipschitz) * _mu_hamming(noise)


def _lipschitz_ranking(noise: ClassConditionalNoise, lipschitz: float) -> float:
    r"""Return the Lipschitz constant of the modified phi of Eq. (6) of the paper in f_j - f_k: the K of Theorem 4.

    .. math:: K = \frac{L}{2} \max_{j \neq k} \max\Big(
              \frac{(1 + d_j)(1 - d_k)}{r_j r_k} + 1, \;
              \frac{(1 + d_j)(1 + d_k)}{r_j r_k} - 1, \;
              \frac{(1 - d_j)(1 - d_k)}{r_j r_k} - 1 \Big)

    The three terms are :math:`|p_j n_k| + |n_j p_k|` for the noisy pairs (1, 0) and (0, 1), (1, 1), (0, 0), where
    :math:`p` is the debiased label and :math:`n = 1 - p`. K is the smallest constant for all L-Lipschitz phi. For a
    non-increasing phi, the larger of the two coefficients would suffice.
    """
    factors, difference = kappa(noise), noise.rho_pos - noise.rho_neg
    _check_several_labels(noise.n_labels)
    above, below = factors * (1 + difference), factors * (1 - difference)
    equal = max(_max_product(above, above), _max_product(below, below)) - 1
    return _check_lipschitz(lipschitz) * max(_max_product(above, below) + 1, equal) / 2


def _check_several_labels(n_labels: int) -> None:
    """Reject fewer than two labels, for formulas over label pairs."""
    if n_labels < 2:
        raise ValueError(f"a ranking loss needs at least two labels; the noise model has {n_labels}")


def _max_product(u: FloatArray, v: FloatArray) -> float:
    first, second = np.argsort(v)[:-3:-1]
    partner = np.where(np.arange(v.size) == first, v[second], v[first])
    return float((u * partner).max())


def _check_lipschitz(lipschitz: float) -> float:
    remedy = "For bounded scores, the square surrogate also has one: 4 if |t| <= 1."
    return check_real(lipschitz, "lipschitz", 0, np.inf, remedy)


# -- Bounds


def rademacher_linear(n: int, feature_norm: float, weight_norm: float) -> float:
    r"""Return a bound on the Rademacher complexity of linear functions of bounded norm.

    .. math:: R_n(\{x \mapsto \langle w, x\rangle : \|w\| \le B\}) \le \frac{B X}{\sqrt n},
              \qquad \|x\| \le X

    Count an intercept as an additional feature with the value 1.

    Parameters
    ----------
    n : int
        Number of samples.
    feature_norm : float
        Largest norm X of a feature vector.
    weight_norm : float
        Largest norm B of a weight vector.

    Returns
    -------
    float
        Bound on the complexity.

    Examples
    --------
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
    r"""Return the bound of Theorem 2 on the excess Hamming surrogate risk of the unbiased loss, Eq. (4) of the paper.

    .. math:: 4 q K R_n(F) + 2 q \mu \Theta \sqrt{\frac{\ln(2/\delta)}{2n}}

    Parameters
    ----------
    n : int
        Number of samples.
    noise : ClassConditionalNoise
        Noise rates of the q labels.
    theta : float
        Largest value :math:`\Theta` of phi; the smallest is 0.
    lipschitz : float
        Lipschitz constant of phi: 1 for hinge and logistic, 1/4 for sigmoid, 4 for square on [-1, 1].
    rademacher : float
        :math:`R_n(F)` or a bound on it, such as :func:`rademacher_linear` for the same n.
    delta : float, default=0.05
        Probability that the bound fails.
    printed : bool, default=False
        Whether to return the printed bound (ln(1/delta), smaller mu), which is not valid.

    Returns
    -------
    float
        Bound on the excess risk.

    Examples
    --------
    >>> noise = ClassConditionalNoise(0.2, 0.1, n_labels=5)
    >>> at = dict(theta=1.0, lipschitz=0.25, rademacher=rademacher_linear(10**6, 1.0, 1.0))
    >>> round(hamming_bound(10**6, noise, **at), 4), round(hamming_bound(10**6, noise, **at, printed=True), 4)
    (0.0292, 0.0253)
    """
    K, width = _lipschitz_hamming(noise, lipschitz), 2 * _mu_hamming(noise, printed=printed)
    return _bound(n, noise.n_labels, K, width, theta, rademacher, delta, printed)


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
    r"""Return the bound of Theorem 4 on the excess ranking surrogate risk of the unbiased loss, Eq. (6) of the paper.

    .. math:: 4 q (q-1) K R_n(F) + q (q-1) \mu \Theta \sqrt{\frac{\ln(2/\delta)}{2n}}

    Parameters
    ----------
    n : int
        Number of samples.
    noise : ClassConditionalNoise
        Noise rates of at least two labels.
    theta : float
        Largest value of phi on differences of scores :math:`f_j - f_k`.
    lipschitz : float
        Lipschitz constant of phi, see :func:`hamming_bound`.
    rademacher : float
        :math:`R_n(F)` or a bound on it, such as :func:`rademacher_linear` for the same n.
    delta : float, default=0.05
        Probability that the bound fails.
    printed : bool, default=False
        Whether to return the printed bound: ln(1/delta), mu over single labels, and twice the second term. It is valid
        but looser for delta <= 1/2.

    Returns
    -------
    float
        Bound on the excess risk.

    Examples
    --------
    >>> noise = ClassConditionalNoise(0.2, 0.1, n_labels=5)
    >>> at = dict(theta=1.0, lipschitz=0.25, rademacher=rademacher_linear(10**6, 1.0, 1.0))
    >>> round(ranking_bound(10**6, noise, **at), 4), round(ranking_bound(10**6, noise, **at, printed=True), 4)
    (0.0912, 0.1401)
    """
    K, width, q = _lipschitz_ranking(noise, lipschitz), _mu_ranking(noise, printed=printed), noise.n_labels
    return _bound(n, q * (q - 1), K, width * (2 if printed else 1), theta, rademacher, delta, printed)


def partial_hamming_bound(
    n: int, noise: PartialNoise, *, rademacher: float, delta: float = 0.05, printed: bool = False
) -> float:
    r"""Return the first bound of Corollary 1: Theorem 2 for candidate sets (Eq. (9) of the paper) and square loss.

    .. math:: 4 q K R_n(F) + 8 q \max_j \frac{1 + \rho_j}{1 - \rho_j} \sqrt{\frac{\ln(2/\delta)}{2n}},
              \qquad \text{printed: } \frac{1}{1 - \min_j \rho_j} \text{ and } \ln(1/\delta)

    The factor 8 is 2 Theta with Theta = 4, which requires scores with :math:`|f_j| \le 1`. The Lipschitz constant of
    the square loss is then 4.

    Parameters
    ----------
    n : int
        Number of samples.
    noise : PartialNoise
        False-positive rates of the q labels.
    rademacher : float
        :math:`R_n(F)` or a bound on it, such as :func:`rademacher_linear` for the same n.
    delta : float, default=0.05
        Probability that the bound fails.
    printed : bool, default=False
        Whether to return the printed bound, which is not valid.

    Returns
    -------
    float
        Bound on the excess risk.

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
    width = 2 * float(kappa(noise).min())
    return _bound(n, noise.n_labels, _lipschitz_hamming(noise, 4.0), width, 4.0, rademacher, delta, printed)


def partial_ranking_bound(
    n: int, noise: PartialNoise, *, rademacher: float, delta: float = 0.05, printed: bool = False
) -> float:
    r"""Return the second bound of Corollary 1: Theorem 4 for candidate sets (Eq. (10) of the paper) and square loss.

    .. math:: 4 q (q-1) K R_n(F)
              + 4 q (q-1) \max_{j \neq k} \frac{1 + \max(\rho_j, \rho_k)}{(1 - \rho_j)(1 - \rho_k)}
              \sqrt{\frac{\ln(2/\delta)}{2n}},
              \qquad \text{printed: } 8 q (q-1) \min_j \frac{1 + \rho_j}{(1 - \rho_j)^2} \text{ and } \ln(1/\delta)

    Theta = 4 requires :math:`|f_j - f_k| \le 1`. For scores with :math:`|f_j| \le 1`, use :func:`ranking_bound` with
    theta = 9 and lipschitz = 6.

    Parameters
    ----------
    n : int
        Number of samples.
    noise : PartialNoise
        False-positive rates of at least two labels.
    rademacher : float
        :math:`R_n(F)` or a bound on it, such as :func:`rademacher_linear` for the same n.
    delta : float, default=0.05
        Probability that the bound fails.
    printed : bool, default=False
        Whether to return the printed bound, which is not valid because of the minimum.

    Returns
    -------
    float
        Bound on the excess risk.

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
    q, width = noise.n_labels, 2 * float(((1 + noise.rho_neg) / (1 - noise.rho_neg) ** 2).min())
    return _bound(n, q * (q - 1), _lipschitz_ranking(noise, 4.0), width, 4.0, rademacher, delta, printed)


def _bound(
    n: int, terms: int, K: float, width: float, theta: float, rademacher: float, delta: float, printed: bool
) -> float:
    r"""Return :math:`t \big( 4 K R_n(F) + w \Theta \sqrt{\ln(2/\delta) / 2n} \big)` for t terms of width w."""
    theta = check_real(theta, "theta", 0, math.inf, "Bound the scores: phi must be bounded on them.")
    # A class that consists of one function has complexity 0.
    complexity = 0.0 if rademacher == 0 else check_real(rademacher, "rademacher", 0, math.inf)
    ratio = (1 if printed else 2) / check_real(delta, "delta", 0, 1)
    return terms * (4 * K * complexity + width * theta * math.sqrt(math.log(ratio) / (2 * check_count(n, "n"))))
