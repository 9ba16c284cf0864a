import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ccmn import ClassConditionalNoise, control_risk
from ccmn.data import write_file
from ccmn.models import load_model


def test_predictions_equal_those_of_the_model(run, task, saved, files):
    text = run("predict", saved, "task.csv", "--out", "predictions.csv").stdout
    assert text == "predictions.csv: 300 rows\n"
    table, model = pd.read_csv("predictions.csv"), load_model(saved)
    assert list(table) == ["row", "sea", "sky", "sun", "p(sea)", "p(sky)", "p(sun)"]
    assert_array_equal(table[["sea", "sky", "sun"]], model.predict(task.X))
    assert_allclose(table[["p(sea)", "p(sky)", "p(sun)"]], model.predict_proba(task.X), rtol=1e-5)
    assert (table[["sea", "sky", "sun"]].to_numpy() == task.Y).mean() > 0.9


def test_tables_are_predicted_without_torch_and_scikit_learn(run, files):
    """Their imports would take most of the time of a prediction."""
    run("fit", "task.csv", "--labels", "sea,sky,sun", "--noise", "none", "--out", "model.ccmn")
    code = """
import sys
sys.argv = ["ccmn", "predict", "model.ccmn", "task.csv", "--out", "p.csv"]
from ccmn.app.cli import main
try:
    main()
except SystemExit:
    print(sorted({"torch", "sklearn"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["p.csv: 300 rows", "[]"]


def test_top(run, saved, task, files):
    run("predict", saved, "task.npz", "--top", 2, "--out", "top.csv")
    table, p = pd.read_csv("top.csv"), load_model(saved).predict_proba(task.X)
    assert list(table) == ["row", "rank", "label", "probability", "predicted"]
    assert len(table) == 600
    first = table[table["rank"] == 1]
    assert_allclose(first["probability"], p.max(1), rtol=1e-5)
    assert [task.label_names[j] for j in p.argmax(1)] == first["label"].tolist()
    assert ((first["probability"] >= 0.5) == (first["predicted"] == 1)).all()


def test_json(printed, saved, files):
    found = printed("predict", saved, "task.npz", "--top", 1)
    assert found["labels"] == ["sea", "sky", "sun"]
    assert found["cut"] == 0.5
    assert len(found["rows"][7]["probability"]) == 1
    whole = printed("predict", saved, "task.npz")["rows"][7]
    assert [name for name, p in whole["probability"].items() if p >= 0.5] == whole["predicted"]
    assert printed("predict", saved, "task.npz", "--out", "p.csv") == {"out": "p.csv", "rows": 300}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("new.csv", "length,width,depth\n1,2,3\n", "4 features, of which 1 are missing: 'age'"),
        ("new.csv", "length,width,depth,age\n1,2,,4\n", "new.csv: 1 feature values are missing"),
        ("new.svm", "0 9:1\n", "the model was fitted on 4 features; got 9"),
    ],
)
def test_data_errors(rejected, saved, files, name, text, message):
    (files / name).write_text(text)
    assert message in rejected("predict", saved, f"./{name}")


@pytest.mark.parametrize("options", [(), ("--top", 2), ("--json",)])
def test_prediction_in_blocks(run, saved, files, monkeypatch, options):
    whole = run("predict", saved, "task.npz", *options).stdout
    monkeypatch.setattr("ccmn.app.cli.predict_command.BLOCK_ENTRIES", 3 * 7)
    assert run("predict", saved, "task.npz", *options).stdout == whole


@pytest.fixture
def calibration(task, files):
    """Rows with noisy labels, calibration.npz, and the rates of the noise, rates.json."""
    noise = ClassConditionalNoise(0.2, 0.1, n_labels=3, label_names=task.label_names)
    X = np.random.default_rng(1).normal(size=(1500, 4)).astype(np.float32)
    Y = (X[:, :3] > 0.3).astype(np.uint8)
    noisy = noise.corrupt(Y, random_state=0)
    write_file(replace(task, X=X, Y=noisy), files / "calibration.npz")
    (files / "rates.json").write_text(json.dumps(noise.to_dict()))
    return X, noisy, noise


def test_control(run, printed, saved, task, calibration):
    X, noisy, noise = calibration
    options = ("--control", "recall=0.9", "--calibration", "calibration.npz", "--noise", "rates.json")
    model = load_model(saved)
    expected = control_risk(noisy, model.predict_proba(X), noise, "recall", 0.9, 0.8)
    result = run("predict", saved, "task.npz", *options, "--confidence", 0.8, "--out", "predictions.csv")
    assert result.stderr.endswith(f"ccmn: note: {expected}\n")
    table = pd.read_csv("predictions.csv")
    assert_array_equal(table[["sea", "sky", "sun"]], model.predict_proba(task.X) >= expected.threshold)
    found = printed("predict", saved, "task.npz", *options)
    assert found["cut"] == found["control"]["threshold"]
    assert found["control"]["guaranteed"]
    assert [name for name, p in found["rows"][7]["probability"].items() if p >= found["cut"]] == found["rows"][7][
        "predicted"
    ]


def test_control_without_guarantee(rejected, saved, task, files):
    write_file(replace(task, X=task.X[:10], Y=task.Y[:10]), files / "few.npz")
    message = rejected("predict", saved, "task.npz", "--control", "recall=0.99", "--calibration", "few.npz")
    assert "recall >= 0.99 cannot be guaranteed with confidence 0.9 from 10 rows" in message
    assert "rows are needed" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--control", "recall=0.9"),
            "--control requires --calibration, a file of labeled rows. See: ccmn predict --help",
        ),
        (("--calibration", "task.npz"), "require --control"),
        (("--noise", "rates.json"), "require --control"),
        (("--tags", "tags"), "require --control"),
        (("--confidence", "0.8"), "require --control"),
        (("--control", "recall", "--calibration", "task.npz"), "got 'recall'"),
        (("--control", "recall=1.5", "--calibration", "task.npz"), "got 'recall=1.5'"),
        (("--confidence", "1"), "--confidence"),
    ],
)
def test_control_usage_errors(rejected, saved, files, options, message):
    assert message in rejected("predict", saved, "task.npz", *options, code=2)
