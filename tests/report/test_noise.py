"""Tables of noise: every label with its rates, intervals and doubts."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from ccmn.estimation import LabelRates, Rate
from ccmn.estimation.rates import NEVER, Flag, gather
from ccmn.report.noise import estimate_table


def test_estimated_rates():
    label = LabelRates(NEVER, Rate(0.3, 0.05, 0.22, 0.4), "upper bound", "best bin", (("wide_interval", "wide"),))
    rates = gather([label], np.array([[1.0], [0.0]]), ("partial",), {}, ["sea"], [Flag("few_rows", "2 rows are few")])
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(estimate_table(rates))
    text = console.export_text()
    for part in ("sea", "0.300", "(0.22, 0.40)", "best bin", "upper bound", "wide", "2 rows are few"):
        assert part in text
