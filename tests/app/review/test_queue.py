from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.review.example import TRUE, answer_correctly, make_session
from ccmn.app.issues import find_suspicions
from ccmn.app.review.decisions import ANSWERS, AnswerCount, DecisionStore
from ccmn.app.review.queue import (
    MAX_QUESTIONS,
    ReviewQueue,
    count_flips,
)
from ccmn.audit import find_label_issues
from ccmn.estimation import estimate_noise
from ccmn.estimation.posterior import count_flips as reference
from ccmn.estimation.trusted import jeffreys_rate
from ccmn.noise import ClassConditionalNoise


def make_queue(q=3, n=12, random_state=5, given=None, known=True):
    rng = np.random.default_rng(0)
    given = rng.integers(0, 2, size=(n, q)).astype(np.float32) if given is None else given
    noise = ClassConditionalNoise(np.full(q, 0.3), np.full(q, 0.3))
    scores = find_suspicions(given, rng.random(given.shape), noise, known=known)
    return ReviewQueue(DecisionStore(":memory:", {}), given, scores, random_state)


def all_items(queue, stream, accept=False):
    """Return all items of a list, and answer them if requested."""
    items, item = [], queue.after(-1, stream)
    while item is not None:
        items.append(item)
        if accept:
            queue.store.record(item, dict.fromkeys(item.asked, "no"))
        item = queue.after(item.position, stream)
    return items


def test_order_of_the_random_sample_is_fixed():
    queue = make_queue()
    queue.after(-1, "suspicious")
    sample = [item.row for item in all_items(queue, "random")]
    assert sample == np.random.default_rng(5).permutation(12).tolist()


def test_the_next_row_belongs_to_the_open_list():
    queue = make_queue()
    first, drawn = queue.after(-1, "suspicious"), queue.after(-1, "random")
    second = queue.after(first.position, "suspicious")
    assert [item.stream for item in (first, drawn, second)] == ["suspicious", "random", "suspicious"]
    assert queue.after(drawn.position, "random").stream == "random"
    assert queue.store.neighbor(second.position, "suspicious", -1) == first
    assert queue.store.neighbor(first.position, "suspicious", -1) is None
    assert queue.open("random") == queue.store.neighbor(queue.store.length(), "random", -1)


def test_suspicious_rows_stay_in_the_random_sample():
    queue = make_queue()
    all_items(queue, "suspicious", accept=True)
    assert queue.store.progress()["counted"] == 0
    assert queue.after(-1, "random") is None  # every row of the sample has its answers already
    sample = queue.store._query("SELECT row FROM items WHERE stream = 'random'")
    assert len(sample) == len({row for (row,) in sample}) == 12
    assert sorted(queue.store.sampled_rows()) == list(range(12))


def test_answers_for_many_rows_do_not_count_as_answers_of_random_rows():
    queue = make_queue()
    queue.store.record_many([(row, j, "yes") for row in range(12) for j in range(3)])
    item = queue.after(-1, "random")
    assert item is not None
    assert queue.store.sampled_rows() == []
    assert queue.store.row_answers(item.row, bulk=False) == {}
    queue.store.record(item, dict.fromkeys(item.asked, "no"))
    assert queue.store.sampled_rows() == [item.row]


def test_number_of_questions_is_limited():
    q = 3 * MAX_QUESTIONS
    given = np.zeros((40, q), dtype=np.float32)
    given[:, :3] = 1
    queue = make_queue(q=q, n=40, given=given)
    random, suspicious = queue.after(-1, "random"), queue.after(-1, "suspicious")
    assert len(set(random.asked)) == len(set(suspicious.asked)) == MAX_QUESTIONS
    assert set(suspicious.asked) >= {0, 1, 2}  # the given labels
    score = queue.scores.score[suspicious.row]
    assert score[list(suspicious.asked[3:])].min() >= np.delete(score, suspicious.asked).max()
    # The questions of a random row depend on random_state and row only, not on the given labels.
    other = make_queue(q=q, n=40, given=1 - queue.given)
    assert other.after(-1, "random").asked == random.asked


def test_scores_agree_with_find_label_issues():
    queue = make_queue(q=4, n=30)
    scores = queue.scores
    noise = ClassConditionalNoise([0.3] * 4, [0.3] * 4)
    issues = find_label_issues(queue.given, scores.proba, noise, min_p_wrong=0)
    for issue in issues.head(50).itertuples():
        assert scores.score[issue.row][issue.label] == pytest.approx(issue.p_wrong)
    assert scores.order[0] == issues.row[0]
    assert scores.rank[scores.order].tolist() == list(range(1, 31))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from(ANSWERS)), max_size=40))
def test_flip_counts_agree_with_the_trusted_estimator(answers):
    flips = count_flips([AnswerCount(*answer, 1) for answer in answers], 3)
    for label in range(3):
        own = [(given, answer) for j, given, answer in answers if j == label]
        noisy = np.array([given for given, _ in own], dtype=np.float64)
        true = np.array([{"yes": 1, "no": 0, "unsure": np.nan}[answer] for _, answer in own])
        m_pos, k_pos, m_neg, k_neg = (int(count[0]) for count in reference(noisy[:, None], true[:, None]))
        assert (flips[label].rho_pos, flips[label].rho_neg) == (
            jeffreys_rate(k_pos, m_pos),
            jeffreys_rate(k_neg, m_neg),
        )


def test_rates_are_estimated_from_the_random_sample_only(tmp_path):
    session = make_session(tmp_path / "review", declared=None)
    assert session.rates_in_use() is None
    answer_correctly(session, 20, "suspicious")
    answer_correctly(session, 40)
    rows = np.array(sorted(session.store.sampled_rows()))
    progress = session.store.progress()
    assert 0 < len(rows) <= progress["drawn"] < progress["rows"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = estimate_noise(
            session.dataset.data.X,
            session.dataset.named_labels,
            trusted=(rows, TRUE[rows]),
            random_state=session.random_state,
        )
    rates = session.rates()
    np.testing.assert_array_equal(rates.rho_pos, expected.rho_pos)
    np.testing.assert_array_equal(rates.rho_neg, expected.rho_neg)
    changed = session.dataset.given[rows] != TRUE[rows]
    assert sum(flips.missing + flips.added for flips in session.flip_counts()) == changed.sum()
    session.close()
