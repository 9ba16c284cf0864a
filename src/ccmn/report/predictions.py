"""Predictions as rows of a CSV file: what is predicted, and how probable it is."""

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
    """Labels and probabilities of some rows.

    Parameters
    ----------
    label_names : sequence of str
    probabilities : array (n, q)
    predicted : array (n, q) of bool
        The labels on the right side of the model's cut.
    first : int
        The number of the first of these rows, where they are a part of more.
    """

    label_names: Sequence[str]
    probabilities: NDArray[np.float64]
    predicted: NDArray[np.bool_]
    first: int = 0

    def wide(self) -> Iterator[list[Any]]:
        """A header and a line per row: every label as 0 or 1, then every label's probability."""
        yield ["row", *self.label_names, *(f"p({name})" for name in self.label_names)]
        pairs = zip(self.predicted.astype(int).tolist(), self.probabilities.tolist())
        for row, (labels, p) in enumerate(pairs, start=self.first):
            yield [row, *labels, *(f"{value:.6g}" for value in p)]

    def top(self, k: int) -> Iterator[list[Any]]:
        """A header and k lines per row: its most probable labels, the best first."""
        yield ["row", "rank", "label", "probability", "predicted"]
        for row, best in enumerate(self._order(k)):
            for rank, j in enumerate(best, start=1):
                p, predicted = self.probabilities[row, j], int(self.predicted[row, j])
                yield [self.first + row, rank, self.label_names[j], f"{p:.6g}", predicted]

    def to_dicts(self, k: int | None = None) -> list[dict[str, Any]]:
        """JSON-safe: per row its predicted labels, and the probability of every label, or of the k best."""
        return [
            {
                "row": self.first + row,
                "predicted": [self.label_names[j] for j in best if self.predicted[row, j]],
                "probability": {self.label_names[j]: float(self.probabilities[row, j]) for j in best},
            }
            for row, best in enumerate(self._order(k))
        ]

    def write(self, stream: IO[bytes], k: int | None = None) -> None:
        """CSV in UTF-8; with ``k`` the k best labels of every row. The header comes with the first row."""
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        lines = self.wide() if k is None else self.top(k)
        if self.first:
            next(lines)
        csv.writer(text, lineterminator="\n").writerows(lines)
        text.flush()
        text.detach()

    def _order(self, k: int | None) -> NDArray[np.intp]:
        """The labels of every row, the most probable first; of equals the first."""
        if k is None:
            return np.tile(np.arange(len(self.label_names)), (len(self.probabilities), 1))
        return np.argsort(-self.probabilities, axis=1, kind="stable")[:, :k]
