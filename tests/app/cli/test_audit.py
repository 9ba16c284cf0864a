from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from app.report.checks import check_page
from ccmn import estimate_noise
from ccmn.app.cli.noise_commands import read_rates
from ccmn.audit import audit_labels
from ccmn.data import MultiLabelData, read_npz, write_csv, write_npz


@pytest.fixture
def noisy(run, files):
    """Task with noisy labels, and their rates in noisy.rates.json."""
    run("noise", "inject", "task.npz", "--rho-pos", 0.1, "--rho-neg", 0.2, "--out", "noisy.npz")
    return read_npz("noisy.npz")


def test_known_rates(printed, task, noisy, files):
    found = printed(
        "audit", "noisy.npz", "--noise", "noisy.rates.json", "--top", 5, "--out", "issues.csv", "--random-state", 1
    )
    expected = audit_labels(noisy.X, noisy.Y, read_rates(files / "noisy.rates.json"), random_state=1)
    written = pd.read_csv("issues.csv")
    assert list(written) == ["row", "label", "given", "p_wrong", "suggested"]
    assert found["found"] == len(written) == len(expected.issues)
    for name in ("row", "label", "given", "suggested"):
        assert written[name].tolist() == expected.issues[name].tolist()
    assert_allclose(written.p_wrong, expected.issues.p_wrong, rtol=1e-5)
    assert [line["row"] for line in found["issues"]] == written.row.head(5).tolist()
    assert found["noise"] == json.loads((files / "noisy.rates.json").read_text())
    assert [line["label"] for line in found["summary"]] == ["sea", "sky", "sun"]
    flipped = (task.Y != noisy.Y)[written.row, [task.label_names.index(name) for name in written.label]]
    assert flipped.mean() > 0.7


def test_suggested_sets_agree_with_the_issues(printed, noisy):
    found = printed("audit", "noisy.npz", "--noise", "noisy.rates.json", "--top", 1000)
    flipped = {}
    for issue in found["issues"]:
        flipped.setdefault(issue["row"], set()).add(issue["label"])
    assert [line["row"] for line in found["rows"]] == list(flipped)
    for line in found["rows"]:
        assert set(line["given"]) ^ set(line["suggested"]) == flipped[line["row"]]


def test_printed_tables(run, noisy):
    result = run("audit", "noisy.npz", "--noise", "partial", "--top", 3, "--out", "issues.csv")
    for word in ("number of wrong labels", "first 3 of", "p_wrong", "suggested", "issues.csv: "):
        assert word in result.stdout


def test_annotators(run, printed, rejected, task, noisy, files):
    rows = np.arange(0, 120)
    fields = {"Y": task.Y[rows].astype(np.float32), "random": rows < 100, "label_names": np.array(task.label_names)}
    np.savez(files / "trusted.npz", rows=rows, **fields)
    table = pd.DataFrame(noisy.X, columns=[f"x{j}" for j in range(noisy.d)])
    table["who"] = np.random.default_rng(0).choice(["ann", "bob"], noisy.n)
    table[list(task.label_names)] = noisy.Y.astype(int)
    table.to_csv(files / "table.csv", index=False)
    arguments = ["audit", "table.csv", "--labels", "s*", "--min-p-wrong", 0, "--top", 900, "--annotator", "who"]
    found = printed(*arguments, "--trusted", "trusted.npz")
    rates = estimate_noise(noisy.X, noisy.Y, trusted=(rows[:100], task.Y[:100]))
    known = {"trusted": (rows, task.Y[rows]), "annotators": table["who"]}
    expected = audit_labels(noisy.X, noisy.Y, rates, 0, **known).issues
    p_wrong = [line["p_wrong"] for line in found["issues"]]
    assert_allclose(p_wrong, expected.p_wrong.head(900), rtol=0.05)
    assert "--ignore who" in run(*arguments, "--trusted", "trusted.npz").stderr
    assert "no effect without verified rows" in rejected(*arguments)
    assert "with --votes" in rejected(*arguments, "--votes", "a,b,c")
    assert "has no column 'nobody'" in rejected(*arguments[:-1], "nobody", "--trusted", "trusted.npz")
    assert "--annotator requires a table" in rejected(
        "audit", "noisy.npz", "--annotator", "who", "--trusted", "trusted.npz"
    )


def test_verified_rows(printed, task, noisy, files):
    rows = np.arange(0, 120)
    fields = {"Y": task.Y[rows].astype(np.float32), "random": rows < 100, "label_names": np.array(task.label_names)}
    np.savez(files / "trusted.npz", rows=rows, **fields)
    arguments = ("audit", "noisy.npz", "--trusted", "trusted.npz", "--min-p-wrong", 0, "--top", 900)
    found = printed(*arguments, "--noise", "noisy.rates.json")
    rates = read_rates(files / "noisy.rates.json")
    expected = audit_labels(noisy.X, noisy.Y, rates, 0, trusted=(rows, task.Y[rows])).issues
    assert [issue["row"] for issue in found["issues"]] == expected.row.tolist()
    diverse = printed(*arguments, "--noise", "noisy.rates.json", "--diverse")
    assert [issue["row"] for issue in diverse["issues"]] != expected.row.tolist()
    estimates = printed(*arguments, "--noise", "partial")["noise"]["estimate"]
    assert estimates["se_neg"] < printed("audit", "noisy.npz", "--noise", "partial")["noise"]["estimate"]["se_neg"]


def test_hint_without_issues(run, files):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)).astype(np.float32)
    write_npz(MultiLabelData(X, (X + 0.3 * rng.normal(size=X.shape) > 1).astype(np.int8)), files / "clean.npz")
    assert "--min-p-wrong 0" in " ".join(run("audit", "clean.npz").stdout.split())


def test_no_issues(run, printed, files):
    rates = {"kind": "class_conditional", "rho_pos": [0, 0, 0], "rho_neg": [0, 0, 0]}
    (files / "rates.json").write_text(json.dumps(rates))
    assert "no label issues found" in run("audit", "task.npz", "--noise", "rates.json").stdout
    found = printed("audit", "task.npz", "--noise", "rates.json", "--out", "issues.csv")
    assert (found["found"], found["issues"], found["rows"]) == (0, [], [])
    assert (files / "issues.csv").read_text() == "row,label,given,p_wrong,suggested\n"


def test_estimated_rates_from_a_file_give_the_same_issues(printed, noisy):
    here = printed("audit", "noisy.npz", "--noise", "partial", "--min-p-wrong", 0.7)
    rates = {key: here["noise"][key] for key in ("kind", "rho_neg", "estimate", "label_names")}
    with open("rates.json", "w") as stream:
        json.dump(rates, stream)
    there = printed("audit", "noisy.npz", "--noise", "rates.json", "--min-p-wrong", 0.7)
    assert there["issues"] == here["issues"]
    assert there["summary"] == here["summary"]
    assert all(issue["p_wrong"] >= 0.7 and issue["given"] == 1 for issue in here["issues"])


def test_rates_are_matched_by_name(printed, task, noisy, files):
    rates = json.loads((files / "noisy.rates.json").read_text())
    reordered = {**rates, "rho_pos": [0.0, 0.1, 0.2], "label_names": ["sun", "sky", "sea"]}
    (files / "reordered.json").write_text(json.dumps(reordered))
    assert printed("audit", "noisy.npz", "--noise", "reordered.json")["noise"]["rho_pos"] == [0.2, 0.1, 0.0]


def test_formats_candidates_and_unobserved_labels(printed, task, noisy, files):
    expected = printed("audit", "noisy.npz", "--noise", "noisy.rates.json")
    write_csv(noisy, files / "noisy.csv")
    same = printed("audit", "noisy.csv", "--labels", "sea,sky,sun", "--noise", "noisy.rates.json")
    assert same["issues"] == expected["issues"]
    write_npz(MultiLabelData(task.X, task.Y, candidates=noisy.Y, label_names=task.label_names), files / "both.npz")
    assert printed("audit", "both.npz", "--candidates", "--noise", "noisy.rates.json")["issues"] == expected["issues"]
    Y = noisy.Y.astype(np.float32)
    Y[:100] = np.nan
    write_npz(MultiLabelData(task.X, Y), files / "weak.npz")
    weak = printed("audit", "weak.npz", "--noise", "noisy.rates.json", "--top", 900, "--min-p-wrong", 0)
    assert weak["found"] == 600
    assert min(issue["row"] for issue in weak["issues"]) >= 100


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["task.npz", "--noise", "none"], 2, "--noise must be estimate, partial, missing or a JSON file"),
        (["task.npz", "--noise", "none.json"], 1, "there is no file none.json"),
        (["task.npz", "--trusted", "none.npz"], 1, "there is no file none.npz"),
        (["task.npz", "--trusted", "task.npz"], 1, "not a file of verified rows"),
        (["task.npz", "--min-p-wrong", 1.5], 2, "--min-p-wrong"),
        (["task.npz", "--top", 0], 2, "--top"),
        (["task.npz", "--candidates"], 1, "no candidate sets"),
        (["task.npz", "--out", "task.csv"], 1, "task.csv already exists"),
        (["task.npz", "--noise", "two.json"], 1, "rates of 3 labels; got rates of 2 labels"),
        (["task.npz", "--noise", "classes.json"], 1, "got TransitionNoise"),
    ],
)
def test_errors(rejected, files, arguments, code, message):
    (files / "two.json").write_text('{"kind": "partial", "rho_neg": [0.1, 0.1]}')
    (files / "classes.json").write_text('{"kind": "transition", "T": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}')
    assert message in rejected("audit", *arguments, code=code)


def test_failed_write_leaves_no_file(rejected, noisy, files, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    arguments = ("audit", "noisy.npz", "--noise", "noisy.rates.json", "--out", "issues.csv")
    assert "no space left" in rejected(*arguments)
    assert not [path for path in files.iterdir() if "issues" in path.name]


def test_report(run, printed, rejected, noisy, files):
    arguments = ("audit", "noisy.npz", "--noise", "noisy.rates.json", "--top", 4, "--report", "audit.html")
    found = printed(*arguments)
    assert found["report"] == "audit.html"
    text = check_page((files / "audit.html").read_text()).text
    assert {"sea", "sky", "sun"} <= set(text)
    assert any(f"row {found['issues'][0]['row']};" in part for part in text)
    assert "length" in text  # names of the informative features
    assert "audit.html already exists" in rejected(*arguments)
    assert "report written to audit.html" in run(*arguments, "--force").stdout
    assert any("review noisy.npz --noise noisy.rates.json --port 8765" in part for part in text)
    assert "report" not in printed(*arguments[:-2])


def test_report_of_pictures(run, rejected, noisy, files):
    arguments = ("audit", "noisy.npz", "--noise", "noisy.rates.json", "--report", "audit.html", "--picture")
    run(*arguments, "2x2")
    assert check_page((files / "audit.html").read_text()).counts["img"] == 20
    assert "no pictures of 3 x 2 pixels" in rejected(*arguments, "3x2", "--force")
    assert "HEIGHTxWIDTH" in rejected(*arguments, "big", "--force", code=2)


def test_report_of_texts(run, files):
    texts = ("<b>sea</b> side", "blue sky", "sea and sky", "rain") * 40
    rows = [f"{text},{int('sea' in text)},{int('sky' in text)}" for text in texts]
    (files / "texts.csv").write_text("\n".join(["words,sea,sky", *rows]))
    rates = {"kind": "class_conditional", "rho_pos": [0.1, 0.1], "rho_neg": [0.1, 0.1]}
    (files / "rates.json").write_text(json.dumps(rates))
    arguments = ("--labels", "sea,sky", "--text", "words", "--noise", "rates.json", "--min-p-wrong", 0)
    run("audit", "texts.csv", *arguments, "--top", 320, "--report", "audit.html")
    assert {"<b>sea</b> side", "blue sky", "rain"} <= set(check_page((files / "audit.html").read_text()).text)


def test_most_suspicious_labels_are_listed_if_none_is_probably_wrong(run, printed, rejected, files):
    """Without evidence for the noise model the probabilities stay low, but wrong labels are still found."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    true = X[:, :2] > 0
    noisy = true ^ (rng.random(true.shape) < 0.1)
    table = pd.DataFrame(np.column_stack([X, noisy]), columns=["a", "b", "c", "d", "sea", "sky"])
    table.insert(0, "name", [f"N{i}" for i in range(300)])
    table.to_csv("table.csv", index=False)
    arguments = ("audit", "table.csv", "--labels", "sea,sky", "--id", "name", "--report", "audit.html", "--force")
    found = printed(*arguments)
    assert found["min_p_wrong"] == 0
    wrong = {(int(row), ("sea", "sky")[label]) for row, label in np.argwhere(true != noisy)}
    listed = [(issue["row"], issue["label"]) for issue in found["issues"]]
    assert len(listed) == 20
    assert sum(pair in wrong for pair in listed) >= 18
    assert 0.5 * len(wrong) < found["found"] < 2 * len(wrong)
    result = run(*arguments)
    assert "No error probability reaches 0.5" in result.stdout
    assert f"N{listed[0][0]}" in result.stdout
    assert "No error probability reaches 0.5" in (files / "audit.html").read_text()
    assert printed(*arguments, "--min-p-wrong", 0.5)["found"] == 0


def test_names_that_look_like_formulas_are_written_unchanged(printed, noisy, files):
    """They still match the labels of the data; the documentation describes how to open such files."""
    names = ["=1+1", "@sky", '-"sun", +1']
    write_npz(replace(noisy, label_names=names), files / "formulas.npz")
    printed("audit", "formulas.npz", "--noise", "partial", "--min-p-wrong", 0, "--out", "issues.csv")
    assert set(pd.read_csv("issues.csv").label) == set(names)
    write_csv(replace(noisy, label_names=names), files / "formulas.csv")
    assert list(pd.read_csv("formulas.csv"))[-3:] == names
