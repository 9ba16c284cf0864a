"""Pages and actions of the web app: answers, two tabs, undo, export, retraining, and HTML in names."""

import re
import time

import numpy as np
import pytest
from markupsafe import escape

pytest.importorskip("starlette", reason="ccmn review requires starlette: pip install 'ccmn[app]'")

from app.review.example import NAMES, TRUE, answer_correctly, make_session
from app.review.http_client import make_client, sign_in
from ccmn.app import review
from ccmn.data import MultiLabelData
from ccmn.models import load_model

MALICIOUS = '<script>alert("x")</script><img src=x onerror=alert(1)>'


@pytest.fixture
def client(session):
    return sign_in(make_client(session))


def answer(client, position, label, word):
    return client.post(f"/row/{position}/answer", {"label": label, "answer": word})


def shown_values(page):
    """Return the values that the page shows, by label: 1, 0 or "unsure"."""
    chips = re.findall(r'<form class="chip([^"]*)".*? id="label-(\d+)"', page.text)
    return {int(label): "unsure" if "unsure" in state else int(" on" in state) for state, label in chips}


def shown_order(page):
    """Return the labels in display order."""
    return [int(label) for label in re.findall(r' id="label-(\d+)"', page.text)]


def open_random(client):
    return client.post("/list", {"list": "random"})


def test_answers_are_stored_and_shown(client, session):
    row = session.store.item(0).row
    given = session.dataset.given[row, 1]
    other = "no" if given == 1 else "yes"
    page = answer(client, 0, 1, other)
    assert session.store.row_answers(row) == {1: other}
    assert shown_values(page)[1] == 1 - given
    assert page.element("answers") == "1"
    assert 'id="label-1" data-effect="changed"' in page.text
    page = answer(client, 0, 1, "unsure")
    assert session.store.row_answers(row) == {1: "unsure"}
    assert shown_values(page)[1] == "unsure"


def test_page_without_error_probabilities(tmp_path):
    session = make_session(tmp_path / "review", declared=None)
    client = sign_in(make_client(session))
    for url in ("/row/0", "/rows"):
        page = client.get(url).text
        assert "This list would also exist if all labels were right" in page
        assert "% wrong" not in page
    assert "50 random rows and a training give error probabilities (50 more)" in client.get("/row/0").text
    assert client.post("/suggestions", {"label": 0, "least": "0.9"}).status == 400
    assert 'id="used-pos-0">–</td>' in client.get("/rates").text
    session.close()


def test_labels_are_chips_with_number_keys(tmp_path):
    names = [f"label_{i:02}" for i in range(18)]
    rng = np.random.default_rng(0)
    Y = (rng.random((60, 18)) < 0.1).astype(np.uint8)
    data = MultiLabelData(rng.normal(size=(60, 4)), Y, label_names=names)
    proba = rng.random(Y.shape)
    session = review.ReviewSession(review.ReviewDataset(data), proba, None, tmp_path / "review")
    page = sign_in(make_client(session)).get("/")
    row = session.store.item(0).row
    order, given = shown_order(page), np.flatnonzero(Y[row])
    assert sorted(order) == list(range(18))
    assert set(order[: len(given)]) == set(given)  # given labels first
    score = session.queue.scores.score[row]
    assert (np.diff(score[order[len(given) :]]) <= 0).all()  # then the most suspicious ones
    assert re.findall(r'data-key="(\d)"', page.text) == list("123456789")
    visible, _, hidden = page.text.partition('<details class="more-labels"')
    assert visible.count('<form class="chip') == 9
    assert hidden.count('<form class="chip') == 9
    assert "show all 18 labels" in page.text
    assert '<span class="name">07</span>' in page.text  # without the common prefix
    assert 'title="label_07"' in page.text
    session.close()


def test_suggestions_of_a_label_are_accepted_and_undone(client, session):
    scores = np.nan_to_num(session.queue.scores.score[:, 1])
    page = client.post("/suggestions", {"label": 1, "least": "0.9"})
    assert page.notice.startswith("The suggestions were accepted")
    changed = {answer.row for answer in session.store.answers()}
    assert changed == set(np.flatnonzero(scores >= 0.9)) != set()
    assert session.store.progress()["counted"] == 0
    assert client.post("/undo").notice == "The latest action was undone."
    assert session.store.answers() == []
    for fields in ({}, {"label": 99, "least": "0.9"}, {"label": 1, "least": "0.1"}, {"label": 1, "least": "x"}):
        assert client.post("/suggestions", fields).status == 400


def test_accepting_the_rest_keeps_existing_answers(client, session):
    row = session.store.item(0).row
    other = "no" if session.dataset.given[row, 0] == 1 else "yes"
    answer(client, 0, 0, other)
    page = client.post("/row/0/accept")
    assert page.element("title").startswith(f"Row {session.store.item(1).row} ")  # the next row
    words = {j: "yes" if session.dataset.given[row, j] else "no" for j in range(3)}
    assert session.store.row_answers(row) == {**words, 0: other}
    assert page.element("counted") == "0"  # not a random row


def test_two_tabs(client, session):
    """Answers of both tabs are stored; for the same label, the later answer replaces the earlier one."""
    answer(client, 0, 0, "yes")  # the first tab
    answer(client, 0, 0, "no")  # the second tab, which still shows the label as open
    page = answer(client, 0, 1, "yes")
    assert shown_values(page).items() >= {0: 0, 1: 1}.items()
    client.post("/row/0/accept")  # from a tab that does not show these answers
    page = client.get("/row/0")
    assert shown_values(page).items() >= {0: 0, 1: 1}.items()
    first, second = client.post("/row/0/next"), client.post("/row/0/next")
    assert first.element("title") == second.element("title")  # the same next row for both
    assert session.store.length() == 2


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"label": 0},
        {"answer": "yes"},
        {"label": 3, "answer": "yes"},
        {"label": "0; DROP TABLE answers", "answer": "yes"},
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


@pytest.mark.parametrize(
    "url", ["/row/0/answer", "/row/0/accept", "/row/0/next", "/undo", "/retrain", "/select", "/list", "/suggestions"]
)
def test_get_requests_change_nothing(client, session, url):
    assert client.get(url).status == 405
    assert session.store.length() == 1


def test_html_in_names_and_texts_is_escaped(tmp_path):
    session = make_session(tmp_path / "review", texts=[MALICIOUS] * len(TRUE))
    page = sign_in(make_client(session)).get("/row/0")
    for name in (*NAMES, MALICIOUS, "<i>table</i>"):
        assert escape(name) in page.text
        assert name not in page.text  # neither as an element nor as the end of an attribute
    assert "<script>" not in page.text
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
    session.store._connection.execute("DROP VIEW answers")
    response = client.get("/row/0")
    assert (response.status, response.text.count("\n")) == (500, 1)
    assert f"{session.store.path} is not a store of review decisions or is damaged" in response.text


def test_end_of_the_queue(client, session):
    item = session.start()
    while (found := session.queue.after(item.position, "suspicious")) is not None:
        item = found
    page = client.post(f"/row/{item.position}/next")
    assert "All rows of this list have been reviewed" in page.text


def test_export(client, session):
    assert "Nothing has been exported yet" in client.get("/results").text
    assert "ccmn fit" not in client.post("/export").text  # there are no verified rows
    answer_correctly(session, 4)
    page = client.post("/export")
    assert page.element("next-command") == "ccmn fit"
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

    given, p_wrong = session.dataset.given, session.queue.scores.worst
    assert listed("/rows") == np.argsort(-p_wrong, kind="stable")[:48].tolist()
    assert len(listed("/rows?page=3")) == len(TRUE) - 3 * 48
    for value in (0, 1):
        found = listed(f"/rows?label=1&given={value}&text=even")
        expected = {i for i in range(0, len(TRUE), 2) if given[i, 1] == value}
        assert set(found) <= expected
        assert len(found) == min(48, len(expected))
    assert {given[i, 1] for i in listed("/rows?label=1")} == {0, 1}  # without a state, rows of both states
    of_label = np.array([session.queue.scores.score[i][1] for i in range(len(TRUE))])
    assert listed("/rows?label=1") == np.argsort(-of_label, kind="stable")[:48].tolist()
    page = client.get("/rows?label=1&given=0").text
    assert '<option value="0" selected>not given</option>' in page
    assert f"not given, perhaps missing ({100 * min(of_label[given[:, 1] == 0].max(), 0.99):.0f} % wrong)" in page
    assert listed("/rows?row=7") == [7]
    assert "T7" in client.get("/rows?row=7").text
    assert listed("/rows?label=99&page=999") == listed("/rows?page=3")
    session.close()


def test_selected_rows_do_not_count_for_rates(client, session):
    row = session.queue.scores.order[-1]
    page = client.post("/select", {"row": row})
    assert page.element("title").startswith(f"Row {row} ")
    assert "A row that you selected from the list" in page.text
    page = client.post("/row/1/accept")
    assert session.store.progress()["counted"] == 0
    assert set(session.store.row_answers(int(row))) == {0, 1, 2}
    client.post("/select", {"row": row})
    assert [session.store.item(i).row for i in range(session.store.length())].count(row) == 1
    # The next row comes from the same list, with its filter.
    listed = session.find_rows(1, 1)
    page = client.post("/select", {"row": listed[2], "filter": "label=1&given=1"})
    position = session.store.length() - 1
    page = client.post(f"/row/{position}/accept", {"filter": "label=1&given=1"})
    assert page.element("title").startswith(f"Row {listed[3]} ")
    assert 'value="label=1&amp;given=1"' in page.text
    client.post("/select", {"row": listed[-1], "filter": "label=1&given=1"})
    last = client.post(f"/row/{session.store.length() - 1}/next", {"filter": "label=1&given=1"})
    assert "The list ends here" in last.text
    for invalid in (-1, len(TRUE), "x"):
        assert client.post("/select", {"row": invalid}).status == 400


def test_reviewers_see_their_own_answers_and_their_agreement(client, session):
    client.post("/reviewer", {"name": "Ann <b>"})
    answer(client, 0, 0, "yes")
    answer(client, 0, 1, "no")
    client.post("/reviewer", {"name": "Bob"})
    item = session.store.item(0)
    assert {question.answer for question in session.questions(item, "Bob")} == {None}
    assert client.post("/undo").notice == "There is nothing to undo."  # Bob has done nothing
    answer(client, 0, 0, "yes")
    page = answer(client, 0, 1, "yes")
    assert shown_values(page).items() >= {0: 1, 1: 1}.items()
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


def test_rates_that_the_answers_contradict_are_marked(client, session):
    assert "contradict" not in client.get("/rates").text
    for _ in range(40):  # every label is true, so that many labels are missing
        item = session.queue.open("random")
        session.store.record(item, dict.fromkeys(item.asked, "yes"))
    page = client.get("/rates").text
    assert 'id="contradicted"' in page
    assert re.search('class="rate-pos off" id="used-pos-[0-9]"', page)


def test_retraining_changes_the_rates_and_saves_a_model(tmp_path):
    session = make_session(tmp_path / "other", declared="both")
    client = sign_in(make_client(session))
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
    session.close()


def wait(client):
    """Wait until the background training has ended."""
    while client.get("/training").text == '{"state":"running"}':
        time.sleep(0.05)
    assert client.get("/training").text == '{"state":"done"}'
