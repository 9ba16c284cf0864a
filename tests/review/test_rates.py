from __future__ import annotations

import warnings

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ccmn.estimation import estimate_noise
from ccmn.estimation.trusted import count_label
from ccmn.review.rates import Counted, counted
from ccmn.review.store import ANSWERS, Tally
from review.table import TRUE, answer_truly

entries = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from(ANSWERS)), max_size=40)


@given(entries)
def test_agrees_with_the_estimator_of_trusted_rows(found):
    """Section 8.1 on the same entries, one a row."""
    counts = counted([Tally(*entry, 1) for entry in found], 3)
    for label in range(3):
        own = [(given, answer) for j, given, answer in found if j == label]
        noisy = np.array([given for given, _ in own], dtype=np.float64)
        true = np.array([{"yes": 1, "no": 0, "unsure": np.nan}[answer] for _, answer in own])
        expected = count_label(noisy, true, "both")
        assert (counts[label].pos, counts[label].neg) == (expected.pos, expected.neg)


def test_intervals_shrink():
    widths = []
    for m in (0, 4, 16, 64, 256):
        rate = counted([Tally(0, 0, "yes", m // 4), Tally(0, 1, "yes", m - m // 4)], 1)[0].pos
        widths.append(rate.high - rate.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == 1
    assert widths[-1] < 0.1


def test_one_answer_too_few_and_a_row_counts_for_nothing(session):
    item = session.latest()
    for label in item.asked[:-1]:
        session.answer(item, label, "yes")
    assert session.counts() == [Counted()] * 3
    session.answer(item, item.asked[-1], "no")
    assert sum(c.positives + c.negatives for c in session.counts()) == 3
    session.undo()
    assert session.counts() == [Counted()] * 3


def test_rates_are_those_of_the_estimator_with_the_rows_of_the_lot_alone(session):
    answer_truly(session, 60)
    rows = np.array(sorted(session.store.sampled_rows()))
    assert 0 < len(rows) <= session.store.drawn() < session.store.progress()["rows"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = estimate_noise(
            session.subject.data.X,
            session.subject.named_labels,
            trusted=(rows, TRUE[rows]),
            random_state=session.seed,
        )
    found = session.rates()
    np.testing.assert_array_equal(found.rho_pos, expected.rho_pos)
    np.testing.assert_array_equal(found.rho_neg, expected.rho_neg)
    flips = session.subject.given[rows] != TRUE[rows]
    assert sum(c.lost + c.added for c in session.counts()) == flips.sum()


def test_unsure_counts_for_nothing(session):
    assert session.rates() is session.before
    item = session.latest()
    session.store.answer(item, dict.fromkeys(item.asked, "unsure"))
    assert session.store.progress()["counted"] == 1
    assert all(c == (0, 0, 0, 0) for c in session.counts())
    assert session.rates() is session.before
