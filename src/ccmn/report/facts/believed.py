"""The noise that a report corrects by."""

from __future__ import annotations

from ccmn.audit import believed_rates
from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise, NoiseModel


def believed_noise(noise: NoiseModel | NoiseRates) -> NoiseModel:
    """A noise model as it is; estimated rates with upper bounds taken for what they are, as an audit takes them.

    >>> believed_noise(ClassConditionalNoise([0.1], [0.2])).rho_neg
    array([0.2])
    """
    if isinstance(noise, NoiseModel):
        return noise
    believed = believed_rates(noise)
    return ClassConditionalNoise(believed.rho_pos, believed.rho_neg, label_names=believed.label_names)
