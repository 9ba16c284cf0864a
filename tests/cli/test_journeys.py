"""From raw files to a corrected model; every command names the next one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ccmn.data.labeled_table import ColumnRoles
from ccmn.models import load_model
from ccmn.review import open_session, read_review_data
from ccmn.review.retraining import export_answers

pytestmark = pytest.mark.slow

LABELS = ["access", "billing", "bugs"]
WORDS = [["login", "password"], ["invoice", "refund"], ["crash", "error"]]
N = 300


@pytest.fixture
def true():
    """Return the true labels of 300 rows."""
    return np.random.default_rng(0).random((N, 3)) < 0.4


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Run every test in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def texts(true) -> list[str]:
    """Return a text for every row, with the words of its labels."""
    return ["hello team " + " ".join(word for j in np.flatnonzero(row) for word in WORDS[j]) for row in true]


def joined(labels) -> list[str]:
    """Return the labels of every row as "a;b"."""
    return [";".join(LABELS[j] for j in np.flatnonzero(row)) for row in labels]


def next_command(result) -> list[str]:
    """Return the arguments of the command that a command prints as the next one."""
    line = next(line for line in result.stderr.splitlines() if line.startswith("next: "))
    return shlex.split(line.removeprefix("next: ccmn ").partition(" (")[0])


def predict(run, result, new: str, true) -> float:
    """Run the command after a fit on new rows; return the share of wrong predictions."""
    command = next_command(result)
    assert command[:2] == ["predict", "model.ccmn"]
    run(*[new if part == "NEW" else part for part in command])
    return float((pd.read_csv("predictions.csv")[LABELS].to_numpy() != true).mean())


def test_support_tickets(run, true):
    """Estimate, audit, verify rows, then fit with the verified rows."""
    noisy = true | (np.random.default_rng(1).random(true.shape) < 0.2)
    tickets = pd.DataFrame({"ticket": [f"T{i:03}" for i in range(N)], "body": texts(true), "tags": joined(noisy)})
    tickets.to_csv("tickets.csv", index=False)
    options = ("--tags", "tags", "--text", "body", "--id", "ticket", "--cache", "results")
    estimated = run("noise", "estimate", "tickets.csv", *options, "--noise-type", "partial", "--out", "rates.json")
    audited = run(*next_command(estimated))
    command = next_command(audited)
    assert command == ["review", "tickets.csv", *options]
    dataset, _ = read_review_data("tickets.csv", roles=ColumnRoles(tags="tags", text=("body",), id="ticket"))
    session = open_session(dataset, "review", "partial")
    item = session.latest()
    for _ in range(60):  # the page of ccmn review does this
        for label in item.asked:
            session.answer(item, label, "yes" if true[item.row, label] else "no")
        item = session.queue.after(item.position)
    export_answers(session)
    session.close()
    corrected = pd.read_csv("review/corrected.csv", keep_default_na=False)
    assert corrected.columns.tolist() == tickets.columns.tolist()
    assert (corrected.tags != tickets.tags).sum() > 10
    again = run("audit", "tickets.csv", *options, "--trusted", "review/trusted.npz")
    fitted = run(*next_command(again))
    assert predict(run, fitted, "tickets.csv", true) < 0.05
    assert pd.read_csv("predictions.csv").ticket.tolist() == tickets.ticket.tolist()


def test_table_with_categories_and_gaps(run, true):
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {
            "plan": np.where(true[:, 0], "pro", np.where(rng.random(N) < 0.5, "free", "")),
            "opened": np.where(true[:, 1], "2026-03-01", "2025-03-01"),
            "score": np.where(rng.random(N) < 0.05, np.nan, true[:, 2] + rng.normal(0, 0.1, N)),
        }
    )
    noisy = true & (rng.random(true.shape) > 0.2)
    table[LABELS] = noisy.astype(int)
    table.to_csv("table.csv", index=False)
    fitted = run("fit", "table.csv", "--labels", ",".join(LABELS), "--noise", "missing", "--out", "model.ccmn")
    assert predict(run, fitted, "table.csv", true) < 0.1


@pytest.mark.parametrize(("noise", "added"), [("partial", True), ("missing", False)])
def test_candidate_sets_and_positives_only(run, true, noise, added):
    flips = np.random.default_rng(3).random(true.shape) < 0.3
    noisy = true | flips if added else true & ~flips
    pd.DataFrame({"text": texts(true), "labels": joined(noisy)}).to_csv("rows.csv", index=False)
    options = ("--tags", "labels", "--text", "text")
    audited = run("audit", "rows.csv", *options, "--noise", noise, "--out", "issues.csv")
    assert next_command(audited)[:2] == ["review", "rows.csv"]
    issues = pd.read_csv("issues.csv")
    assert (true != noisy)[issues.row, [LABELS.index(label) for label in issues.label]].mean() > 0.9
    fitted = run("fit", "rows.csv", *options, "--noise", noise, "--out", "model.ccmn")
    assert predict(run, fitted, "rows.csv", true) < 0.05


def test_votes_from_label_studio(run, printed, true):
    rng = np.random.default_rng(4)

    def annotation(labels, who: str, **fields) -> dict:
        choices = [LABELS[j] for j in np.flatnonzero(labels)]
        result = [{"type": "choices", "value": {"choices": choices}}]
        return {"completed_by": {"id": 1, "email": who}, "result": result, **fields}

    tasks = [
        {
            "id": i,
            "data": {"text": text},
            "annotations": [
                annotation(row ^ (rng.random(3) < error), who, was_cancelled=bool(rng.random() < 0.05))
                for who, error in (("ann", 0.05), ("bob", 0.15), ("eve", 0.4))
            ],
        }
        for i, (text, row) in enumerate(zip(texts(true), true))
    ]
    Path("export.json").write_text(json.dumps(tasks))
    listed = pd.DataFrame(printed("noise", "estimate", "export.json", "--out", "rates.json")["annotators"])
    rates = listed.groupby("annotator").rho_pos.mean()
    assert max(rates["ann"], rates["bob"]) < rates["eve"] - 0.1
    audited = run("audit", "export.json", "--min-p-wrong", 0, "--out", "tasks.json")
    assert next_command(audited)[:2] == ["review", "export.json"]
    assert "predictions" in json.loads(Path("tasks.json").read_text())[0]
    fitted = run("fit", "export.json", "--out", "model.ccmn")
    assert predict(run, fitted, "export.json", true) < 0.05
    assert load_model("model.ccmn").label_names_ == tuple(LABELS)
