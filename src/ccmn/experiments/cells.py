"""Cell: one method on one data set in one repeat, and the key it is known by."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ccmn._containers import is_sparse
from ccmn.data.multilabel import MultiLabelData
from ccmn.experiments.fleet import Settings
from ccmn.experiments.paper import Table
from ccmn.experiments.protocols import Protocol

PROCEDURE = 1
"""Counted up when the same cell would come to another value, so that stored ones are not taken for it."""


@dataclass(frozen=True)
class Cell:
    """One value per metric and selection of a table."""

    table: str
    protocol: str
    dataset: str
    method: str
    repeat: int
    n: int
    """Rows of the data at hand."""
    recipe: str = ""
    """All else that determines it, as canonical JSON: protocol, model, seed, and a fingerprint of the data."""

    @cached_property
    def key(self) -> str:
        """A hash of everything that determines the value."""
        fields = [self.table, self.protocol, self.dataset, self.method, self.repeat, self.n, self.recipe]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Column:
    """A data set of a table under one protocol: what all its cells share."""

    table: Table
    protocol: Protocol
    dataset: str
    data: MultiLabelData
    seed: int = 0

    @cached_property
    def recipe(self) -> str:
        """Canonical JSON of what determines the cells' values, besides method and repeat."""
        recipe = {
            **self.protocol.recipe(self.dataset),
            "model": self.table.model,
            "metrics": self.table.metrics,
            "seed": self.seed,
            "data": fingerprint(self.data),
            "procedure": PROCEDURE,
        }
        return json.dumps(recipe, sort_keys=True)

    @property
    def settings(self) -> Settings:
        """How a fleet of these cells is trained."""
        protocol = self.protocol
        return Settings(
            self.table.model,
            protocol.learning_rates,
            protocol.epochs,
            protocol.batch_size(self.dataset),
            protocol.weight_decay,
            self.table.metrics,
            refit=protocol.refit,
        )

    def cell(self, method: str, repeat: int) -> Cell:
        """The cell of a method in a repeat."""
        return Cell(self.table.name, self.protocol.name, self.dataset, method, repeat, self.data.n, self.recipe)

    def cells(self, methods: tuple[str, ...] | None = None) -> list[Cell]:
        """All cells, method by method."""
        return [self.cell(m, r) for m in methods or self.table.methods for r in range(self.table.repeats)]


def fingerprint(data: MultiLabelData) -> str:
    """A hash of features, labels and candidates; of values, not of how a file holds them."""
    found = hashlib.sha256()
    for matrix in (data.X, data.Y, data.candidates):
        for array in _arrays(matrix):
            found.update(repr((array.shape, array.dtype.str)).encode())
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def _arrays(matrix: Any) -> list[Any]:
    if matrix is None:
        return []
    if not is_sparse(matrix):
        return [np.asarray(matrix)]
    return [matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data]
