import csv
import json
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from app.review.example import NAMES, TRUE, answer_correctly, make_session
from app.review.http_client import make_client, sign_in
from ccmn.app import review
from ccmn.data import read_file
from ccmn.models import CCMNClassifier, load_model


def train(session, **options):
    """Train a model and wait for its end."""
    training = review.Retraining(session, **options)
    training.start()
    while training.state == "running":
        time.sleep(0.01)
    assert training.error == ""
    return training


@pytest.fixture
def fits(monkeypatch):
    """Arguments of every fit: the number of rows, the labels, the noise and the keywords."""
    found, fit = [], CCMNClassifier.fit

    def spy(self, X, y, **kwargs):
        found.append({"n": len(X), "Y": np.asarray(y), "noise": self.noise, **kwargs})
        return fit(self, X, y, **kwargs)

    monkeypatch.setattr(CCMNClassifier, "fit", spy)
    return found


def export(session):
    return sign_in(make_client(session)).post("/export")


def test_rates_use_the_random_sample_and_training_uses_every_answer(session, fits):
    answer_correctly(session, 15)
    answer_correctly(session, 10, "suspicious")
    train(session)
    seen = fits[0]
    rows, Y = seen["trusted"]
    assert sorted(rows) == sorted(session.store.sampled_rows())  # random rows only
    np.testing.assert_array_equal(Y, TRUE[rows])
    answered = sorted(session.store.answered_rows())
    assert len(answered) > len(rows)
    np.testing.assert_array_equal(seen["Y"][answered], TRUE[answered])  # suspicious rows correct labels
    np.testing.assert_array_equal(seen["noise"].rho_neg, session.rates().rho_neg)


@pytest.mark.parametrize(("n_rows", "known"), [(49, False), (50, True)])
def test_error_probabilities_are_learned_from_enough_random_rows(tmp_path, n_rows, known):
    """Answers for suspicious rows do not count."""
    session = make_session(tmp_path / "review", declared=None)
    answer_correctly(session, 30, "suspicious")
    while session.store.progress()["counted"] < n_rows:
        answer_correctly(session, 1)
    assert not session.queue.scores.known
    train(session)
    assert session.queue.scores.known == known
    resumed = make_session(session.folder, declared=None)
    assert resumed.queue.scores.known == known
    np.testing.assert_array_equal(resumed.queue.scores.worst, session.queue.scores.worst)
    assert resumed.trained == session.trained
    resumed.close()
    session.close()


def test_only_one_training_runs_and_errors_are_reported(session, monkeypatch):
    proceed, started = threading.Event(), []

    def blocked(*_, **__):
        started.append(1)
        proceed.wait()
        raise RuntimeError("no memory")

    monkeypatch.setattr(CCMNClassifier, "fit", blocked)
    training = review.Retraining(session)
    training.start()
    training.start()
    assert training.state == "running"
    proceed.set()
    while training.state == "running":
        time.sleep(0.01)
    assert (training.state, training.error, started) == ("failed", "RuntimeError: no memory", [1])
    assert session.trained is None
    assert not training.path.exists()


def test_training_without_answers(session):
    training = train(session, on_trained=lambda model: model.extra_.update(note="mine"))
    assert load_model(training.path).extra_ == {"note": "mine"}
    assert session.trained["labels"] == 0


def test_exported_files(session):
    answer_correctly(session, 3, "suspicious")
    answer_correctly(session, 9)
    session.store.record(session.queue.open("random"), {1: "unsure"})
    export(session)
    answers = session.store.answers()
    with open(session.folder / "trusted.csv", newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [(int(line["row"]), line["label"], line["answer"]) for line in lines] == [
        (row, NAMES[label], answer) for row, label, answer, _ in answers
    ]
    assert {line["chosen"] for line in lines} == {"random", "suspicious"}
    assert {int(line["row"]) for line in lines if line["counts_for_rates"] == "1"} == set(session.store.sampled_rows())
    with np.load(session.folder / "trusted.npz", allow_pickle=False) as trusted:
        rows, Y = trusted["rows"], trusted["Y"]
        assert set(rows[trusted["random"]].tolist()) == set(session.store.sampled_rows())
    known = ~np.isnan(Y)
    np.testing.assert_array_equal(Y[known], TRUE[rows][known])
    corrected = read_file(session.folder / "corrected.npz")
    np.testing.assert_array_equal(corrected.Y[rows][known], TRUE[rows][known])
    unchanged = np.setdiff1d(np.arange(len(TRUE)), rows)
    np.testing.assert_array_equal(corrected.Y[unchanged], session.dataset.data.Y[unchanged])
    np.testing.assert_array_equal(corrected.X, session.dataset.data.X)
    assert corrected.label_names == NAMES
    description = json.loads((session.folder / "review.json").read_text())
    assert description["answers"] == len(answers)
    assert description["labels_changed"] == (corrected.Y != session.dataset.data.Y).sum()


def test_failed_export_keeps_the_previous_files(session, monkeypatch):
    export(session)
    before = {path.name: path.read_bytes() for path in session.folder.iterdir() if path.suffix == ".csv"}
    answer_correctly(session, 3)

    def full_disk(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full_disk)
    assert "no space left" in export(session).text
    assert {path.name: path.read_bytes() for path in session.folder.iterdir() if path.suffix == ".csv"} == before
    assert not [path for path in session.folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("tags", [None, ("tags", ";")])
def test_corrected_table_keeps_all_columns_and_unchanged_cells(tmp_path, tags):
    given = make_session(tmp_path / "first").dataset.given.astype(int)
    labels = {name: given[:, j].astype(str) for j, name in enumerate(NAMES)}
    sets = [";".join(name for name, value in zip(NAMES, row) if value) for row in given]
    table = pd.DataFrame({"id": [f"T{i}" for i in range(len(given))], "tags": sets, **labels, "price": "1.50"})
    session = make_session(tmp_path / "review", table=table.copy, tags=tags)
    answer_correctly(session, 9)
    export(session)
    written = pd.read_csv(session.folder / "corrected.csv", dtype=str, keep_default_na=False)
    assert list(written.columns) == list(table.columns)
    rows = sorted({answer.row for answer in session.store.answers()})
    for column in written.columns:
        expected = table[column].tolist()
        for i in rows:
            if column in NAMES and tags is None:
                expected[i] = str(TRUE[i, NAMES.index(column)])
            elif column == "tags" and tags is not None:
                expected[i] = ";".join(name for name, value in zip(NAMES, TRUE[i]) if value)
        assert written[column].tolist() == expected
    session.close()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_table_that_changed_during_the_review(reviewing, tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"x": np.arange(30.0), "y": [0, 1] * 15})

    def use(client, session):
        write(table.head(3))
        assert "3 rows instead of 30" in client.post("/export").text
        Path(f"data{suffix}").write_bytes(b"x,y\n" + b"0" * 200_000 + b",1\n")
        response = client.post("/export")
        assert response.status == 500
        assert f"data{suffix} has changed since the review started" in response.text

    def write(frame):
        frame.to_csv("data.csv", index=False) if suffix == ".csv" else frame.to_parquet("data.parquet")

    write(table)
    reviewing(use, f"data{suffix}", "--labels", "y")


def test_votes_are_those_of_each_reviewer(session):
    item = session.start()
    for reviewer, answer in (("Ann", "yes"), ("Bob", "no"), ("", "unsure")):
        session.store.record(item, {0: answer}, reviewer=reviewer)
    export(session)
    votes = pd.read_csv(session.folder / "votes.csv")
    assert votes.to_dict("list") == {
        "row": [item.row] * 2,
        "annotator": ["Ann", "Bob"],
        "label": [NAMES[0]] * 2,
        "value": [1, 0],
    }


def test_comparison_uses_rows_that_the_models_were_not_trained_on(session, fits):
    answer_correctly(session, 40)
    train(session)
    fitted = [(fit["n"], fit.get("trusted")) for fit in fits]
    comparison, n_sampled = session.trained["comparison"], len(session.store.sampled_rows())
    assert (comparison["on"], comparison["n_rows"]) == ("random sample", n_sampled)
    assert [n < len(TRUE) for n, _ in fitted] == [False] + [True] * 10  # the model, then two models per part
    assert sum(len(TRUE) - n for n, _ in fitted) == 2 * n_sampled
    for n, trusted in fitted[2::2]:
        assert len(trusted[0]) == n_sampled - (len(TRUE) - n)
        assert trusted[0].max() < n
