"""From raw files to a corrected model: each test types the first command and then follows the printed ones."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ccmn.models import load_model

pytestmark = pytest.mark.slow

LABELS = ["access", "billing", "bugs"]
WORDS = [["login", "password"], ["invoice", "refund"], ["crash", "error"]]
N = 300
N_REVIEWED = 60


@pytest.fixture
def true():
    """Return the true labels of 300 rows."""
    return np.random.default_rng(0).random((N, 3)) < 0.4


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Run every test in a folder of its own, whose name must be quoted in a shell."""
    (tmp_path / "my data").mkdir()
    monkeypatch.chdir(tmp_path / "my data")


@pytest.fixture
def follow(run, monkeypatch):
    """Return a function that runs the command that a command printed, and checks its name."""

    def follow_printed(result, name: str, **replaced: str):
        lines = [line for line in result.stderr.splitlines() if line.startswith("next: ")]
        assert len(lines) == 1, result.stderr
        name_of_program, *words = shlex.split(lines[0].removeprefix("next: "), comments=True)  # as a shell
        assert name_of_program == "ccmn"
        assert words[: len(name.split())] == name.split()
        return run(*[replaced.get(word, word) for word in words])

    return follow_printed


@pytest.fixture
def reviewer(served):
    """Return a function that lets a person who knows the true labels answer on the page of ``ccmn review``."""

    def prepare(true):
        def answer(client, session):
            for _ in range(N_REVIEWED):
                item = session.queue.open("random")
                answers = {label: "yes" if true[item.row, label] else "no" for label in item.asked}
                session.store.record(item, answers)
            assert client.post("/export").notice.startswith("Exported")

        served(answer)

    return prepare


def texts(true) -> list[str]:
    """Return a text for every row, with the words of its labels."""
    return ["hello team " + " ".join(word for j in np.flatnonzero(row) for word in WORDS[j]) for row in true]


def joined(labels) -> list[str]:
    """Return the labels of every row as "a;b"."""
    return [";".join(LABELS[j] for j in np.flatnonzero(row)) for row in labels]


def share_wrong(true) -> float:
    """Return the share of wrong labels in the predictions."""
    return float((pd.read_csv("predictions.csv")[LABELS].to_numpy() != true).mean())


def test_support_tickets(run, follow, reviewer, true):
    noisy = true | (np.random.default_rng(1).random(true.shape) < 0.2)
    tickets = pd.DataFrame({"ticket": [f"T{i:03}" for i in range(N)], "the body": texts(true), "tags": joined(noisy)})
    tickets.to_csv("it's tickets.csv", index=False)
    reviewer(true)
    options = ("--tags", "tags", "--text", "the body", "--id", "ticket")
    estimated = run("noise", "estimate", "it's tickets.csv", *options, "--noise", "partial", "--out", "rates.json")
    audited = follow(estimated, "audit")
    assert pd.read_csv("issues.csv").id.isin(tickets.ticket).all()
    reviewed = follow(audited, "review")
    corrected = pd.read_csv("it's tickets-review/corrected.csv", keep_default_na=False)
    assert corrected.columns.tolist() == tickets.columns.tolist()
    assert (corrected.tags != tickets.tags).sum() > 10
    fitted = follow(reviewed, "fit")
    assert load_model("model.ccmn").noise_.kind == "partial"  # the declared noise type is kept to the end
    follow(fitted, "predict", NEW="it's tickets.csv")
    assert share_wrong(true) < 0.05
    assert pd.read_csv("predictions.csv").ticket.tolist() == tickets.ticket.tolist()
    # A second audit uses the answers and does not overwrite files.
    again = run("audit", "it's tickets.csv", *options, "--trusted", "it's tickets-review/trusted.npz")
    follow(again, "fit")
    assert Path("model-2.ccmn").exists()


def test_pictures(run, follow, reviewer, true):
    """Pictures of colored stripes, listed in a table with tags."""
    Image = pytest.importorskip("PIL.Image", reason="pillow is not installed: pip install pillow")
    rng = np.random.default_rng(5)
    noisy = true | (rng.random(true.shape) < 0.15)
    Path("pictures").mkdir()
    paths = [f"pictures/{i:03}.png" for i in range(N)]
    for path, row in zip(paths, true):
        pixels = rng.integers(60, size=(12, 18, 3))
        pixels[:, np.repeat(row, 6)] += 150
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    pd.DataFrame({"file": paths, "what is in it": joined(noisy)}).to_csv("photos.csv", index=False)
    embed = ("embed", "photos.csv", "--image", "file", "--tags", "what is in it", "--encoder", "pixels:6x9", "--out")
    reviewer(true)
    estimated = follow(run(*embed, "photos.parquet"), "noise estimate")
    audited = follow(estimated, "audit")
    reviewed = follow(audited, "review")
    corrected = pd.read_csv("photos-review/corrected.csv")
    assert {"file", "what is in it"} < set(corrected.columns)
    fitted = follow(reviewed, "fit")
    run(*embed, "new.parquet")
    follow(fitted, "predict", NEW="new.parquet")
    assert share_wrong(true) < min(0.05, (noisy != true).mean() / 2)
    report = run("audit", "photos.parquet", "--noise", "rates.json", "--min-p-wrong", 0, "--report", "report.html")
    assert "report written" in report.stdout
    assert "data:image/png" in Path("report.html").read_text()


def test_votes_from_label_studio(run, follow, reviewer, printed, true):
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
    reviewer(true)
    listed = pd.DataFrame(printed("noise", "estimate", "export.json")["annotators"])
    rates = listed.groupby("annotator").rho_pos.mean()
    assert max(rates["ann"], rates["bob"]) < rates["eve"] - 0.1
    audited = follow(run("noise", "estimate", "export.json", "--out", "rates.json"), "audit")
    run("audit", "export.json", "--noise", "both", "--min-p-wrong", 0, "--out", "tasks.json")
    assert "predictions" in json.loads(Path("tasks.json").read_text())[0]
    reviewed = follow(audited, "review")
    corrected = pd.read_csv("export-review/corrected.csv", keep_default_na=False)
    assert corrected.columns.tolist() == ["id", "text", "labels"]
    reviewed_rows = pd.read_csv("export-review/trusted.csv").row.unique()
    assert corrected.labels[reviewed_rows].tolist() == pd.Series(joined(true))[reviewed_rows].tolist()
    follow(follow(reviewed, "fit"), "predict", NEW="export.json")
    assert share_wrong(true) < 0.05
    assert load_model("model.ccmn").label_names_ == tuple(LABELS)
    # The corrected table can be used in place of the export.
    run("fit", "export-review/corrected.csv", "--tags", "labels", "--text", "text", "--id", "id", "--out", "m.ccmn")
