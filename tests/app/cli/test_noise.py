import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ccmn.data import MultiLabelData, read_file, write_file
from ccmn.noise import ClassConditionalNoise, NoiseModel


def test_inject_writes_data_rates_and_counts(printed, task, files):
    found = printed("noise", "inject", "task.npz", "--rho-pos", 0.3, "--rho-neg", 0.1, "--out", "noisy.npz")
    noisy, noise = read_file("noisy.npz"), NoiseModel.from_dict(json.loads(Path("noisy.rates.json").read_text()))
    assert_array_equal(noisy.X, task.X)
    assert found["labels"] == 900
    assert found["lost"] == ((task.Y == 1) & (noisy.Y == 0)).sum()
    assert found["added"] == ((task.Y == 0) & (noisy.Y == 1)).sum()
    assert found["flipped"] == (task.Y != noisy.Y).sum() > 0
    assert noise == ClassConditionalNoise(0.3, 0.1, n_labels=3, label_names=task.label_names)


def test_inject_matches_rates_by_name(run, task, files):
    rates = {"kind": "class_conditional", "rho_pos": [1e-9, 0.9, 0], "rho_neg": [0, 0, 0.5]}
    (files / "rates.json").write_text(json.dumps({**rates, "label_names": ["sun", "sky", "sea"]}))
    run("noise", "inject", "task.npz", "--rates", "rates.json", "--out", "noisy.npz")
    flipped = (read_file("noisy.npz").Y != task.Y).mean(0)
    assert flipped[2] == 0
    assert (flipped[:2] > 0.1).all()
    assert json.loads(Path("noisy.rates.json").read_text())["rho_neg"] == [0.5, 0, 0]


def test_sparse_and_unobserved_labels(printed, task, files):
    Y = task.Y.astype(np.float32)
    Y[:10] = np.nan
    write_file(MultiLabelData(task.X, Y), files / "weak.npz")
    assert printed("noise", "inject", "weak.npz", "--rho-neg", 0.2, "--out", "noisy.npz")["labels"] == 870
    (files / "rows.svm").write_text("0,1 1:0.5\n1 2:1\n")
    found = printed("noise", "inject", "rows.svm", "--rho-pos", 0.5, "--out", "sparse.npz")
    noisy = read_file("sparse.npz").Y.toarray()
    assert found["labels"] == 4
    assert (found["lost"], found["added"]) == (3 - noisy.sum(), 0)
    assert noisy[1, 0] == 0


@pytest.fixture
def noisy(run, files):
    """Task with added labels, and their rates in noisy.rates.json."""
    run("noise", "inject", "task.npz", "--rho-neg", 0.3, "--out", "noisy.npz")
    return files


def test_every_command_accepts_estimated_rates(run, printed, noisy):
    found = printed("noise", "estimate", "noisy.npz", "--noise", "partial", "--out", "rates.json")
    assert json.loads((noisy / "rates.json").read_text()) == found
    assert found["kind"] == "partial"
    assert found["label_names"] == ["sea", "sky", "sun"]
    assert max(abs(rate - 0.3) for rate in found["rho_neg"]) < 0.15
    assert found["estimate"]["noise_type"] == ["partial"] * 3
    assert printed("noise", "show", "rates.json") == found
    fitted = printed("fit", "noisy.npz", "--noise", "rates.json", "--out", "model.ccmn")
    assert fitted["noise"]["rho_neg"] == found["rho_neg"]
    assert fitted["noise_is_estimated"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "rates.json: not JSON (line 1"),
        ('{"kind": "partial",\n"rho_neg": [0.1,}', "not JSON (line 2"),
        ("[" * 100_000, "not a description of noise"),
        ("{}", "description of"),
        ('{"kind": "partial", "rho_neg": [1.5]}', "between 0 and 1; got 1.5"),
        (f'{{"kind": "partial", "rho_neg": [1{"0" * 400}]}}', "rates.json: "),
    ],
    ids=range(6),
)
def test_show_errors(rejected, files, text, message):
    (files / "rates.json").write_text(text)
    assert message in rejected("noise", "show", "rates.json")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "Expected either --rates, or a positive --rho-pos or --rho-neg"),
        (["--rho-pos", 0.1, "--rates", "task.csv"], 2, "Expected either --rates"),
        (["--partial", 0.1], 2, "--partial does not exist: use --rho-neg RATE"),
        (["--rho-pos", 0.5, "--rho-neg", 0.5], 1, "must be below 1"),
        (["--rho-neg", 0.1, "--labels", 3], 1, "labels=3"),
    ],
)
def test_inject_errors(rejected, files, arguments, code, message):
    assert message in rejected("noise", "inject", "task.npz", *arguments, "--out", "noisy.npz", code=code)
    assert not (files / "noisy.npz").exists()
