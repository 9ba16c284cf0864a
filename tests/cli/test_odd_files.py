"""Files and places that are not what a command expects: one line, which says so."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ccmn.data import MultiLabelData, write_npz


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "MODEL", "task.csv", "--out"),
        ("evaluate", "MODEL", "task.csv", "--report"),
        ("audit", "task.npz", "--out"),
        ("data", "import", "task.npz", "--out"),
        ("noise", "inject", "task.npz", "--partial", 0.1, "--out"),
        ("noise", "estimate", "task.npz", "--out"),
    ],
    ids=lambda command: " ".join(map(str, command[:2])),
)
def test_a_folder_never_makes_way_for_a_file(refused, saved, files, command):
    (files / "folder.csv").mkdir()
    typed = [saved if word == "MODEL" else word for word in command]
    assert "folder.csv is a folder; name a file to write" in refused(*typed, "folder.csv", "--force")
    assert (files / "folder.csv").is_dir()


def test_noise_needs_labels_that_were_observed(refused, task, files):
    write_npz(MultiLabelData(task.X, np.full((task.n, 2), np.nan)), files / "unknown.npz")
    message = refused("noise", "inject", "unknown.npz", "--partial", 0.1, "--out", "noisy.npz")
    assert "there are no labels in these data to put noise into" in message


def test_names_that_are_none(refused, files):
    rates = {"kind": "class_conditional", "rho_pos": [0.1], "rho_neg": [0.1], "label_names": 5}
    (files / "rates.json").write_text(json.dumps(rates))
    assert "rates.json: label_names must give one name per label (1); got 5" in refused("noise", "show", "rates.json")


def test_a_store_without_results(refused, files):
    (files / "empty.db").touch()
    assert "empty.db holds no results yet" in refused("report", "empty.db")
