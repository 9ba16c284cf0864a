r"""The constants of Theorems 2 and 4: kappa, mu, and the Lipschitz constants of the modified phi.

Throughout, for label :math:`j`,

.. math:: r_j = 1 - \rho_{pos,j} - \rho_{neg,j}, \qquad d_j = \rho_{pos,j} - \rho_{neg,j}

The paper's two :math:`\mu` are too small: its proof moves only the noisy label while ``f(x)`` stays. McDiarmid's
inequality replaces a whole point, ``x`` included, so ``phi(f)`` and ``phi(-f)`` move as well. The functions below give
the range that a replaced point really has; ``printed=True`` gives what the paper prints, to compare.
"""

from __future__ import annotations

import numpy as np

from ccmn._validation import FloatArray, check_rates_known, check_real, check_several_labels
from ccmn.noise import ClassConditionalNoise


def kappa(noise: ClassConditionalNoise) -> FloatArray:
    r"""The factor of Eq. (4), one per label.

    .. math:: \kappa_j = \frac{1}{1 - \rho_{pos,j} - \rho_{neg,j}}

    >>> kappa(ClassConditionalNoise([0.5, 0.1], [0.0, 0.1]))
    array([2.  , 1.25])
    """
    check_rates_known(noise, ClassConditionalNoise)
    return 1 / (1 - noise.rho_pos - noise.rho_neg)


def kappa_pair(noise: ClassConditionalNoise, j: int, k: int) -> float:
    r"""The factor of Eq. (6) for the pair (j, k): :math:`\kappa_{jk} = \kappa_j \kappa_k`.

    >>> kappa_pair(ClassConditionalNoise([0.5, 0.1], [0.0, 0.1]), 0, 1)
    2.5
    """
    factors = kappa(noise)
    return float(factors[j] * factors[k])


def mu_hamming(noise: ClassConditionalNoise, *, printed: bool = False) -> float:
    r"""How far one modified phi of Eq. (4) reaches, in units of Theta: the mu of Theorem 2.

    .. math:: \mu = \max_j \frac{1 + |d_j|}{r_j}, \qquad \text{printed: } \max_j \frac{1}{r_j}

    With :math:`0 \le \phi \le \Theta`, :math:`\tilde\phi` lies between
    :math:`-\kappa_j \max(\rho_{pos,j}, \rho_{neg,j}) \Theta` and
    :math:`\kappa_j (1 - \min(\rho_{pos,j}, \rho_{neg,j})) \Theta`, and reaches both ends.

    Parameters
    ----------
    noise : ClassConditionalNoise
    printed : bool
        The paper's value. It is not valid: a bound with it can be broken (see the tests).

    Examples
    --------
    >>> noise = ClassConditionalNoise([0.5], [0.0])
    >>> mu_hamming(noise), mu_hamming(noise, printed=True)
    (3.0, 2.0)
    """
    factors = kappa(noise)
    reach = factors if printed else factors * (1 + np.abs(_difference(noise)))
    return float(reach.max())


def mu_ranking(noise: ClassConditionalNoise, *, printed: bool = False) -> float:
    r"""How far one modified phi of Eq. (6) reaches, in units of Theta: the mu of Theorem 4.

    .. math:: \mu = \max_{j \neq k} \frac{1 + \max(|d_j|, |d_k|)}{r_j r_k},
              \qquad \text{printed: } \max_j \frac{1 + |d_j|}{r_j^2}

    A noisy pair (1, 0) or (0, 1) gives the greatest :math:`\tilde\phi`, a pair (1, 1) or (0, 0) the least; the four
    differences are :math:`1 \pm d_j` and :math:`1 \pm d_k` over :math:`r_j r_k`. Near-linear in q.

    Parameters
    ----------
    noise : ClassConditionalNoise
        Of at least two labels.
    printed : bool
        The paper's value. It is not valid where labels differ: two of them can make a wider pair than either would
        with its like.

    Examples
    --------
    >>> noise = ClassConditionalNoise([0.0, 0.3], [0.5, 0.3])
    >>> round(mu_ranking(noise), 4), round(mu_ranking(noise, printed=True), 4)
    (7.5, 6.25)
    """
    factors = kappa(noise)
    check_several_labels(noise.n_labels)
    reach = factors * (1 + np.abs(_difference(noise)))
    # Over ordered pairs: the larger |d| of a pair is the one of j or the one of k.
    return float((reach * factors).max()) if printed else _max_product(reach, factors)


def lipschitz_hamming(noise: ClassConditionalNoise, lipschitz: float) -> float:
    r"""The Lipschitz constant of one modified phi of Eq. (4): the K of Theorem 2.

    .. math:: K = L \max_j \frac{1 + |d_j|}{r_j}

    It is reached by the phi that are steepest at 0, such as the sigmoid.

    Parameters
    ----------
    noise : ClassConditionalNoise
    lipschitz : float
        L of phi itself: 1 for hinge and logistic, 1/4 for the sigmoid, 4 for the square on [-1, 1].

    Examples
    --------
    >>> round(lipschitz_hamming(ClassConditionalNoise([0.2], [0.4]), 1.0), 4)
    3.0
    """
    return _check_lipschitz(lipschitz) * mu_hamming(noise)


def lipschitz_ranking(noise: ClassConditionalNoise, lipschitz: float) -> float:
    r"""The Lipschitz constant of one modified phi of Eq. (6), as a function of f_j - f_k: the K of Theorem 4.

    .. math:: K = \frac{L}{2} \max_{j \neq k} \max\Big(
              \frac{(1 + d_j)(1 - d_k)}{r_j r_k} + 1, \;
              \frac{(1 + d_j)(1 + d_k)}{r_j r_k} - 1, \;
              \frac{(1 - d_j)(1 - d_k)}{r_j r_k} - 1 \Big)

    The three terms are :math:`|p_j n_k| + |n_j p_k|` for the noisy pairs (1, 0) and (0, 1), (1, 1), (0, 0), with
    :math:`p` the debiased label and :math:`n = 1 - p`. The least constant that holds for every L-Lipschitz phi; for a
    non-increasing phi the two slopes work against each other, and the larger of the two coefficients would do.
    Near-linear in q.

    Parameters
    ----------
    noise : ClassConditionalNoise
        Of at least two labels.
    lipschitz : float
        L of phi itself.

    Examples
    --------
    >>> lipschitz_ranking(ClassConditionalNoise([0.0, 0.5], [0.0, 0.0]), 1.0)
    2.0
    """
    factors = kappa(noise)
    check_several_labels(noise.n_labels)
    above, below = factors * (1 + _difference(noise)), factors * (1 - _difference(noise))
    unlike = _max_product(above, below) + 1
    alike = max(_max_product(above, above), _max_product(below, below)) - 1
    return _check_lipschitz(lipschitz) * max(unlike, alike) / 2


def _difference(noise: ClassConditionalNoise) -> FloatArray:
    return noise.rho_pos - noise.rho_neg


def _max_product(u: FloatArray, v: FloatArray) -> float:
    """The largest u_j v_k with j != k, for positive u and v: with every u_j goes the largest v but its own."""
    first, second = np.argsort(v)[:-3:-1]
    partner = np.where(np.arange(v.size) == first, v[second], v[first])
    return float((u * partner).max())


def _check_lipschitz(lipschitz: float) -> float:
    remedy = "On bounded scores the square has one as well: 4 where |t| <= 1."
    return check_real(lipschitz, "lipschitz", 0, np.inf, remedy)
