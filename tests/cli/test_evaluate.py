from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ccmn.data import write_csv, write_npz
from ccmn.estimation import NoiseRates
from ccmn.metrics import METRICS
from ccmn.models import load_model
from ccmn.noise import ClassConditionalNoise
from report.pages.checks import check_page


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
    found, clean = printed(*arguments)["metrics"], printed("evaluate", saved, "task.npz")["metrics"]
    assert list(found) == list(METRICS)
    assert {estimate["status"] for estimate in found.values()} == {"unbiased", "consistent"}
    for name, estimate in found.items():
        assert abs(estimate["value"] - clean[name]) < 5 * estimate["se"] + (0.02 if name == "ranking_loss" else 0)
    assert "estimated for clean labels" in run(*arguments).stdout


def test_rates_of_labels_that_are_clean_are_doubted(run, saved, task, files):
    predicted = replace(task, Y=(load_model(saved).decision_function(task.X) >= 0).astype(np.uint8))
    write_npz(predicted, files / "right.npz")
    (files / "much.json").write_text(json.dumps(ClassConditionalNoise(0.2, 0.3, n_labels=3).to_dict()))
    assert "If they are clean, leave it out" in run("evaluate", saved, "right.npz", "--noise", "much.json").stderr
    assert run("evaluate", saved, "right.npz").stderr == ""


def test_estimated_rates_widen_the_errors(printed, refused, run, saved, task, files):
    """By name, in whatever order they stand in the file."""
    noise = ClassConditionalNoise([0.2, 0.1, 0.0], [0.1, 0.0, 0.3], label_names=["sun", "sea", "sky"])
    known = NoiseRates.known(noise, task.Y)
    some = replace(known, se_pos=[0.1, 0.0, 0.0], kind=("point", "known", "known"))
    for name, content in (("known", noise), ("sure", known), ("unsure", some)):
        (files / f"{name}.json").write_text(json.dumps(content.to_dict()))
    exact, sure, unsure = (
        printed("evaluate", saved, "task.csv", "--noise", f"{name}.json") for name in ("known", "sure", "unsure")
    )
    assert sure["metrics"] == exact["metrics"]
    assert unsure["noise"]["se_pos"] == [0.0, 0.0, 0.1]
    assert unsure["metrics"]["hamming_loss"]["value"] == exact["metrics"]["hamming_loss"]["value"]
    assert unsure["metrics"]["hamming_loss"]["se"] > 1.01 * exact["metrics"]["hamming_loss"]["se"]
    assert unsure["metrics"]["hamming_loss"]["status"] == "consistent"
    assert "consistent" in run("evaluate", saved, "task.csv", "--noise", "unsure.json").stdout
    other = replace(known, label_names=("sun", "sea", "fog"))
    (files / "other.json").write_text(json.dumps(other.to_dict()))
    assert "there are none for 'sky'" in refused("evaluate", saved, "task.csv", "--noise", "other.json")
    (files / "broken.json").write_text(json.dumps({**known.to_dict(), "extra": 1}))
    assert "broken.json" in refused("evaluate", saved, "task.csv", "--noise", "broken.json")


def test_labels_not_observed_are_left_out_where_noise_is_declared(printed, saved, task, files):
    Y = task.Y.astype(np.float32)
    Y[5, 1] = np.nan
    write_npz(replace(task, Y=Y), files / "weak.npz")
    (files / "none.json").write_text(json.dumps(ClassConditionalNoise(0.0, 0.0, n_labels=3).to_dict()))
    found = printed("evaluate", saved, "weak.npz", "--noise", "none.json")["metrics"]
    scores = load_model(saved).decision_function(task.X)
    assert found["hamming_loss"]["value"] == pytest.approx(((scores >= 0) != Y)[~np.isnan(Y)].mean())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nolabels.csv"], "there is no label column 'sea', 'sky', 'sun'; the columns are"),
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


def test_report(run, printed, refused, saved, files):
    run("noise", "inject", "task.npz", "--rho-pos", 0.2, "--rho-neg", 0.1, "--out", "noisy.npz")
    arguments = ("evaluate", saved, "noisy.npz", "--noise", "noisy.rates.json", "--report", "model.html")
    found = printed(*arguments)
    assert found["report"] == "model.html"
    reader = check_page((files / "model.html").read_text())
    assert reader.counts["h2"] == 7
    value = found["metrics"]["hamming_loss"]
    assert f"{value['value']:.4f} ± {value['se']:.4f}, unbiased" in reader.text
    assert "model.html is there already" in refused(*arguments)
    assert "the report is in model.html" in run(*arguments, "--force").stdout


def test_report_on_labels_as_they_are(printed, saved, files):
    found = printed("evaluate", saved, "task.csv", "--report", "model.html")
    reader = check_page((files / "model.html").read_text())
    assert reader.counts["h2"] == 6  # no suspicious labels, where none is said to be wrong
    assert f"{found['metrics']['hamming_loss']:.4f}" in reader.text


def test_report_of_labels_not_observed(run, saved, task, files):
    Y = task.Y.astype(np.float32)
    Y[5, 1] = np.nan
    write_npz(replace(task, Y=Y), files / "weak.npz")
    (files / "none.json").write_text(json.dumps(ClassConditionalNoise(0.0, 0.0, n_labels=3).to_dict()))
    run("evaluate", saved, "weak.npz", "--noise", "none.json", "--report", "weak.html")
    reader = check_page((files / "weak.html").read_text())
    assert "of the labels observed" in reader.text
    assert "No label is probably wrong." in reader.text


def test_a_file_of_noise_estimate_keeps_its_standard_errors(tmp_path):
    from ccmn.cli.rates import rates_for, read_estimate, write_rates

    noise = ClassConditionalNoise([0.1, 0.2], [0.3, 0.1], label_names=["sea", "sky"])
    rates = replace(NoiseRates.known(noise, np.ones((4, 2))), se_pos=np.array([0.05, 0.02]))
    write_rates(rates, tmp_path / "rates.json")
    found = rates_for(read_estimate(tmp_path / "rates.json"), ["sky", "sea"], 2)
    np.testing.assert_allclose(found.se_pos, [0.02, 0.05])
    np.testing.assert_allclose(found.rho_neg, [0.1, 0.3])
