import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from app.report.checks import check_page
from ccmn.data import write_file
from ccmn.estimation import NoiseRates
from ccmn.metrics import METRICS
from ccmn.models import load_model
from ccmn.noise import ClassConditionalNoise

RANK_METRICS = ("ranking_loss", "average_precision", "one_error", "coverage")


@pytest.fixture
def fresh(task, files):
    """Held-out rows, as fresh.csv and fresh.npz."""
    X = np.random.default_rng(1).normal(size=task.X.shape).astype(np.float32)
    data = replace(task, X=X, Y=(X[:, :3] > 0.3).astype(np.uint8), name="fresh")
    write_file(data, files / "fresh.npz")
    write_file(data, files / "fresh.csv")
    return data


def test_all_metrics(run, printed, saved, task, files):
    found = printed("evaluate", saved, "task.csv")
    assert (found["n"], found["q"], found["noise"]) == (300, 3, None)
    assert list(found["metrics"]) == sorted(METRICS, key=lambda name: name != "mean_average_precision")
    scores, labeled = load_model(saved).decision_function(task.X), task.Y.any(1)
    assert found["metrics"]["hamming_loss"] == pytest.approx(((scores >= 0) != task.Y).mean())
    averages = [average_precision_score(y, s) for y, s in zip(task.Y.T, scores.T)]
    assert found["metrics"]["mean_average_precision"] == pytest.approx(np.mean(averages))
    for name in RANK_METRICS:
        assert found["metrics"][name] == pytest.approx(METRICS[name].function(task.Y[labeled], scores[labeled]))
    table = run("evaluate", saved, "task.npz").stdout
    assert f"the {labeled.sum()} rows with a label" in " ".join(table.split())
    assert "Hamming loss ↓" in table
    assert "micro F1 ↑" in table


def test_noisy_labels(run, printed, rejected, saved, fresh, files):
    run("noise", "inject", "fresh.npz", "--rho-pos", 0.2, "--rho-neg", 0.1, "--out", "noisy.npz")
    arguments = ("evaluate", saved, "noisy.npz", "--noise", "noisy.rates.json")
    found, clean = printed(*arguments)["metrics"], printed("evaluate", saved, "fresh.npz")["metrics"]
    assert list(found) == sorted(METRICS, key=lambda name: name != "mean_average_precision")
    assert {estimate["status"] for estimate in found.values()} == {"unbiased", "consistent"}
    for name, estimate in found.items():
        if estimate["se"] is not None and name not in RANK_METRICS:  # clean ranks: rows with a label
            assert abs(estimate["value"] - clean[name]) < 5 * estimate["se"]
    assert "estimated for" in run(*arguments).stdout


def test_values_outside_the_range_are_marked(run, printed, saved, task, files):
    predicted = replace(task, Y=(load_model(saved).decision_function(task.X) >= 0).astype(np.uint8))
    write_file(predicted, files / "right.npz")
    (files / "much.json").write_text(json.dumps(ClassConditionalNoise(0.2, 0.3, n_labels=3).to_dict()))
    arguments = ("evaluate", saved, "right.npz", "--noise", "much.json")
    found = printed(*arguments)["metrics"]
    for name, estimate in found.items():
        low, high = estimate["bounds"]
        assert (low, high) == (0, 3 if name == "coverage" else 1)
        value = estimate["value"]
        assert estimate["out_of_range"] == (value is not None and not low - 1e-9 <= value <= high + 1e-9)
    value = found["hamming_loss"]["value"]
    assert value < 0
    output = run(*arguments, "--report", "model.html").stdout
    assert f"{value:.3f}*" in output
    assert "* outside [0, 1]: " in output
    text = " ".join(check_page((files / "model.html").read_text()).text)
    assert f"{value:.3f}* ±" in text
    assert "* outside [0, 1]: " in text
    assert "drawn at the end of this range" in text
    clean = run("evaluate", saved, "task.npz").stdout
    assert "outside" not in clean
    write_file(replace(task, Y=np.zeros_like(task.Y)), files / "none.npz")
    run("evaluate", saved, "none.npz", "--report", "none.html")
    assert "nan" not in " ".join(check_page((files / "none.html").read_text()).text)


def test_estimated_rates_widen_the_errors(printed, rejected, run, saved, fresh, files):
    noise = ClassConditionalNoise([0.2, 0.1, 0.0], [0.1, 0.0, 0.3], label_names=["sun", "sea", "sky"])
    known = NoiseRates.known(noise, fresh.Y)
    some = replace(known, se_pos=[0.1, 0.0, 0.0])
    for name, content in (("known", noise), ("sure", known), ("unsure", some)):
        (files / f"{name}.json").write_text(json.dumps(content.to_dict()))
    exact, sure, unsure = (
        printed("evaluate", saved, "fresh.csv", "--noise", f"{name}.json") for name in ("known", "sure", "unsure")
    )
    assert sure["metrics"] == exact["metrics"]
    assert unsure["noise"]["se_pos"] == [0.0, 0.0, 0.1]
    assert unsure["metrics"]["hamming_loss"]["value"] == exact["metrics"]["hamming_loss"]["value"]
    assert unsure["metrics"]["hamming_loss"]["se"] > 1.01 * exact["metrics"]["hamming_loss"]["se"]
    assert unsure["metrics"]["hamming_loss"]["status"] == "approximate"
    shown = run("evaluate", saved, "fresh.csv", "--noise", "unsure.json").stdout
    assert "approximate" in shown
    assert "±: standard" in shown
    for word in ("missing", "none"):  # the values of ccmn fit --noise
        line = rejected("evaluate", saved, "fresh.csv", "--noise", word, code=2)
        assert "--noise must be a JSON file of noise rates" in line
        assert f"got '{word}'" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nolabels.csv"], "there are no label columns 'sea', 'sky', 'sun'; the columns are"),
        (["nolabels.npz"], "fitted on 3 labels; got 0"),
        (["task.csv", "--labels", "sea,sky"], "3 labels, of which 1 are missing: 'sun'"),
        (["weak.npz"], "no row has all labels observed"),
    ],
)
def test_errors(rejected, saved, task, files, arguments, message):
    write_file(replace(task, Y=task.Y[:, :0], label_names=None), files / "nolabels.csv")
    np.savez(files / "nolabels.npz", X=task.X)
    Y = task.Y.astype(np.float32)
    Y[:, 1] = np.nan
    write_file(replace(task, Y=Y), files / "weak.npz")
    assert message in rejected("evaluate", saved, *arguments)


def test_rows_with_unobserved_labels_are_left_out_without_noise(run, printed, saved, task, files):
    """Metrics on the labels as given need all labels of a row."""
    Y = task.Y.astype(np.float32)
    Y[::3, 1] = np.nan
    write_file(replace(task, Y=Y), files / "some.npz")
    write_file(task.take(np.arange(300) % 3 > 0), files / "complete.npz")
    result = run("evaluate", saved, "some.npz")
    assert "100 of 300 rows with missing labels are left out" in result.stderr
    assert printed("evaluate", saved, "some.npz")["metrics"] == printed("evaluate", saved, "complete.npz")["metrics"]


def test_repeated_rows_are_counted(run, printed, saved, task, files):
    twice = replace(task, X=np.concatenate([task.X, task.X[:30]]), Y=np.concatenate([task.Y, task.Y[:30]]))
    write_file(twice, files / "twice.npz")
    assert printed("evaluate", saved, "twice.npz")["duplicates"] == 30
    assert "30 of 330 rows repeat an earlier row" in run("evaluate", saved, "twice.npz").stdout
    assert "repeat" not in run("evaluate", saved, "task.npz").stdout
