from __future__ import annotations

import math

import pandas as pd

from ccmn.report.facts.curves import chosen_curve, curve_facts, curves_of_rates

LOOP = pd.DataFrame(
    {
        "lr": [0.1, 0.1, 0.01, 0.01],
        "epoch": [1, 2, 1, 2],
        "loss": [3.0, math.nan, 4.0, 2.0],
        "hamming_loss": [0.4, 0.3, 0.5, 0.2],
    }
)
PATH = pd.DataFrame({"l2": [1.0, 0.1], "hamming_loss": [0.4, 0.3], "labels": [1, 2]})


def test_a_curve_per_learning_rate():
    facts = curve_facts(curves_of_rates(LOOP), "")
    loss, criterion = facts.charts
    assert (loss.title, criterion.title) == ("training loss", "validation: hamming loss")
    assert loss.series == {"learning rate 0.1": ((1.0, 3.0),), "learning rate 0.01": ((1.0, 4.0), (2.0, 2.0))}
    assert criterion.series["learning rate 0.01"] == ((1.0, 0.5), (2.0, 0.2))


def test_the_chosen_learning_rate():
    assert chosen_curve(LOOP).lr.tolist() == [0.01, 0.01]
    assert chosen_curve(PATH) is PATH


def test_paths_of_l2_stand_apart():
    facts = curve_facts({"loop": chosen_curve(LOOP), "path": PATH}, "")
    assert [(chart.title, chart.x_name, list(chart.series)) for chart in facts.charts] == [
        ("training loss", "epoch", ["loop"]),
        ("validation: hamming loss", "epoch", ["loop"]),
        ("validation: hamming loss", "log10 of l2,", ["path"]),
    ]
    assert facts.charts[2].series["path"] == ((0.0, 0.4), (-1.0, 0.3))
