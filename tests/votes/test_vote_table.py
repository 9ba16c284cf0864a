"""Votes in arrays, long tables and sparse matrices are read as the same table; rows are sliced as in an array."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from ccmn._files import ColumnError
from ccmn.data.column_roles import ColumnRoles
from ccmn.data.vote_files import majority, read_votes
from ccmn.votes import VoteTable

SPARSE_CUBES = tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 15)


def example(n=7, a=4, q=3, seed=0):
    rng = np.random.default_rng(seed)
    votes = rng.integers(0, 2, (n, a, q)).astype(float)
    votes[rng.random((n, a)) < 0.4] = np.nan
    votes[0, 0], votes[n - 1, a - 1] = 1.0, 0.0  # all annotators and rows at the ends occur
    return votes


def long_table(votes, *, value=True):
    row, annotator, label = np.nonzero(~np.isnan(votes))
    columns = {"row": row, "annotator": [f"a{w}" for w in annotator], "label": [f"l{j}" for j in label]}
    frame = pd.DataFrame({**columns, "value": votes[row, annotator, label]})
    return frame if value else frame[frame.value == 1].drop(columns="value")


@given(st.integers(0, 1000))
def test_all_containers_give_the_same_table(seed):
    votes = example(seed=seed)
    n = len(votes)
    sparse = []
    for j in range(votes.shape[2]):
        row, annotator = np.nonzero(~np.isnan(votes[:, :, j]))
        values = votes[row, annotator, j]
        sparse.append(scipy.sparse.coo_array((values, (row, annotator)), shape=votes.shape[:2]))  # keeps stored zeros
    shuffled = long_table(votes).sample(frac=1, random_state=seed)
    given_at = np.nonzero(~np.isnan(votes))
    cube = [scipy.sparse.coo_array((votes[given_at], given_at), shape=votes.shape)] if SPARSE_CUBES else []
    for given_votes in (votes, sparse, VoteTable.read(votes), *cube):
        np.testing.assert_array_equal(VoteTable.read(given_votes).to_array(), votes)
    counts, sums = (~np.isnan(votes)).sum(1), np.nansum(votes, 1)
    np.testing.assert_array_equal(VoteTable.read(votes).count(), counts)
    np.testing.assert_allclose(VoteTable.read(votes).mean(), np.where(counts, sums / np.maximum(counts, 1), np.nan))
    kept = ~np.isnan(votes).all((0, 2))
    table = VoteTable.read(shuffled.assign(row=shuffled["row"].astype(str)) if seed % 2 else shuffled, n_rows=n)
    np.testing.assert_array_equal(table.to_array(), votes[:, kept])
    assert table.annotator_names == tuple(f"a{w}" for w in np.flatnonzero(kept))
    assert table.label_names == ("l0", "l1", "l2")


def test_lines_without_values_are_assigned_labels_and_other_labels_are_zero():
    lines = [(0, "ann", "sea"), (0, "ann", "sky"), (0, "bob", "sky"), (1, "bob", None), (2, "ann", "sea")]
    table = VoteTable.read(pd.DataFrame(lines, columns=["row", "annotator", "label"]))
    nan = np.nan
    expected = [[[1, 1], [0, 1]], [[nan, nan], [0, 0]], [[1, 0], [nan, nan]]]
    np.testing.assert_array_equal(table.to_array(), expected)


@pytest.mark.parametrize("rows", [slice(1, 5), [3, 3, 0], np.arange(7) % 2 == 0, np.array([], dtype=int), [-1]])
def test_rows_are_sliced_as_in_an_array(rows):
    votes = example(seed=5)
    part = VoteTable.read(votes)[rows]
    np.testing.assert_array_equal(part.to_array(), votes[rows])
    assert len(part) == len(votes[rows])


def test_last_vote_of_an_annotator_counts():
    table = VoteTable([0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 1], (1, 1, 1))
    assert table.value.tolist() == [1.0]
    assert VoteTable([0, 0], [0, 0], [0, 0], [1, 0], (1, 1, 1)).value.tolist() == [0.0]


def test_rows_by_identifier():
    frame = pd.DataFrame({"row": ["b", "a", "b"], "annotator": [0, 0, 1], "label": "x", "value": [1, 0, 1]})
    assert VoteTable.read(frame).row_ids == ("a", "b")
    table = VoteTable.read(frame, n_rows=3, row_ids=["c", "b", "a"])
    assert np.isnan(table.mean()[0, 0])
    assert table.mean()[1:, 0].tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="'b'"):
        VoteTable.read(frame, n_rows=2, row_ids=["c", "a"])


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        (np.ones((3, 2)), r"\(n, annotators, labels\)"),
        (np.full((2, 2, 2), -1.0), "NaN where"),
        (pd.DataFrame({"row": [0], "annotator": [0]}), "columns row, annotator, label"),
        (pd.DataFrame({"row": [5], "annotator": [0], "label": ["x"], "value": [0]}), "from 0 to 2"),
        (pd.DataFrame({"row": [0], "annotator": [0], "label": ["x"], "value": [1]}), "no vote below 1"),
        (pd.DataFrame({"row": [0], "annotator": [None], "label": ["x"]}), "annotator of every vote"),
    ],
)
def test_invalid_votes(votes, message):
    with pytest.raises(ValueError, match=message):
        VoteTable.read(votes, n_rows=3)


def test_long_table_in_a_file(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text(
        "id,who,tag,size,comment\n7,ann,sea,1.5,blue\n7,bob,sky,1.5,blue\n7,ann,sky,1.5,blue\n10,bob,,2,dark\n"
    )
    votes, items = read_votes(path, ["id", "who", "tag"], ColumnRoles(text=("comment",)))
    assert votes.row_ids == ("10", "7")
    assert items.features.to_dict("list") == {"size": ["2", "1.5"], "comment": ["dark", "blue"]}
    assert majority(votes).tolist() == [[0, 0], [0, 1]]  # sea has one vote of two
    np.testing.assert_array_equal(votes.to_array()[1], [[1, 1], [0, 1]])
    frame = pd.read_csv(path)
    frame.to_parquet(tmp_path / "votes.parquet")
    again, _ = read_votes(tmp_path / "votes.parquet", ["id", "who", "tag"])
    assert again.row_ids == (7, 10)
    with pytest.raises(ValueError, match="no column 'label'"):
        read_votes(path, ["id", "who", "label"])


def test_columns_that_differ_within_an_item_are_not_features(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text("id,who,tag,vote,minute,size\n7,ann,sea,1,5,2\n7,bob,sea,0,6,2\n8,ann,sea,0,7,3\n")
    with pytest.raises(ColumnError, match=r"votes\.csv: column 'vote' .* use --votes id,who,tag,vote; .*--ignore vote"):
        read_votes(path, ["id", "who", "tag"])
    with pytest.warns(UserWarning, match="not used: 'minute'"):
        votes, items = read_votes(path, ["id", "who", "tag", "vote"])
    assert list(items.features) == ["size"]
    assert votes.value.tolist() == [1, 0, 0]
    with pytest.raises(ColumnError, match=r"column 'minute' \(--text\) differs between the votes"):
        read_votes(path, ["id", "who", "tag", "vote"], ColumnRoles(text=("minute",)))


def test_items_in_their_own_file(tmp_path):
    (tmp_path / "votes.csv").write_text("id,who,tag\n7,ann,sea\n8,bob,\n7,bob,sea\n")
    (tmp_path / "items.csv").write_text("name,size,words\n9,1,none\n8,2,dark\n7,3,blue\n")
    roles = ColumnRoles(text=("words",), id="name")
    votes, items = read_votes(tmp_path / "votes.csv", ["id", "who", "tag"], roles, tmp_path / "items.csv")
    assert votes.row_ids == ("9", "8", "7")
    assert items.features.to_dict("list") == {"size": ["1", "2", "3"], "words": ["none", "dark", "blue"]}
    np.testing.assert_array_equal(majority(votes), [[np.nan], [0], [1]])
    (tmp_path / "items.csv").write_text("name,size,words\n8,2,dark\n")
    with pytest.raises(ValueError, match="'7', which is not the identifier of a row"):
        read_votes(tmp_path / "votes.csv", ["id", "who", "tag"], roles, tmp_path / "items.csv")


def test_values_of_votes_that_are_not_numbers(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text("id,who,tag,value\n7,ann,sea,1\n7,bob,sea,maybe\n8,ann,sea,0\n8,bob,sea,\n")
    with pytest.raises(ValueError, match=r"votes\.csv: column 'value' must .*; got 'maybe'"):
        read_votes(path, ["id", "who", "tag", "value"])
    path.write_text(path.read_text().replace("maybe", "NaN"))
    assert read_votes(path, ["id", "who", "tag", "value"])[0].value.tolist() == [1, 0]
