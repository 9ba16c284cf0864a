from __future__ import annotations

import sqlite3
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.review.store import ANSWERS, DecisionStore, Entry, Item, Tally

FACTS = {"rows": 6}
ITEMS = [Item(0, 4, "random", (0, 1)), Item(1, 2, "suspicious", (1, 0)), Item(2, 5, "random", (0, 1))]
GIVEN = {4: (1, 0), 2: (0, 0), 5: (None, 1)}


def queued(path) -> DecisionStore:
    store = DecisionStore(path, FACTS)
    for item in ITEMS:
        store.append(item, [GIVEN[item.row][j] for j in item.asked])
    return store


class Twin:
    """The same in memory: a list of states, one for every action."""

    def __init__(self):
        self.states = [{}]

    def act(self, item, answers, open_only):
        state = dict(self.states[-1])
        for label, value in answers.items():
            if not (open_only and (item.row, label) in state):
                state[item.row, label] = value
        if state != self.states[-1]:
            self.states.append(state)

    def undo(self):
        if len(self.states) > 1:
            self.states.pop()

    def tallies(self):
        state, found = self.states[-1], {}
        for item in ITEMS:
            if item.stream == "random" and all((item.row, label) in state for label in item.asked):
                for label in item.asked:
                    key = label, GIVEN[item.row][label], state[item.row, label]
                    found[key] = found.get(key, 0) + 1
        return {key: times for key, times in found.items() if key[1] is not None}


actions = st.one_of(
    st.just(None),
    st.tuples(
        st.sampled_from(ITEMS), st.dictionaries(st.integers(0, 1), st.sampled_from(ANSWERS), min_size=1), st.booleans()
    ),
)


@given(done=st.lists(actions, max_size=25))
def test_agrees_with_a_list_of_states(done):
    with queued(":memory:") as store:
        twin = Twin()
        for action in done:
            if action is None:
                assert (store.undo() is None) == (len(twin.states) == 1)
                twin.undo()
            else:
                item, answers, open_only = action
                store.answer(item, answers, open_only=open_only)
                twin.act(item, answers, open_only)
            assert {(e.row, e.label): e.answer for e in store.entries()} == twin.states[-1]
            assert {tally[:3]: tally.times for tally in store.tallies()} == twin.tallies()
            assert store.can_undo() == (len(twin.states) > 1)


def test_only_complete_rows_of_the_lot_count(tmp_path):
    with queued(tmp_path / "decisions.db") as store:
        store.answer(ITEMS[1], {0: "yes", 1: "no"})  # suspicious: never
        store.answer(ITEMS[0], {0: "yes"})  # not complete
        assert (store.tallies(), store.sampled_rows()) == ([], [])
        store.answer(ITEMS[0], {1: "unsure"})
        assert store.tallies() == [Tally(0, 1, "yes", 1), Tally(1, 0, "unsure", 1)]
        assert store.sampled_rows() == [4]
        store.answer(ITEMS[2], {0: "yes", 1: "yes"})  # what was not observed says nothing of flips
        assert Tally(0, 1, "yes", 1) in store.tallies()
        assert store.sampled_entries()[0] == Entry(4, 0, "yes")
        assert store.progress() == {"rows": 3, "answers": 6, "drawn": 2, "counted": 2}


def test_an_action_of_several_answers_is_undone_as_one(tmp_path):
    with queued(tmp_path / "decisions.db") as store:
        store.answer(ITEMS[0], {0: "no"})
        store.answer(ITEMS[0], {0: "yes", 1: "yes"})
        assert store.undo() == (0, (0, 1))
        assert store.answers_of(4) == {0: "no"}
        store.undo()
        assert store.answers_of(4) == {}
        assert store.undo() is None


def test_everything_is_there_when_it_is_opened_again(tmp_path):
    path = tmp_path / "decisions.db"
    store = queued(path)
    store.answer(ITEMS[0], {0: "no"})
    store.keep_fact("trained", {"a": 1})
    with DecisionStore(path, FACTS) as again:  # while the first is still open, as after a kill
        assert again.entries() == [Entry(4, 0, "no")]
        assert again.item(1) == ITEMS[1]
        assert (again.length(), again.drawn(), again.queued_rows()) == (3, 2, {2, 4, 5})
        assert again.fact("trained") == {"a": 1}
        assert again.undo() == (0, (0,))
    assert store.entries() == []
    store.close()


def test_many_threads_and_two_connections_lose_nothing(tmp_path):
    path, item = tmp_path / "decisions.db", Item(0, 1, "random", tuple(range(40)))
    with DecisionStore(path, FACTS) as one, DecisionStore(path, FACTS) as other:
        threads = [
            threading.Thread(target=(one, other)[j % 2].answer, args=(item, {j: "yes"})) for j in range(len(item.asked))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.answers_of(1) == dict.fromkeys(range(40), "yes")
        assert len(one._query("SELECT DISTINCT action FROM decisions")) == 40


def test_a_place_that_is_taken_stays(tmp_path):
    with queued(tmp_path / "decisions.db") as store:
        store.append(Item(0, 1, "random", (0,)), [1])
        assert store.item(0) == ITEMS[0]
        assert store._query("SELECT row FROM sample WHERE row = 1") == []


def test_refuses_what_it_should(tmp_path):
    path = tmp_path / "decisions.db"
    queued(path).close()
    with pytest.raises(ValueError, match="are about other data: rows is 6 there and 7 here"):
        DecisionStore(path, {"rows": 7})
    with DecisionStore(path, FACTS) as store, pytest.raises(ValueError, match="an answer"):
        store.answer(ITEMS[0], {0: "perhaps"})
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (a)")
    with pytest.raises(ValueError, match="not a file of decisions"):
        DecisionStore(other, FACTS)
    (tmp_path / "text.db").write_text("not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(ValueError, match="not a file of decisions"):
        DecisionStore(tmp_path / "text.db", FACTS)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        DecisionStore(tmp_path / "nowhere" / "decisions.db", FACTS)
