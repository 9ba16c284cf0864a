"""Tables as programs and people write them: exports of spreadsheets and DataFrames, in any language."""

import csv
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ccmn.data import read_file

N = 120
TAGS = ["Gerät", "Rechnung", "Zugang"]
WORDS = ["Display", "bezahlen", "Passwort"]


@pytest.fixture
def true():
    """Return the true labels of the rows."""
    return np.random.default_rng(0).random((N, 3)) < 0.4


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Run every test in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def help_desk(true):
    """Write an export with byte order mark, Windows line ends, an index, line breaks, quotes and careless tags."""
    rng = np.random.default_rng(1)
    with open("export.csv", "w", encoding="utf-8-sig", newline="") as stream:
        table = csv.writer(stream, lineterminator="\r\n")
        table.writerow(["", "Ticket-ID", "Text", "Schlagwörter", "Priorität", "Erstellt", "Kosten (€)"])
        for i, row in enumerate(true):
            words = " ".join(word for word, has in zip(WORDS, row) if has)
            tags = "; ".join(tag for tag, has in zip(TAGS, row) if has)
            text = f'Guten Tag,\n{words}\n"Grüße" 😀'
            identifier = f"T-{(i if i % 10 else 7):03}"  # some occur more than once
            level = ["hoch", "", "N/A"][i % 3]
            date, cost = f"{1 + i % 28:02}.{1 + i // 28:02}.2026", f"{i},{rng.integers(10, 99)}"
            table.writerow([i, identifier, text, f" ;{tags};" if i % 9 == 3 else tags, level, date, cost])
    return Path("export.csv")


def test_errors_lead_to_the_options_of_an_export(rejected, run, help_desk, true):
    """Each message names the option that the next attempt uses."""
    labels = rejected("noise", "estimate", "export.csv")
    assert "perhaps --tags Schlagwörter" in labels or "perhaps --tags 'Schlagwörter'" in labels
    options = ["--tags", "Schlagwörter"]
    assert "--id Ticket-ID" in rejected("noise", "estimate", "export.csv", *options)
    options += ["--id", "Ticket-ID"]
    options += ["--text", "Text"]
    assert "dates must be written as 2026-01-31" in rejected("noise", "estimate", "export.csv", *options)
    costs = rejected("noise", "estimate", "export.csv", *options, "--ignore", "Erstellt")
    assert "1234.5, without thousands separators and units" in costs
    assert "--ignore 'Kosten (€)'" in costs
    options += ["--ignore", "Erstellt,Kosten (€)"]
    run("fit", "export.csv", *options, "--noise", "none", "--out", "model.ccmn")
    run("predict", "model.ccmn", "export.csv", "--out", "predictions.csv")
    predicted = pd.read_csv("predictions.csv")
    assert (predicted[TAGS].to_numpy() == true).mean() > 0.95
    assert predicted["Ticket-ID"].tolist() == pd.read_csv("export.csv")["Ticket-ID"].tolist()


def test_spreadsheet_with_semicolons_and_decimal_commas(printed, run):
    """Numbers have decimal commas; tags, identifiers and texts keep their commas."""
    rng = np.random.default_rng(0)
    size = rng.normal(size=N).round(2)
    lines = [f"{i},5;{str(value).replace('.', ',')};{'1,2' if value > 0 else '2'}" for i, value in enumerate(size)]
    Path("sheet.csv").write_text("\n".join(["nr;größe;labels", *lines]))
    run("data", "convert", "sheet.csv", "--tags", "labels", "--sep", ",", "--id", "nr", "--out", "sheet.npz")
    data = read_file("sheet.npz")
    assert tuple(data.label_names) == ("1", "2")
    np.testing.assert_allclose(data.X[:, 0], (size - size.mean()) / size.std(), rtol=1e-4)
    np.testing.assert_array_equal(data.Y[:, 0], size > 0)


def test_file_names_that_are_not_text(run):
    """Bytes that are not UTF-8 and characters that change the direction of text are shown by their codes."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=N)})
    frame.assign(sea=(frame["size"] > 0).astype(int)).to_csv("good.csv", index=False)
    for name, shown in ((b"b\xff.csv", r"b\udcff.csv"), ("b\u202e.csv".encode(), r"b\u202e.csv")):
        shutil.copy("good.csv", name)
        found = run("audit", os.fsdecode(name), "--labels", "sea", "--report", "out.html", "--force")
        assert f"next: ccmn review '{shown}'" in found.stderr
    command = [sys.executable, "-m", "ccmn", "data", "info", b"b\xff.csv", "--labels", "sea"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert r"b\udcff" in done.stdout


def test_row_numbers_as_features_are_named(run):
    frame = pd.DataFrame({"id": range(100, 100 + N), "age": np.random.default_rng(0).normal(size=N)})
    frame["sea"] = (frame.age > 0).astype(int)
    frame.to_csv("numbers.csv", index=False)
    frame.assign(town=["Rome", "Oslo"] * (N // 2)).to_csv("words.csv", index=False)
    for name in ("numbers.csv", "words.csv"):
        arguments = ("fit", name, "--labels", "sea", "--noise", "none", "--out", f"{name}.ccmn")
        assert "column 'id' numbers the rows" in run(*arguments).stderr
        assert "numbers the rows" not in run(*arguments, "--id", "id", "--force").stderr
        assert "'age' numbers" not in run(*arguments, "--force").stderr


def test_corrected_table_keeps_all_other_cells(reviewing, help_desk):
    """The index, line breaks, gaps and spellings of the file are unchanged after a review."""
    changed = []

    def use(client, session):
        item = session.start()
        given = session.dataset.given[item.row][item.asked[0]]
        client.post("/row/0/answer", {"label": item.asked[0], "answer": "no" if given else "yes"})
        client.post("/export")
        changed.append(item.row)

    columns = ("--tags", "Schlagwörter", "--text", "Text", "--id", "Ticket-ID", "--ignore", "Erstellt,Kosten (€)")
    reviewing(use, "export.csv", *columns, "--noise", "partial")
    before, after = (
        list(csv.reader(io.StringIO(Path(name).read_bytes().decode("utf-8-sig"), newline="")))
        for name in ("export.csv", "export-review/corrected.csv")
    )
    different = [(i, j) for i, (a, b) in enumerate(zip(before, after)) for j, (x, y) in enumerate(zip(a, b)) if x != y]
    assert len(before) == len(after)
    assert different == [(changed[0] + 1, 3)]
