from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from ccmn.data import read_npz
from ccmn.estimation import NoiseRates
from ccmn.noise import NoiseModel
from ccmn.review import corrected_labels, export, trusted_rows
from ccmn.review.store import Entry
from review.table import NAMES, TRUE, answer_truly


def test_trusted_rows_are_what_was_said():
    rows, Y = trusted_rows([Entry(7, 1, "yes"), Entry(2, 0, "no"), Entry(7, 2, "unsure"), Entry(9, 0, "unsure")], 3)
    assert rows.tolist() == [2, 7]
    np.testing.assert_array_equal(Y, [[0, np.nan, np.nan], [np.nan, 1, np.nan]])
    assert trusted_rows([], 3).Y.shape == (0, 3)


def test_corrected_labels_change_only_what_was_said():
    given = np.array([[0, 1], [np.nan, 1], [1, 1]], dtype=np.float32)
    corrected = corrected_labels(given, trusted_rows([Entry(1, 0, "yes"), Entry(2, 1, "no")], 2))
    np.testing.assert_array_equal(corrected, [[0, 1], [1, 1], [1, 0]])
    assert np.isnan(given[1, 0])


def test_what_is_exported(session):
    answer_truly(session, 9)
    session.answer(session.latest(), 1, "unsure")
    files = export(session)
    assert sorted(
        path.name for path in session.folder.iterdir() if path.suffix not in (".db-wal", ".db-shm")
    ) == sorted(["decisions.db", *(path.name for path in files)])
    entries = session.store.entries()
    with open(session.folder / "trusted.csv", newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [(int(line["row"]), line["label"], line["answer"]) for line in lines] == [
        (row, NAMES[label], word) for row, label, word in entries
    ]
    assert {int(line["row"]) for line in lines if line["counts_for_rates"] == "1"} == set(session.store.sampled_rows())
    with np.load(session.folder / "trusted.npz", allow_pickle=False) as found:
        rows, Y = found["rows"], found["Y"]
        assert set(rows[found["random"]].tolist()) == set(session.store.sampled_rows())
    known = ~np.isnan(Y)
    np.testing.assert_array_equal(Y[known], TRUE[rows][known])
    corrected = read_npz(session.folder / "corrected.npz")
    np.testing.assert_array_equal(corrected.Y[rows][known], TRUE[rows][known])
    untouched = np.setdiff1d(np.arange(len(TRUE)), rows)
    np.testing.assert_array_equal(corrected.Y[untouched], session.subject.data.Y[untouched])
    np.testing.assert_array_equal(corrected.X, session.subject.data.X)
    assert corrected.label_names == NAMES
    about = json.loads((session.folder / "review.json").read_text())
    assert about["answers"] == len(entries)
    assert about["labels_changed"] == (corrected.Y != session.subject.data.Y).sum()


def test_exported_rates_can_be_used_wherever_rates_can(session):
    answer_truly(session, 20)
    export(session)
    content = json.loads((session.folder / "rates.json").read_text())
    rates = session.rates()
    np.testing.assert_array_equal(NoiseModel.from_dict(content).rho_pos, rates.rho_pos)
    whole = {**content["estimate"], **{key: content[key] for key in ("rho_pos", "rho_neg", "label_names")}}
    assert NoiseRates.from_dict(whole).to_dict() == rates.to_dict()


def test_nothing_decided_is_exported_too(session):
    export(session)
    np.testing.assert_array_equal(read_npz(session.folder / "corrected.npz").Y, session.subject.data.Y)


def test_a_failed_write_leaves_what_was_there(session, monkeypatch):
    export(session)
    before = {path.name: path.read_bytes() for path in session.folder.iterdir() if path.suffix == ".csv"}
    answer_truly(session, 3)

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(csv, "writer", full)
    with pytest.raises(OSError, match="no space left"):
        export(session)
    assert {path.name: path.read_bytes() for path in session.folder.iterdir() if path.suffix == ".csv"} == before
    assert not [path for path in session.folder.iterdir() if path.name.startswith(".")]
