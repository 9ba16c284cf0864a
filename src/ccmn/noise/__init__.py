"""The only place that knows how labels go wrong: one noise model per file, this index, nothing else."""

from __future__ import annotations

from ccmn._registry import Catalogue
from ccmn.noise.class_conditional import ClassConditionalNoise, MissingNoise, PartialNoise, debias_labels, flip_labels
from ccmn.noise.grouped import GroupedNoise
from ccmn.noise.noise_model import Debiasing, NoiseModel
from ccmn.noise.transition import TransitionNoise

NOISE_MODELS: Catalogue[type[NoiseModel]] = Catalogue(
    "kind of noise",
    {model.kind: model for model in (ClassConditionalNoise, PartialNoise, MissingNoise, TransitionNoise)},
)

__all__ = [
    "NOISE_MODELS",
    "ClassConditionalNoise",
    "Debiasing",
    "GroupedNoise",
    "MissingNoise",
    "NoiseModel",
    "PartialNoise",
    "TransitionNoise",
    "debias_labels",
    "flip_labels",
]
