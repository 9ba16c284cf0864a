"""PARTICLE in its steps: neighbours, propagation, credible labels, pair classifiers, two ways to count votes."""

from __future__ import annotations

from ccmn.baselines.particle.classifier import PARTICLE

__all__ = ["PARTICLE"]
