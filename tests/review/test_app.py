"""The page as it is used: answers, two tabs, undo, export, retraining; and names that are HTML."""

from __future__ import annotations

import re
import time
from html import escape

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the review page needs starlette: pip install 'ccmn[review]'")

from ccmn.models import load_model
from ccmn.review.pictures import FeaturePictures, FilePictures, Shape
from ccmn.review.queue import EVERY_AT_FIRST
from review.browser import enter, make_browser
from review.table import NAMES, TRUE, answer_truly, make_session, make_subject

EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>'


@pytest.fixture
def browser(session):
    return enter(make_browser(session, epochs=20, lr=0.05))


def answer(browser, position, label, word):
    return browser.post(f"/row/{position}/answer", {"label": label, "answer": word})


def pressed(page):
    """Label -> answer, as the page shows them."""
    found = re.findall(r'id="label-(\d+)".*?</form>', page.text)
    forms = dict(zip(map(int, found), re.findall(r'<form class="label (\w+)"', page.text)))
    return {label: state for label, state in forms.items() if state != "open"}


def test_answers_are_kept_and_shown(browser, session):
    page = answer(browser, 0, 1, "no")
    row = session.store.item(0).row
    assert session.store.answers_of(row) == {1: "no"}
    assert pressed(page) == {1: "no"}
    assert page.figure("answers") == "1"
    assert 'value="no" aria-pressed="true"' in page.text
    page = answer(browser, 0, 1, "unsure")
    assert session.store.answers_of(row) == {1: "unsure"}


def test_it_says_openly_why_a_row_is_shown(browser):
    assert "drawn by lot" in browser.get("/row/0").text
    assert "they alone count for the rates" in browser.get("/row/0").text
    for position in range(EVERY_AT_FIRST - 1):
        page = browser.post(f"/row/{position}/next")
    assert "looks wrong" in page.text
    assert "they do not count for the rates" in page.text


def test_focus_goes_to_the_next_open_label_and_then_to_the_next_row(browser):
    def focused(page):
        (found,) = re.findall(r"<[^>]*data-focus[^>]*>", page.text)
        return found

    assert escape(f"Yes: {NAMES[0]}") in focused(browser.get("/row/0"))
    assert escape(f"Yes: {NAMES[2]}") in focused(answer(browser, 0, 1, "yes"))
    assert escape(f"Yes: {NAMES[0]}") in focused(answer(browser, 0, 2, "yes"))
    assert "ArrowRight" in focused(answer(browser, 0, 0, "yes"))
    page = browser.post("/undo")
    assert escape(f"Yes: {NAMES[0]}") in focused(page)


def test_the_rest_is_right_as_given_and_nothing_else_changes(browser, session):
    row = session.store.item(0).row
    other = "no" if session.subject.given[row, 0] == 1 else "yes"
    answer(browser, 0, 0, other)
    page = browser.post("/row/0/accept")
    words = {j: "yes" if session.subject.given[row, j] else "no" for j in range(3)}
    assert session.store.answers_of(row) == {**words, 0: other}
    assert page.figure("counted") == "1"


def test_two_tabs(browser, session):
    """Both show row 0 as it was in the beginning; what either says stands, the later word on the same label."""
    answer(browser, 0, 0, "yes")  # the first tab
    answer(browser, 0, 0, "no")  # the second, which still showed it as open
    page = answer(browser, 0, 1, "yes")
    assert pressed(page) == {0: "no", 1: "yes"}
    page = browser.post("/row/0/accept")  # by a tab that never saw these answers
    assert pressed(page).items() >= {0: "no", 1: "yes"}.items()
    first, second = browser.post("/row/0/next"), browser.post("/row/0/next")
    assert first.figure("title") == second.figure("title")  # the same next row for both
    assert session.store.length() == 2


def test_undo_goes_back_to_what_was_taken_back(browser, session):
    answer(browser, 0, 2, "yes")
    browser.post("/row/0/next")
    page = browser.post("/undo")
    assert page.said == "The latest decision was taken back."
    assert page.figure("title").startswith(f"Row {session.store.item(0).row} ")
    assert session.store.entries() == []
    assert browser.post("/undo").said == "There is nothing to take back."


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
        {"label": 0, "answer": EVIL},
        {f"field{i}": 1 for i in range(20)},
    ],
)
def test_answers_that_are_none(browser, session, fields):
    assert browser.post("/row/0/answer", fields).status == 400
    assert browser.ask("POST", "/row/0/answer", b"\xff\xfe", {"origin": "http://127.0.0.1:8000"}).status == 400
    assert session.store.entries() == []


@pytest.mark.parametrize("address", ["/row/0/answer", "/row/0/accept", "/row/0/next", "/undo", "/row/0/retrain"])
def test_looking_changes_nothing(browser, session, address):
    assert browser.get(address).status == 405
    assert session.store.length() == 1


def test_places_that_were_not_reached(browser):
    for what in ("answer", "accept", "next", "export", "retrain"):
        assert browser.post(f"/row/5/{what}").status == 404


def test_html_in_names_and_texts_is_text(tmp_path):
    session = make_session(tmp_path / "review", texts=[EVIL] * len(TRUE))
    page = enter(make_browser(session)).get("/row/0")
    for name in (*NAMES, EVIL, "<i>table</i>"):
        assert escape(name) in page.text
        if "<" in name:
            assert name not in page.text
    assert f'aria-label="Yes: {NAMES[2]}"' not in page.text  # a quote does not end an attribute
    assert "<script>" not in page.text
    session.close()


def test_an_address_cannot_put_words_into_the_page(browser):
    page = browser.get(f"/row/0?said={EVIL}&at={EVIL}&after={EVIL}")
    assert page.said == ""
    assert "alert" not in page.text


def test_features_are_shown_where_there_is_nothing_else(browser):
    text = browser.get("/row/0").text
    assert "deviations from the mean" in text
    assert "<th scope=row>x0</th>" in text
    assert "/picture/" not in text


def test_pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"a picture")
    (tmp_path / "secret.png").write_bytes(b"a secret")
    names = ["a.png"] * (len(TRUE) - 1) + ["../secret.png"]
    session = make_session(tmp_path / "review", picture=FilePictures(names, folder))
    browser = enter(make_browser(session))
    row = session.store.item(0).row
    assert f'src="/picture/{row}" alt="the picture of row {row}"' in browser.get("/row/0").text
    assert browser.get("/picture/0").body == b"a picture"
    assert browser.get(f"/picture/{len(TRUE) - 1}").status == 404  # outside the folder
    assert browser.get(f"/picture/{len(TRUE)}").status == 404
    session.close()
    features = make_session(tmp_path / "other", picture=FeaturePictures(make_subject().data.X, Shape(1, 3)))
    answer = enter(make_browser(features)).get("/picture/0")
    assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.body.startswith(b"\x89PNG")
    features.close()


def test_the_end(browser, session):
    item = session.latest()
    while (found := session.queue.after(item.position)) is not None:
        item = found
    page = browser.post(f"/row/{item.position}/next")
    assert "Every row was looked at" in page.text
    assert f"/row/{item.position}" in page.text


def test_export(browser, session):
    answer_truly(session, 4)
    assert browser.post("/row/0/export").said == "Exported."
    assert (session.folder / "corrected.npz").exists()


def test_retraining_changes_the_rates_and_saves_a_model(browser, session):
    answer_truly(session, 100)
    before = browser.get("/row/0")
    assert "No model was trained yet" in before.text
    page = browser.post("/row/0/retrain")
    assert page.said.startswith("Training has begun")
    wait(browser)
    after = browser.get("/row/0")
    assert [after.figure(f"used-pos-{j}") for j in range(3)] != [before.figure(f"used-pos-{j}") for j in range(3)]
    assert "of their labels put right" in after.text
    model = load_model(session.folder / "model.ccmn")
    np.testing.assert_allclose(model.noise_.rho_pos, session.rates().rho_pos)
    assert model.label_names_ == NAMES


def wait(browser):
    """Until the training in the background is over."""
    while browser.get("/training").text == '{"state":"running"}':
        time.sleep(0.05)
    assert browser.get("/training").text == '{"state":"done"}'
