import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.app.review.decisions import ANSWERS, DecisionStore, LabelAnswer, QueueItem

METADATA = {"rows": 6}
ITEMS = [QueueItem(0, 4, "random", (0, 1)), QueueItem(1, 2, "suspicious", (1, 0)), QueueItem(2, 5, "random", (0, 1))]


def make_store(path) -> DecisionStore:
    store = DecisionStore(path, METADATA)
    for item in ITEMS:
        store.append(item)
    return store


class Reference:
    """The same store in memory, as a list with the state after each action."""

    def __init__(self):
        self.states = [{}]

    def record(self, item, answers, only_open):
        state = dict(self.states[-1])
        for label, value in answers.items():
            if not (only_open and (item.row, label) in state):
                state[item.row, label] = value
        if state != self.states[-1]:
            self.states.append(state)

    def undo(self):
        if len(self.states) > 1:
            self.states.pop()

    def complete_rows(self):
        state = self.states[-1]
        random = [item for item in ITEMS if item.stream == "random"]
        return sorted(item.row for item in random if all((item.row, label) in state for label in item.asked))


actions = st.one_of(
    st.just(None),
    st.tuples(
        st.sampled_from(ITEMS), st.dictionaries(st.integers(0, 1), st.sampled_from(ANSWERS), min_size=1), st.booleans()
    ),
)


@given(sequence=st.lists(actions, max_size=25))
def test_agrees_with_the_reference(sequence):
    with make_store(":memory:") as store:
        reference = Reference()
        for action in sequence:
            if action is None:
                assert (store.undo() is None) == (len(reference.states) == 1)
                reference.undo()
            else:
                item, answers, only_open = action
                store.record(item, answers, only_open=only_open)
                reference.record(item, answers, only_open)
            assert {(a.row, a.label): a.answer for a in store.answers()} == reference.states[-1]
            assert store.sampled_rows() == reference.complete_rows()
            assert store.can_undo() == (len(reference.states) > 1)


def test_every_answer_has_the_list_that_its_row_was_chosen_from(tmp_path):
    with make_store(tmp_path / "decisions.db") as store:
        store.record(ITEMS[0], {0: "no"})
        store.record(ITEMS[1], {0: "no"})
        assert store.record_many([(1, 0, "yes"), (2, 0, "yes"), (3, 1, "no")]) == 2  # row 2 has an answer
        chosen = {(answer.row, answer.label): answer.chosen for answer in store.answers()}
        assert chosen == {(4, 0): "random", (2, 0): "suspicious", (1, 0): "bulk", (3, 1): "bulk"}
        assert store.undo()[0] == -1  # all of them at once
        assert {answer.row for answer in store.answers()} == {2, 4}
        assert store.progress()["answers"] == 2


def test_contents_survive_reopening(tmp_path):
    path = tmp_path / "decisions.db"
    store = make_store(path)
    store.record(ITEMS[0], {0: "no"})
    store.set_metadata("trained", {"a": 1})
    with DecisionStore(path, METADATA) as reopened:  # while the first store is open, as after a kill
        assert reopened.answers() == [LabelAnswer(4, 0, "no", "random")]
        assert reopened.item(1) == ITEMS[1]
        assert (reopened.length(), reopened.progress()["drawn"], reopened.queued_rows()) == (3, 2, {2, 4, 5})
        assert reopened.metadata("trained") == {"a": 1}
        assert reopened.undo() == (0, 0)
    assert store.answers() == []
    store.close()


def test_concurrent_threads_and_connections_lose_no_answer(tmp_path):
    path, item = tmp_path / "decisions.db", QueueItem(0, 1, "random", tuple(range(40)))
    with DecisionStore(path, METADATA) as one, DecisionStore(path, METADATA) as other:
        threads = [
            threading.Thread(target=(one, other)[j % 2].record, args=(item, {j: "yes"})) for j in range(len(item.asked))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.row_answers(1) == dict.fromkeys(range(40), "yes")
        assert len(one._query("SELECT DISTINCT action FROM decisions")) == 40


def test_answers_and_decisions_about_other_data_are_rejected(tmp_path):
    path = tmp_path / "decisions.db"
    with make_store(path) as store, pytest.raises(ValueError, match="answer"):
        store.record(ITEMS[0], {0: "perhaps"})
    with pytest.raises(ValueError, match=r"decisions\.db contains decisions about other data: rows is 6 .* 7 "):
        DecisionStore(path, {"rows": 7})
