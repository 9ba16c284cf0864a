"""Failures of files and of the machine are reported in one line that names the file."""

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
        ("data", "convert", "task.npz", "--out"),
        ("noise", "inject", "task.npz", "--partial", 0.1, "--out"),
        ("noise", "estimate", "task.npz", "--out"),
    ],
    ids=lambda command: " ".join(map(str, command[:2])),
)
def test_folders_are_not_overwritten(refused, saved, files, command):
    (files / "folder.csv").mkdir()
    typed = [saved if word == "MODEL" else word for word in command]
    assert "folder.csv is a folder" in refused(*typed, "folder.csv", "--force")
    assert (files / "folder.csv").is_dir()


def test_noise_requires_observed_labels(refused, task, files):
    write_npz(MultiLabelData(task.X, np.full((task.n, 2), np.nan)), files / "unknown.npz")
    message = refused("noise", "inject", "unknown.npz", "--partial", 0.1, "--out", "noisy.npz")
    assert "unknown.npz contains no observed labels" in message


def test_label_names_must_be_a_list(refused, files):
    rates = {"kind": "class_conditional", "rho_pos": [0.1], "rho_neg": [0.1], "label_names": 5}
    (files / "rates.json").write_text(json.dumps(rates))
    assert "rates.json: label_names must give one name per label (1); got 5" in refused("noise", "show", "rates.json")


def test_store_without_results(refused, files):
    (files / "empty.db").touch()
    assert "empty.db contains no results" in refused("report", "empty.db")
