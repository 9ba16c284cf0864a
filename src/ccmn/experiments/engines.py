"""ENGINES: where units run."""

from __future__ import annotations

from collections.abc import Callable

from ccmn._registry import Catalogue
from ccmn.experiments.on_ray import run_units_on_ray
from ccmn.experiments.runner import run_units

ENGINES: Catalogue[Callable[..., None]] = Catalogue("engine", {"local": run_units, "ray": run_units_on_ray})
"""Called with units and a store, and with ``jobs`` (local) or ``address`` (ray)."""
