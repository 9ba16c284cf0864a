import warnings

import numpy as np
import pytest

from app.review.example import TRUE, answer_correctly, make_session
from ccmn.app import review
from ccmn.data import MultiLabelData
from ccmn.estimation import estimate_noise
from ccmn.noise import ClassConditionalNoise

MAX_QUESTIONS = 24


@pytest.fixture
def make_queue(tmp_path):
    """Return a function that starts a review of random labels and returns its lists."""
    sessions = []

    def make_queue(q=3, n=12, given=None):
        rng = np.random.default_rng(0)
        given = rng.integers(0, 2, size=(n, q)) if given is None else given
        data = MultiLabelData(rng.normal(size=(n, 2)), given)
        folder = tmp_path / str(len(sessions))
        noise = ClassConditionalNoise(0.3, 0.3, n_labels=q)
        sessions.append(review.ReviewSession(review.ReviewDataset(data), rng.random((n, q)), noise, folder, 5))
        return sessions[-1].queue

    yield make_queue
    for session in sessions:
        session.close()


def all_items(queue, stream, accept=False):
    """Return all items of a list, and answer them if requested."""
    items, item = [], queue.after(-1, stream)
    while item is not None:
        items.append(item)
        if accept:
            queue.store.record(item, dict.fromkeys(item.asked, "no"))
        item = queue.after(item.position, stream)
    return items


def test_order_of_the_random_sample_is_fixed(make_queue):
    queue = make_queue()
    queue.after(-1, "suspicious")
    sample = [item.row for item in all_items(queue, "random")]
    assert sample == np.random.default_rng(5).permutation(12).tolist()


def test_the_next_row_belongs_to_the_open_list(make_queue):
    queue = make_queue()
    first, drawn = queue.after(-1, "suspicious"), queue.after(-1, "random")
    second = queue.after(first.position, "suspicious")
    assert [item.stream for item in (first, drawn, second)] == ["suspicious", "random", "suspicious"]
    assert queue.after(drawn.position, "random").stream == "random"
    assert queue.store.neighbor(second.position, "suspicious", -1) == first
    assert queue.store.neighbor(first.position, "suspicious", -1) is None
    assert queue.open("random") == queue.store.neighbor(queue.store.length(), "random", -1)


def test_suspicious_rows_stay_in_the_random_sample(make_queue):
    queue = make_queue()
    all_items(queue, "suspicious", accept=True)
    assert queue.store.progress()["counted"] == 0
    assert queue.after(-1, "random") is None  # every row of the sample has its answers already
    sample = queue.store._query("SELECT row FROM items WHERE stream = 'random'")
    assert len(sample) == len({row for (row,) in sample}) == 12
    assert sorted(queue.store.sampled_rows()) == list(range(12))


def test_answers_for_many_rows_do_not_count_as_answers_of_random_rows(make_queue):
    queue = make_queue()
    queue.store.record_many([(row, j, "yes") for row in range(12) for j in range(3)])
    item = queue.after(-1, "random")
    assert item is not None
    assert queue.store.sampled_rows() == []
    assert queue.store.row_answers(item.row, bulk=False) == {}
    queue.store.record(item, dict.fromkeys(item.asked, "no"))
    assert queue.store.sampled_rows() == [item.row]


def test_number_of_questions_is_limited(make_queue):
    q = 3 * MAX_QUESTIONS
    given = np.zeros((40, q), dtype=int)
    given[:, :3] = 1
    queue = make_queue(q=q, n=40, given=given)
    random, suspicious = queue.after(-1, "random"), queue.after(-1, "suspicious")
    assert len(set(random.asked)) == len(set(suspicious.asked)) == MAX_QUESTIONS
    assert set(suspicious.asked) >= {0, 1, 2}  # the given labels
    score = queue.scores.score[suspicious.row]
    assert score[list(suspicious.asked[3:])].min() >= np.delete(score, suspicious.asked).max()
    # The questions of a random row depend on random_state and row only, not on the given labels.
    other = make_queue(q=q, n=40, given=1 - given)
    assert other.after(-1, "random").asked == random.asked


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
            random_state=int(np.random.default_rng(session.random_state).integers(2**31)),
        )
    rates = session.rates()
    np.testing.assert_array_equal(rates.rho_pos, expected.rho_pos)
    np.testing.assert_array_equal(rates.rho_neg, expected.rho_neg)
    session.close()
