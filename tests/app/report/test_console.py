from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from ccmn.app.report.console import estimate_table, metrics_table, noise_table
from ccmn.estimation import NoiseRates
from ccmn.estimation.noise_rates import Flag
from ccmn.noise import ClassConditionalNoise, PartialNoise


def printed(table):
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_estimated_rates_and_warnings():
    known = NoiseRates.known(PartialNoise([0.3], label_names=["sea"]), np.array([[1.0], [0.0]]))
    flags = [Flag("wide_interval", "wide", 0), Flag("few_rows", "2 rows are few")]
    rates = replace(known, ci_neg=[[0.22, 0.4]], flags=flags)
    text = printed(estimate_table(rates))
    for part in ("0.300", "(0.22, 0.40)", "! sea: wide", "! all labels: 2 rows are few"):
        assert part in text


def test_label_names_are_not_markup():
    assert "[red]sea" in printed(noise_table(ClassConditionalNoise([0.1], [0.2], label_names=["[red]sea"])))


@pytest.mark.parametrize("outside", [False, True])
def test_estimates_out_of_range_are_marked(outside):
    value = {"value": 1.1, "se": 0.1, "status": "consistent", "bounds": (0.0, 1.0), "out_of_range": outside}
    text = printed(metrics_table({"average_precision": value}, 10, 10, corrected=True))
    assert ("1.100*" in text) == outside
