"""Noise models: how labels are corrupted, and how noisy labels are debiased."""

from ccmn.noise.class_conditional import ClassConditionalNoise
from ccmn.noise.grouped import GroupedNoise
from ccmn.noise.noise_model import NoiseModel
from ccmn.noise.one_sided import MissingNoise, PartialNoise, propensity_noise
from ccmn.noise.transition import TransitionNoise

__all__ = [
    "ClassConditionalNoise",
    "GroupedNoise",
    "MissingNoise",
    "NoiseModel",
    "PartialNoise",
    "TransitionNoise",
    "propensity_noise",
]
