"""The printed numbers: 648 cells of the paper's three tables and 544 of the journal version's two."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Printed(NamedTuple):
    """A printed cell: mean and deviation over five repeats."""

    mean: float
    std: float
    significant: bool
    """Printed with a bullet: the best proposed method is significantly better than this one."""


Key = tuple[str, str, str, str]
"""Table, data set, method, metric."""


@cache
def published() -> dict[Key, Printed]:
    """All printed cells.

    >>> published()["table1", "yeast", "unbiased-hamming-square", "hamming_loss"]
    Printed(mean=0.218, std=0.002, significant=False)
    """
    text = files("ccmn.experiments").joinpath("published.csv").read_text()
    return {
        (row["table"], row["dataset"], row["method"], row["metric"]): Printed(
            float(row["mean"]), float(row["std"]), row["proposed_is"] == "better"
        )
        for row in csv.DictReader(text.splitlines())
    }
