"""Predictions as CSV lines or JSON: predicted labels and their probabilities."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Predictions:
    """Predicted labels and probabilities of consecutive rows.

    Parameters
    ----------
    label_names : sequence of str
        Names of the q labels.
    probabilities : array of shape (n, q)
        Probability of every label.
    predicted : array of bool, shape (n, q)
        Labels that the model predicts, at its thresholds.
    first : int, default=0
        Number of the first row, if the rows are part of a larger table.
    ids : sequence of str, default=None
        Identifiers of the rows.
    id_name : str, default="id"
        Name of the column of identifiers.
    """

    label_names: Sequence[str]
    probabilities: NDArray[np.float64]
    predicted: NDArray[np.bool_]
    first: int = 0
    ids: Sequence[str] | None = None
    id_name: str = "id"

    def wide(self) -> Iterator[list[Any]]:
        """Yield a header and a line per row: every label as 0 or 1, then the probability of every label."""
        yield [*self._key_names, *self.label_names, *(f"p({name})" for name in self.label_names)]
        pairs = zip(self.predicted.astype(int).tolist(), self.probabilities.tolist())
        for row, (labels, p) in enumerate(pairs):
            yield [*self._keys(row), *labels, *(f"{value:.6g}" for value in p)]

    def top(self, k: int) -> Iterator[list[Any]]:
        """Yield a header and k lines per row: its most probable labels in descending order."""
        yield [*self._key_names, "rank", "label", "probability", "predicted"]
        for row, best in enumerate(self._order(k)):
            for rank, j in enumerate(best, start=1):
                p, predicted = self.probabilities[row, j], int(self.predicted[row, j])
                yield [*self._keys(row), rank, self.label_names[j], f"{p:.6g}", predicted]

    def to_dicts(self, k: int | None = None) -> list[dict[str, Any]]:
        """Return for every row its predicted labels and the probabilities of all or of the k most probable labels."""
        return [
            {
                **dict(zip(self._key_names, self._keys(row))),
                "predicted": [self.label_names[j] for j in best if self.predicted[row, j]],
                "probability": {self.label_names[j]: float(self.probabilities[row, j]) for j in best},
            }
            for row, best in enumerate(self._order(k))
        ]

    def write(self, stream: IO[bytes], k: int | None = None) -> None:
        """Write CSV in UTF-8, all labels or the k most probable ones; the header only if ``first`` is 0."""
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        lines = self.wide() if k is None else self.top(k)
        if self.first:
            next(lines)
        csv.writer(text, lineterminator="\n").writerows(lines)
        text.flush()
        text.detach()

    @property
    def _key_names(self) -> list[str]:
        """Names of the columns that identify a row."""
        return ["row"] if self.ids is None else ["row", "id" if self.id_name == "row" else self.id_name]

    def _keys(self, row: int) -> list[Any]:
        """Return the number of a row, and its identifier if it is known."""
        return [self.first + row] if self.ids is None else [self.first + row, self.ids[row]]

    def _order(self, k: int | None) -> NDArray[np.intp]:
        """Return the k most probable labels of every row, ties in the order of the labels; all labels without ``k``."""
        if k is None:
            return np.tile(np.arange(len(self.label_names)), (len(self.probabilities), 1))
        return np.argsort(-self.probabilities, axis=1, kind="stable")[:, :k]
