"""The paper in 12 lines (docs/paper.md) gives the values of the same repeats in results/cells.csv."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccmn import CCMNClassifier
from ccmn.paper.result_store import read_cells
from ccmn.paper.tables import TABLE_METRICS
from pages import blocks

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The selected learning rate")
@pytest.mark.skipif(not hasattr(CCMNClassifier, "paper"), reason="requires CCMNClassifier.paper")
def test_the_script_gives_the_values_of_the_table(real_data, capsys):
    (script,) = (b.text for b in blocks(ROOT / "docs" / "paper.md") if b.language == "python")
    assert len([line for line in script.splitlines() if line]) == 12
    names: dict[str, list[list[float]]] = {}
    exec(script, names)
    wanted = ("table1", "moderate", "yeast", "unbiased-hamming-square")
    cells = [r for r in read_cells(ROOT / "results" / "cells.csv") if r.cell.repeat < 2]
    expected = [
        r.outcome["values"]["clean"]
        for r in cells
        if (r.cell.table, r.cell.protocol, r.cell.dataset, r.cell.method) == wanted
    ]
    assert len(expected) == len(names["measured"]) == 2
    committed = np.mean([[run[metric] for metric in TABLE_METRICS] for run in expected], axis=0)
    np.testing.assert_allclose(np.mean(names["measured"], axis=0), committed, rtol=0, atol=0.005)
    assert "'hamming_loss': 0.218" in capsys.readouterr().out
