"""The table of training losses in docs/training.md equals results/stability.csv."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
MODELS = ("linear", "mlp", "network")
METRICS = ("hamming_loss", "ranking_loss", "average_precision")
CLEAN = "true labels (what could be reached)"


@pytest.fixture(scope="module")
def rows():
    with open(ROOT / "results" / "stability.csv", newline="") as stream:
        return list(csv.DictReader(stream))


def test_table_in_the_documentation(rows):
    text = (ROOT / "docs" / "training.md").read_text()
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = []
        for model in MODELS:
            selected = [r for r in rows if (r["method"], r["model"]) == (method, model)]
            means = np.mean([[float(r[m]) for m in METRICS] for r in selected], axis=0)
            cells.append("/".join(f"{mean:.3f}"[1:] for mean in means))
        assert f"| {CLEAN if method == 'clean' else method} | {' | '.join(cells)} |" in text


def test_warnings_in_the_documentation(rows):
    corrected = ("abs", "relu")
    warned = {model: [0, 0] for model in MODELS}
    for row in rows:
        warned[row["model"]][row["method"].endswith(corrected)] += int(row["warned"])
    assert warned == {"linear": [0, 1], "mlp": [9, 0], "network": [17, 4]}
    assert not any(int(r["warned"]) for r in rows if r["method"].endswith(("abs", "forward", "plugin")))
