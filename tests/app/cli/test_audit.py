import json
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from app.report.checks import check_page
from ccmn.audit import audit_labels, find_label_issues
from ccmn.data import read_file
from ccmn.noise import NoiseModel, PartialNoise


@pytest.fixture
def noisy(run, files):
    """Task with noisy labels, and their rates in noisy.rates.json."""
    run("noise", "inject", "task.npz", "--rho-pos", 0.1, "--rho-neg", 0.2, "--out", "noisy.npz")
    return read_file("noisy.npz")


def test_known_rates(printed, task, noisy, files):
    found = printed("audit", "noisy.npz", "--noise", "noisy.rates.json", "--top", 5, "--out", "issues.csv")
    noise, proba = (
        NoiseModel.from_dict(json.loads((files / "noisy.rates.json").read_text())),
        audit_labels(noisy.X, noisy.Y, PartialNoise([0.1] * 3)),
    )
    expected = find_label_issues(noisy.Y, proba.pred_proba, noise)
    written = pd.read_csv("issues.csv")
    assert list(written) == ["row", "label", "given", "suspicion", "p_wrong", "suggested"]
    assert found["probabilities"]
    assert found["found"] == len(written) == len(expected)
    for name in ("row", "label", "given", "suggested"):
        assert written[name].tolist() == expected[name].tolist()
    assert_allclose(written.p_wrong, expected.p_wrong, rtol=1e-5)
    assert [line["row"] for line in found["rows"]] == written.row.drop_duplicates().head(5).tolist()
    assert found["noise"] == json.loads((files / "noisy.rates.json").read_text())
    flipped = (task.Y != noisy.Y)[written.row, [task.label_names.index(name) for name in written.label]]
    assert flipped.mean() > 0.7


def test_without_declared_noise_rows_are_only_ranked(run, printed, rejected, noisy, files):
    found = printed("audit", "noisy.npz", "--top", 7, "--report", "audit.html", "--out", "issues.csv")
    assert not found["probabilities"]
    assert (found["expected"], found["report"]) == (None, "audit.html")
    assert len(found["rows"]) == 7
    assert {issue["p_wrong"] for issue in found["issues"]} == {None}
    suspicion = [issue["suspicion"] for issue in found["issues"]]
    assert suspicion == sorted(suspicion, reverse=True)
    assert pd.read_csv("issues.csv").p_wrong.isna().all()
    text = " ".join(run("audit", "noisy.npz", "--top", 7).stdout.split())
    page = " ".join(check_page((files / "audit.html").read_text()).text)
    for shown in (text, page):
        assert "This list would also exist if all labels were right" in shown
        assert "expected number" not in shown.lower()
    assert "--min-p-wrong requires error probabilities" in rejected("audit", "noisy.npz", "--min-p-wrong", 0.2)
    assert "rank 7" in page
    cards = re.findall('<article class="card".*?</article>', (files / "audit.html").read_text(), re.S)
    assert len(cards) == 7
    assert not any("%" in card for card in cards)


def test_groups(run, printed, rejected, task, noisy, files):
    rows = np.arange(0, 120)
    fields = {"Y": task.Y[rows].astype(np.float32), "random": rows < 100, "label_names": np.array(task.label_names)}
    np.savez(files / "trusted.npz", rows=rows, **fields)
    table = pd.DataFrame(noisy.X, columns=[f"x{j}" for j in range(noisy.d)])
    table["who"] = np.random.default_rng(0).choice(["ann", "bob"], noisy.n)
    table[list(task.label_names)] = noisy.Y.astype(int)
    table.to_csv(files / "table.csv", index=False)
    arguments = ["audit", "table.csv", "--labels", "s*", "--min-p-wrong", 0, "--top", 900, "--groups", "who"]
    found = printed(*arguments, "--trusted", "trusted.npz")
    assert found["probabilities"]
    assert len(found["issues"]) == 900
    assert "--ignore who" in run(*arguments, "--trusted", "trusted.npz").stderr
    assert "no effect on --noise without verified rows" in rejected(*arguments, "--noise", "both", code=2)
    assert "has no" not in rejected(*arguments[:-1], "nobody", "--trusted", "trusted.npz")
    assert "--groups requires a table" in rejected("audit", "noisy.npz", "--groups", "who", "--trusted", "trusted.npz")


def test_no_issues(run, printed, files):
    rates = {"kind": "class_conditional", "rho_pos": [0, 0, 0], "rho_neg": [0, 0, 0]}
    (files / "rates.json").write_text(json.dumps(rates))
    assert "no label has an error probability" in run("audit", "task.npz", "--noise", "rates.json").stdout
    found = printed("audit", "task.npz", "--noise", "rates.json", "--out", "issues.csv")
    assert (found["found"], found["issues"], found["rows"]) == (0, [], [])
    assert (files / "issues.csv").read_text() == "row,label,given,suspicion,p_wrong,suggested\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["task.npz", "--trusted", "task.npz"], 1, "not a file of verified rows"),
        (["task.npz", "--noise", "two.json"], 1, "rates of 3 labels; got rates of 2 labels"),
        (["task.npz", "--noise", "classes.json"], 1, "got TransitionNoise"),
    ],
)
def test_errors(rejected, files, arguments, code, message):
    (files / "two.json").write_text('{"kind": "partial", "rho_neg": [0.1, 0.1]}')
    (files / "classes.json").write_text('{"kind": "transition", "T": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}')
    assert message in rejected("audit", *arguments, code=code)
