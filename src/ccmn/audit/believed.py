"""What is believed of the noise: rates and how sure they are, from a noise model or from an estimation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccmn._validation import FloatArray, check_rates_known
from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise, NoiseModel


class BelievedRates(NamedTuple):
    """Rates of every label with their standard deviations, (q,) each."""

    rho_pos: FloatArray
    rho_neg: FloatArray
    se_pos: FloatArray
    se_neg: FloatArray
    label_names: tuple[str, ...] | None


def believed_rates(noise: NoiseModel | NoiseRates) -> BelievedRates:
    """The rates of a noise model as they are; of an estimation, with upper bounds taken for what they are.

    A bound b says that rho_pos lies between 0 and b, and no more: its mean is b / 2, its deviation b / sqrt(12). (Added
    labels show themselves in rows that are surely negative, which nearly every label has: rho_neg is taken as it is.)
    Taken at its word, a bound makes far too many labels look lost.

    Examples
    --------
    >>> believed_rates(ClassConditionalNoise([0.1], [0.2])).se_pos
    array([0.])
    """
    if isinstance(noise, NoiseRates):
        bound = np.array([kind == "upper bound" for kind in noise.kind])
        rho_pos = np.where(bound, noise.rho_pos / 2, noise.rho_pos)
        se_pos = np.where(bound, np.sqrt((noise.rho_pos**2 + 4 * noise.se_pos**2) / 12), noise.se_pos)
        return BelievedRates(rho_pos, noise.rho_neg, se_pos, noise.se_neg, noise.label_names)
    check_rates_known(noise, ClassConditionalNoise)
    assert isinstance(noise, ClassConditionalNoise)
    known = np.zeros(noise.n_labels)
    return BelievedRates(noise.rho_pos, noise.rho_neg, known, known, noise.label_names)
