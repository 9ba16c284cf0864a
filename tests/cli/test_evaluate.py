from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest

from ccmn.data import write_csv, write_npz
from ccmn.metrics import METRICS
from ccmn.models import load_model

CORRECTED = [name for name, metric in METRICS.items() if "noise" in inspect.signature(metric.function).parameters]


def test_every_metric(run, printed, saved, task, files):
    found = printed("evaluate", saved, "task.csv")
    assert (found["n"], found["q"], found["noise"]) == (300, 3, None)
    assert list(found["metrics"]) == list(METRICS)
    scores = load_model(saved).decision_function(task.X)
    assert found["metrics"]["hamming_loss"] == pytest.approx(((scores >= 0) != task.Y).mean())
    assert found["metrics"]["ranking_loss"] == pytest.approx(METRICS["ranking_loss"].function(task.Y, scores))
    table = run("evaluate", saved, "task.npz").stdout
    assert "hamming loss ↓" in table
    assert "micro f1 ↑" in table


def test_labels_go_by_name(printed, saved, task, files):
    order = [2, 0, 1]
    turned = replace(task, Y=task.Y[:, order], label_names=[task.label_names[j] for j in order])
    write_npz(turned, files / "turned.npz")
    write_csv(turned, files / "turned.csv")
    expected = printed("evaluate", saved, "task.npz")
    assert printed("evaluate", saved, "turned.npz") == expected
    assert printed("evaluate", saved, "turned.csv") == expected
    assert printed("evaluate", saved, "turned.csv", "--labels", "-3") == expected


def test_labels_without_names_go_by_number(printed, saved, unnamed, files):
    write_npz(unnamed, files / "unnamed.npz")
    assert printed("evaluate", saved, "unnamed.npz") == printed("evaluate", saved, "task.npz")


def test_noisy_labels(run, printed, refused, saved, files):
    run("noise", "inject", "task.npz", "--rho-pos", 0.2, "--rho-neg", 0.1, "--out", "noisy.npz")
    arguments = ("evaluate", saved, "noisy.npz", "--noise", "noisy.rates.json")
    if not CORRECTED:
        assert "no estimates for noisy labels" in refused(*arguments)
        return
    found, clean = printed(*arguments)["metrics"], printed("evaluate", saved, "task.npz")["metrics"]
    assert list(found) == CORRECTED
    estimate = found["hamming_loss"]
    assert abs(estimate["value"] - clean["hamming_loss"]) < 5 * estimate["se"]
    assert "estimated for clean labels" in run(*arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nolabels.csv"], "labels names 'sea', 'sky', 'sun', but there is no such column"),
        (["nolabels.npz"], "Y"),
        (["task.csv", "--labels", "sea,sky"], "3 labels, of which 1 are not there: 'sun'"),
        (["two.npz"], "the model was fitted on 3 labels; there are 2 here"),
        (["weak.npz"], "Y holds NaN"),
        (["task.npz", "--noise", "none.json"], "there is no file none.json"),
        (["none.csv"], "there is no file none.csv"),
    ],
)
def test_refuses(refused, saved, task, files, arguments, message):
    write_csv(replace(task, Y=task.Y[:, :0], label_names=None), files / "nolabels.csv")
    np.savez(files / "nolabels.npz", X=task.X)
    write_npz(replace(task, Y=task.Y[:, :2], label_names=None), files / "two.npz")
    Y = task.Y.astype(np.float32)
    Y[5, 1] = np.nan
    write_npz(replace(task, Y=Y), files / "weak.npz")
    assert message in refused("evaluate", saved, *arguments)
