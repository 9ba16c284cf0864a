"""Numbers on the pages are those of results/."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from pages import DOCS, ROOT

LOSSES = {
    "BCE on the noisy labels": "BCE",
    '`HammingLoss("logistic", correction="relu")`': "Hamming logistic relu, estimated rates",
    '`RankingLoss("sigmoid")`': "ranking sigmoid, estimated rates",
    "`ForwardLoss`": "forward loss, estimated rates",
    '`RankingLoss("sigmoid")` of posterior labels': "ranking sigmoid, posterior labels",
    "BCE on the true labels": "BCE, clean labels",
}
"""Rows of the table of networks, and the methods of results/deep.csv."""


def table_rows(section):
    """Return the cells of the table of a section of the page of measurements."""
    text = (DOCS / "measured.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (.+) \|$", text, re.MULTILINE)
    return {cells[0]: cells[1:] for cells in (line.split(" | ") for line in lines[2:])}


@pytest.mark.parametrize("loss", LOSSES)
def test_networks(loss):
    values = pd.read_csv(ROOT / "results" / "deep.csv").query("noise == 'two-sided'").set_index("method")
    means = values.loc[[LOSSES[loss]], ["hamming_loss", "average_precision"]].mean()
    assert table_rows("Networks")[loss] == [f"{mean:.3f}".removeprefix("0") for mean in means]
