from __future__ import annotations

import numpy as np
import pytest

from ccmn.noise import ClassConditionalNoise
from ccmn.review.doubt import Doubt
from ccmn.review.queue import MOST_ASKED, ReviewQueue
from ccmn.review.store import DecisionStore


def make_queue(q=3, n=12, seed=5, given=None):
    rng = np.random.default_rng(0)
    given = rng.integers(0, 2, size=(n, q)).astype(np.float32) if given is None else given
    doubt = Doubt(given, rng.random(given.shape), ClassConditionalNoise(np.full(q, 0.3), np.full(q, 0.3)))
    return ReviewQueue(DecisionStore(":memory:", {}), given, doubt, seed)


def walk(queue, accept=False):
    """Every place to the end."""
    found, item = [], queue.after(-1)
    while item is not None:
        found.append(item)
        if accept:
            queue.store.answer(item, dict.fromkeys(item.asked, "no"))
        item = queue.after(item.position)
    return found


@pytest.fixture(autouse=True)
def alternate(request, monkeypatch):
    """Every other row a suspicious one from the first on, so that a few rows show everything."""
    if "at_first" not in request.node.name:
        monkeypatch.setattr("ccmn.review.queue.FIRST", 0)


def test_mostly_by_lot_at_first():
    streams = [item.stream for item in walk(make_queue(n=400))]
    assert streams[:16] == (["random"] * 7 + ["suspicious"]) * 2
    hundredth = [i for i, stream in enumerate(streams) if stream == "random"][99]
    assert streams[hundredth + 1 : hundredth + 9].count("suspicious") == 4


def test_the_lot_is_in_an_order_that_nothing_changes():
    queue = make_queue()
    items = walk(queue)
    lot = [item.row for item in items if item.stream == "random"]
    assert lot == np.random.default_rng(5).permutation(12).tolist()
    assert [item.stream for item in items[:4]] == ["random", "suspicious"] * 2
    suspicious = [item.row for item in items if item.stream == "suspicious"]
    assert all(queue.doubt.highest[row] >= 0.5 for row in suspicious)
    before = set(lot[:1])
    expected = next(row for row in queue.doubt.order if row not in before)
    assert suspicious[0] == expected


def test_rows_that_were_suspicious_first_are_drawn_all_the_same():
    queue = make_queue()
    walk(queue, accept=True)
    drawn = queue.store._query("SELECT row FROM items WHERE stream = 'random'")
    assert len(drawn) == len({row for (row,) in drawn}) == 12  # the sample is everything in the end, none left out
    assert sorted(queue.store.sampled_rows()) == list(range(12))


def test_what_was_answered_in_full_is_not_shown_again():
    shown = [item.row for item in walk(make_queue(), accept=True)]
    assert len(shown) == len(set(shown))


def test_the_same_place_is_the_same_row_for_every_tab():
    queue = make_queue()
    first, again = queue.after(-1), queue.after(-1)
    assert first == again == queue.item(0)
    assert queue.after(0) == queue.after(0)
    assert queue.item(7) is None


def test_new_doubt_changes_suspicious_rows_only():
    queue, twin = make_queue(), make_queue()
    queue.after(-1), twin.after(-1)
    twin.doubt = Doubt(1 - queue.given, np.full(queue.given.shape, 0.5), ClassConditionalNoise([0.4] * 3, [0.4] * 3))
    lots = [[item.row for item in walk(q) if item.stream == "random"] for q in (queue, twin)]
    assert lots[0] == lots[1]


def test_of_many_labels_some_are_asked_about():
    q = 3 * MOST_ASKED
    queue = make_queue(q=q, n=40)
    random, suspicious = queue.after(-1), queue.after(0)
    assert len(set(random.asked)) == len(set(suspicious.asked)) == MOST_ASKED
    doubt = queue.doubt.of_row(suspicious.row)
    assert doubt[list(suspicious.asked)].min() >= np.delete(doubt, suspicious.asked).max()
    assert [doubt[j] for j in suspicious.asked] == sorted(doubt[list(suspicious.asked)], reverse=True)
    # Which labels a random row asks about depends on seed and row alone, never on the labels given.
    other = make_queue(q=q, n=40, given=1 - queue.given)
    assert other.after(-1).asked == random.asked


def test_labels_that_were_not_observed_are_asked_about_and_never_suspicious():
    given = np.full((4, 2), np.nan, dtype=np.float32)
    queue = make_queue(q=2, given=given)
    items = walk(queue)
    assert {item.stream for item in items} == {"random"}
    assert queue.store._query("SELECT DISTINCT given FROM sample") == [(None,)]


def test_doubt_is_p_wrong():
    from ccmn.audit import find_label_issues

    queue = make_queue(q=4, n=30)
    doubt = queue.doubt
    noise = ClassConditionalNoise([0.3] * 4, [0.3] * 4)
    issues = find_label_issues(queue.given, doubt._pred_proba, noise, min_p_wrong=0)
    for issue in issues.head(50).itertuples():
        assert doubt.of_row(issue.row)[issue.label] == pytest.approx(issue.p_wrong)
    assert doubt.order[0] == issues.row[0]
