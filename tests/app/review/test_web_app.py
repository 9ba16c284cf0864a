"""Pages and actions of the web app: answers, two tabs, undo, export, retraining, and HTML in names."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from markupsafe import escape

pytest.importorskip("starlette", reason="ccmn review requires starlette: pip install starlette uvicorn")

from app.review.example import NAMES, TRUE, answer_correctly, make_dataset, make_session
from app.review.http_client import make_client, sign_in
from ccmn.app.review.queue import INITIAL_PERIOD
from ccmn.app.review.review_data import FeaturePictures, FilePictures
from ccmn.models import load_model

MALICIOUS = '<script>alert("x")</script><img src=x onerror=alert(1)>'


@pytest.fixture
def client(session):
    return sign_in(make_client(session, epochs=20, lr=0.05))


def answer(client, position, label, word):
    return client.post(f"/row/{position}/answer", {"label": label, "answer": word})


def shown_answers(page):
    """Return the answers that the page shows, by label."""
    forms = re.findall(r'<form class="label (\w+)".*? id="label-(\d+)"', page.text)
    return {int(label): state for state, label in forms if state != "open"}


def shown_order(page):
    """Return the labels in display order."""
    return [int(label) for label in re.findall(r' id="label-(\d+)"', page.text)]


def test_answers_are_stored_and_shown(client, session):
    page = answer(client, 0, 1, "no")
    row = session.store.item(0).row
    assert session.store.row_answers(row) == {1: "no"}
    assert shown_answers(page) == {1: "no"}
    assert page.element("answers") == "1"
    assert 'value="no" aria-pressed="true"' in page.text
    page = answer(client, 0, 1, "unsure")
    assert session.store.row_answers(row) == {1: "unsure"}


def test_page_explains_why_a_row_is_shown(client):
    assert "random sample</summary>" in client.get("/row/0").text
    assert "are used to estimate the noise rates" in client.get("/row/0").text
    for position in range(INITIAL_PERIOD - 1):
        page = client.post(f"/row/{position}/next")
    assert "suspicious</summary>" in page.text
    assert "they are not used to estimate the noise rates" in page.text


def test_focus_moves_to_the_next_open_label_and_then_to_the_next_row(client):
    def focused(page):
        (found,) = re.findall(r"<[^>]*data-focus[^>]*>", page.text)
        return found

    first, second, third = shown_order(client.get("/row/0"))
    assert escape(f"Yes: {NAMES[first]}") in focused(client.get("/row/0"))
    assert escape(f"Yes: {NAMES[third]}") in focused(answer(client, 0, second, "yes"))
    assert escape(f"Yes: {NAMES[first]}") in focused(answer(client, 0, third, "yes"))
    assert 'data-key="a"' in focused(answer(client, 0, first, "yes"))
    page = client.post("/undo")
    assert escape(f"Yes: {NAMES[first]}") in focused(page)


def test_labels_are_sorted_by_error_probability(client, session):
    for position in range(5):
        item = session.store.item(position)
        p_wrong = session.queue.scores.row_scores(item.row)
        shown = shown_order(client.get(f"/row/{position}"))
        assert sorted(shown) == sorted(item.asked)
        assert (np.diff(p_wrong[shown]) <= 0).all()
        client.post(f"/row/{position}/next")


def test_accepting_the_rest_keeps_existing_answers(client, session):
    row = session.store.item(0).row
    other = "no" if session.dataset.given[row, 0] == 1 else "yes"
    answer(client, 0, 0, other)
    page = client.post("/row/0/accept")
    assert page.element("title").startswith(f"Row {session.store.item(1).row} ")  # the next row
    words = {j: "yes" if session.dataset.given[row, j] else "no" for j in range(3)}
    assert session.store.row_answers(row) == {**words, 0: other}
    assert page.element("counted") == "1"


def test_two_tabs(client, session):
    """Answers of both tabs are stored; for the same label, the later answer replaces the earlier one."""
    answer(client, 0, 0, "yes")  # the first tab
    answer(client, 0, 0, "no")  # the second tab, which still shows the label as open
    page = answer(client, 0, 1, "yes")
    assert shown_answers(page) == {0: "no", 1: "yes"}
    client.post("/row/0/accept")  # from a tab that does not show these answers
    page = client.get("/row/0")
    assert shown_answers(page).items() >= {0: "no", 1: "yes"}.items()
    first, second = client.post("/row/0/next"), client.post("/row/0/next")
    assert first.element("title") == second.element("title")  # the same next row for both
    assert session.store.length() == 2


def test_undo_shows_the_row_of_the_undone_action(client, session):
    answer(client, 0, 2, "yes")
    client.post("/row/0/next")
    page = client.post("/undo")
    assert page.notice == "The latest action was undone."
    assert page.element("title").startswith(f"Row {session.store.item(0).row} ")
    assert session.store.answers() == []
    assert client.post("/undo").notice == "There is nothing to undo."


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"label": 0},
        {"answer": "yes"},
        {"label": 3, "answer": "yes"},
        {"label": -1, "answer": "yes"},
        {"label": "0; DROP TABLE answers", "answer": "yes"},
        {"label": "9" * 40, "answer": "yes"},
        {"label": "²", "answer": "yes"},
        {"label": 0, "answer": "YES"},
        {"label": 0, "answer": MALICIOUS},
        {f"field{i}": 1 for i in range(20)},
    ],
)
def test_invalid_answers_are_rejected(client, session, fields):
    assert client.post("/row/0/answer", fields).status == 400
    assert client.request("POST", "/row/0/answer", b"\xff\xfe", {"origin": "http://127.0.0.1:8000"}).status == 400
    assert session.store.answers() == []


@pytest.mark.parametrize("url", ["/row/0/answer", "/row/0/accept", "/row/0/next", "/undo", "/retrain", "/select"])
def test_get_requests_change_nothing(client, session, url):
    assert client.get(url).status == 405
    assert session.store.length() == 1


def test_positions_beyond_the_queue_are_not_found(client):
    for what in ("answer", "accept", "next", "note"):
        assert client.post(f"/row/5/{what}").status == 404


def test_html_in_names_and_texts_is_escaped(tmp_path):
    session = make_session(tmp_path / "review", texts=[MALICIOUS] * len(TRUE))
    page = sign_in(make_client(session)).get("/row/0")
    for name in (*NAMES, MALICIOUS, "<i>table</i>"):
        assert escape(name) in page.text
        assert name not in page.text  # neither as an element nor as the end of an attribute
    assert "<script>" not in page.text
    session.close()


def test_urls_cannot_add_text_to_the_page(client):
    page = client.get(f"/row/0?notice={MALICIOUS}&at={MALICIOUS}&after={MALICIOUS}")
    assert page.notice == ""
    assert "alert" not in page.text


def test_features_are_shown_without_text_or_picture(client):
    text = client.get("/row/0").text
    assert "deviations from the mean" in text
    assert '<th scope="row">x0</th>' in text
    assert "/picture/" not in text


def test_pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"a picture")
    (tmp_path / "secret.png").write_bytes(b"a secret")
    names = ["a.png"] * (len(TRUE) - 1) + ["../secret.png"]
    session = make_session(tmp_path / "review", picture=FilePictures(names, folder))
    client = sign_in(make_client(session))
    row = session.store.item(0).row
    assert f'src="/picture/{row}" alt="picture of row {row}"' in client.get("/row/0").text
    assert client.get("/picture/0").body == b"a picture"
    assert client.get(f"/picture/{len(TRUE) - 1}").status == 404  # outside the folder
    assert client.get(f"/picture/{len(TRUE)}").status == 404
    session.close()
    features = make_session(tmp_path / "other", picture=FeaturePictures(make_dataset().data.X, (1, 3)))
    response = sign_in(make_client(features)).get("/picture/0")
    assert (response.status, response.headers["content-type"]) == (200, "image/png")
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.body.startswith(b"\x89PNG")
    features.close()


def test_unusable_picture_names_are_not_found(tmp_path):
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    names = ["a\0.png", f"{'a' * 5000}.png", "loop.png", *["absent.png"] * (len(TRUE) - 3)]
    session = make_session(tmp_path / "review", picture=FilePictures(names, tmp_path))
    client = sign_in(make_client(session))
    assert [client.get(f"/picture/{row}").status for row in range(4)] == [404] * 4
    session.close()


def test_storage_errors_are_reported_in_one_line(client, session):
    session.store._connection.execute("PRAGMA max_page_count = 1")  # the current size of the file: the disk is full
    position, response = 0, client.get("/row/0")
    while response.status == 200:
        response = client.post(f"/row/{position}/next")
        position += 1
    assert response.status == 500
    assert response.text.count("\n") == 1
    assert f"{session.store.path}: database or disk is full" in response.text
    session.store._connection.execute("PRAGMA max_page_count = 100000")
    assert client.post(f"/row/{position - 1}/next").status == 200
    session.store._connection.execute("DROP TABLE totals")
    response = client.get("/row/0")
    assert (response.status, response.text.count("\n")) == (500, 1)
    assert f"{session.store.path} is not a store of review decisions or is damaged" in response.text


def test_other_errors_are_not_hidden(client, session, monkeypatch):
    def fail(*_):
        raise ValueError("a defect")

    monkeypatch.setattr(session, "view", fail)
    with pytest.raises(ValueError, match="a defect"):
        client.get("/row/0")


def test_end_of_the_queue(client, session):
    item = session.latest()
    while (found := session.queue.after(item.position)) is not None:
        item = found
    page = client.post(f"/row/{item.position}/next")
    assert "All rows have been reviewed" in page.text
    assert f"/row/{item.position}" in page.text


def test_export(client, session):
    answer_correctly(session, 4)
    assert "Nothing has been exported yet" in client.get("/results").text
    page = client.post("/export")
    assert page.notice.startswith("Exported.")
    assert page.element("folder") == str(session.folder.resolve())
    names = re.findall(r'href="/export/([^"]+)"', page.text)
    assert names == ["trusted.csv", "trusted.npz", "corrected.npz", "votes.csv", "rates.json", "review.json"]
    for name in names:
        assert client.get(f"/export/{name}").body == (session.folder / name).read_bytes()
    for name in ("decisions.db", "..%2Fdecisions.db", "corrected.csv"):  # not exported
        assert client.get(f"/export/{name}").status == 404


def test_rows_are_filtered_by_label_and_text(tmp_path):
    texts = [f"row {'odd' if i % 2 else 'EVEN'}" for i in range(len(TRUE))]
    session = make_session(tmp_path / "review", texts=texts, ids=[f"T{i}" for i in range(len(TRUE))])
    client = sign_in(make_client(session))

    def listed(url):
        return [int(row) for row in re.findall(r'name="row" value="(\d+)"', client.get(url).text)]

    given, p_wrong = session.dataset.given, session.queue.scores.max_p_wrong
    assert listed("/rows") == np.argsort(-p_wrong, kind="stable")[:48].tolist()
    assert len(listed("/rows?page=3")) == len(TRUE) - 3 * 48
    for value in (0, 1):
        found = listed(f"/rows?label=1&given={value}&text=even")
        expected = {i for i in range(0, len(TRUE), 2) if given[i, 1] == value}
        assert set(found) <= expected
        assert len(found) == min(48, len(expected))
    assert {given[i, 1] for i in listed("/rows?label=1")} == {0, 1}  # without a state, rows of both states
    of_label = np.array([session.queue.scores.row_scores(i)[1] for i in range(len(TRUE))])
    assert listed("/rows?label=1") == np.argsort(-of_label, kind="stable")[:48].tolist()
    page = client.get("/rows?label=1&given=0").text
    assert '<option value="0" selected>not given</option>' in page
    assert str(escape(f"{NAMES[1]}: {of_label[given[:, 1] == 0].max():.0%} likely wrong")) in page
    assert listed("/rows?row=7") == [7]
    assert "T7" in client.get("/rows?row=7").text
    assert listed("/rows?label=99&page=999") == listed("/rows?page=3")
    session.close()


def test_selected_rows_do_not_count_for_rates(client, session):
    row = session.queue.scores.order[-1]
    page = client.post("/select", {"row": row})
    assert page.element("title").startswith(f"Row {row} ")
    assert "selected</summary>" in page.text
    page = client.post("/row/1/accept")
    assert session.store.progress()["counted"] == 0
    assert set(session.store.row_answers(int(row))) == {0, 1, 2}
    client.post("/select", {"row": row})
    assert [session.store.item(i).row for i in range(session.store.length())].count(row) == 1
    for invalid in (-1, len(TRUE), "x"):
        assert client.post("/select", {"row": invalid}).status == 400


def test_reviewers_see_their_own_answers_and_their_agreement(client, session):
    client.post("/reviewer", {"name": "Ann <b>", "at": 0})
    answer(client, 0, 0, "yes")
    answer(client, 0, 1, "no")
    client.post("/reviewer", {"name": "Bob"})
    assert shown_answers(client.get("/row/0")) == {}
    assert client.post("/undo").notice == "There is nothing to undo."  # Bob has done nothing
    answer(client, 0, 0, "yes")
    page = answer(client, 0, 1, "yes")
    assert shown_answers(page) == {0: "yes", 1: "yes"}
    assert "Ann" not in page.text
    results = client.get("/results").text
    for name in ("Ann &lt;b&gt;", "Bob"):
        assert f'<th scope="row">{name}</th><td>2</td><td>2</td><td>50.0 %</td>' in results
    assert session.store.row_answers(session.store.item(0).row) == {0: "yes", 1: "yes"}  # the latest answers
    client.post("/undo")
    assert session.store.row_answers(session.store.item(0).row) == {0: "yes", 1: "no"}


def test_notes(client, session):
    page = client.post("/row/0/note", {"note": f"  {MALICIOUS}  "})
    assert page.notice == "The note was saved."
    assert str(escape(MALICIOUS)) in page.text
    row = session.store.item(0).row
    assert session.store.notes() == [(row, "", MALICIOUS)]
    client.post("/row/0/note", {"note": "x" * 999})
    assert len(session.store.notes(row)[0].text) == 300
    client.post("/row/0/note", {})
    assert session.store.notes() == []


@pytest.mark.parametrize(("url", "status"), [("/row/77", 404), ("/nothing", 404), ("/undo", 405)])
def test_browsers_get_error_pages(client, url, status):
    response = client.get(url, accept="text/html,*/*")
    assert response.status == status
    assert '<a href="/">Continue the review</a>' in response.text
    assert "This page does not exist" in response.text
    assert client.get(url).text.count("\n") == 1  # scripts and other clients


def test_rates_that_the_answers_contradict_are_marked(client, session):
    assert "contradict" not in client.get("/rates").text
    item = session.latest()
    for _ in range(40):  # every label is true, so that many labels are missing
        session.store.record(item, dict.fromkeys(item.asked, "yes"))
        item = session.queue.after(item.position)
    page = client.get("/rates").text
    assert 'id="contradicted"' in page
    assert 'class="rate-pos off"' in page


def test_retraining_changes_the_rates_and_saves_a_model(client, session):
    answer_correctly(session, 100)
    before = client.get("/rates")
    assert "No model has been trained yet" in client.get("/results").text
    page = client.post("/retrain")
    assert page.notice.startswith("Training has started")
    wait(client)
    after = client.get("/rates")
    assert [after.element(f"used-pos-{j}") for j in range(3)] != [before.element(f"used-pos-{j}") for j in range(3)]
    results = client.get("/results").text
    assert "verified labels; saved as model.ccmn" in results
    assert "on your complete random rows, by cross-validation" in results
    assert "With your answers, the model is" in results
    model = load_model(session.folder / "model.ccmn")
    np.testing.assert_allclose(model.noise_.rho_pos, session.rates().rho_pos)
    assert model.label_names_ == NAMES


def wait(client):
    """Wait until the background training has ended."""
    while client.get("/training").text == '{"state":"running"}':
        time.sleep(0.05)
    assert client.get("/training").text == '{"state":"done"}'
