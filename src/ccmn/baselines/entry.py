"""Baseline: a row of the catalogue of partial multi-label methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccmn.baselines.base import PartialLabelClassifier


@dataclass(frozen=True)
class Baseline:
    """A method by name: its estimator, what sets it apart, and what a comparison has to search."""

    name: str
    estimator: type[PartialLabelClassifier]
    settings: Mapping[str, Any] = field(default_factory=dict)
    search_grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values to choose from on validation rows, as ``ParameterGrid`` takes them; empty where the published defaults are
    to be used."""

    def make(self, **parameters: Any) -> PartialLabelClassifier:
        """An unfitted estimator; ``parameters`` come on top of its own settings."""
        return self.estimator(**{**self.settings, **parameters})
