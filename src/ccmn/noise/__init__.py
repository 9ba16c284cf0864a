"""Noise models: how labels are corrupted, and how noisy labels are debiased."""

from __future__ import annotations

from ccmn.noise.class_conditional import ClassConditionalNoise, MissingNoise, PartialNoise, propensity_noise
from ccmn.noise.grouped import GroupedNoise
from ccmn.noise.noise_model import BaseNoise, Debiasing, NoiseModel
from ccmn.noise.transition import TransitionNoise

__all__ = [
    "BaseNoise",
    "ClassConditionalNoise",
    "Debiasing",
    "GroupedNoise",
    "MissingNoise",
    "NoiseModel",
    "PartialNoise",
    "TransitionNoise",
    "propensity_noise",
]
