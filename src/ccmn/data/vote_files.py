"""Long tables of votes: CSV and Parquet files with one line per vote."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._files import ColumnError, PathLike, check_file, check_unpacked_size, prefix_errors, unpacked_limit
from ccmn._messages import warn
from ccmn.data.cells import category_name
from ccmn.data.column_roles import ColumnRoles, require_columns
from ccmn.data.exchange import MEMORY_PER_VOTE
from ccmn.data.formats import read_table
from ccmn.data.labeled_table import LabeledTable, RawTable
from ccmn.vote_table import VoteTable

MEMORY_PER_CELL = 24
"""Bytes per row and label: number of votes, their sum and the label."""


def read_votes(
    path: PathLike, columns: Sequence[str], roles: ColumnRoles | None = None, items: PathLike | None = None
) -> tuple[VoteTable, LabeledTable]:
    """Read a long table of votes with one line per vote, CSV or Parquet, and the items that the votes are about.

    ``columns`` name the item, the annotator, the label and (optional) the value of a vote. Without a value, every line
    is a label that the annotator assigned to the item; a line with an empty label assigns none.

    ``items`` is a table with one row per item, also of items without votes. Its column of the items is ``roles.id``, by
    default the name in ``columns``. Without a file, the columns of the votes describe the items, in the sorted order
    of their identifiers, if they are the same in all lines of an item. A text that differs is a ``ColumnError``.
    """
    path, roles = check_file(path), roles or ColumnRoles()
    voted = read_table(path)
    text = voted.places is not None  # identifiers and labels of CSV files stay texts
    frame = voted.frame.mask(voted.frame == "", None) if text else voted.frame
    with prefix_errors(path):
        require_columns(list(frame.columns), "--votes", columns)
        _check_size(frame[list(columns)], unpacked_limit(path))
    key = roles.id or columns[0]
    if items is None:
        with prefix_errors(path):
            raw = _items_of_votes(replace(voted, frame=frame), columns, replace(roles, id=None))
    else:
        raw = read_table(items)
        with prefix_errors(raw.path):
            require_columns(list(raw.frame.columns), "--items", [key])
        raw = replace(raw, frame=raw.frame.assign(**{key: raw.frame[key].map(category_name)}))
    table = LabeledTable.read(raw, replace(roles, id=key if items else columns[0]), labeled=False)
    with prefix_errors(path):
        named = frame[list(columns)]
        if items is not None:
            named = named.assign(**{columns[0]: named[columns[0]].map(category_name)})
        votes = VoteTable.read(named, row_ids=raw.frame[table.roles.id].tolist())
    return votes, table


def majority(votes: VoteTable) -> NDArray[np.float64]:
    """Return the majority of the votes on every label of every row; NaN where nobody voted."""
    mean = votes.mean()
    return np.where(np.isnan(mean), np.nan, mean > 0.5)


def _items_of_votes(voted: RawTable, columns: Sequence[str], roles: ColumnRoles) -> RawTable:
    """Return one line per item with the columns that do not differ between the votes on an item."""
    import pandas as pd

    frame, item = voted.frame, columns[0]
    codes, _ = pd.factorize(frame[item], sort=True)
    found = pd.Series(np.arange(len(frame))).groupby(codes).first()
    first = found[found.index >= 0].to_numpy()
    kept: list[str] = [item]
    differing: list[str] = []
    for name in frame.columns.difference(list(columns), sort=False):
        values = pd.factorize(frame[name])[0]
        same = (values == values[first][codes])[codes >= 0].all()
        (kept if same else differing).append(name)
    _check_differing(frame, columns, roles, differing)
    lines = frame.iloc[first][kept].reset_index(drop=True)
    return replace(voted, frame=lines, places=voted.places and [voted.places[row] for row in first])


def _check_differing(frame: Any, columns: Sequence[str], roles: ColumnRoles, differing: Sequence[str]) -> None:
    """Reject, or report, columns whose values differ between the votes on an item: they do not describe the item."""
    chosen = {"--text": roles.text, "--image": (roles.image,)}
    for option, names in chosen.items():
        for name in set(names) & set(differing):
            raise ColumnError(
                f"column {name!r} ({option}) differs between the votes on an item; expected one value per item"
            )
    unused = [name for name in differing if name not in roles.ignore]
    values = [name for name in unused if set(frame[name].dropna().astype(str)) <= {"0", "1", "0.0", "1.0"}]
    if values and len(columns) == 3:
        wanted = ",".join((*columns, values[0]))
        raise ColumnError(
            f"column {values[0]!r} contains 0 and 1 and differs between the votes on an item. If it is the value of a "
            f"vote, use --votes {shlex.quote(wanted)}; otherwise use --ignore {shlex.quote(values[0])}."
        )
    if unused:
        warn(f"columns that differ between the votes on an item are not used: {', '.join(map(repr, unused))}")


def _check_size(votes: Any, limit: int) -> None:
    """Reject a table whose dense labels, and votes of 0 that it implies, take too much memory."""
    try:
        n, q = (votes.iloc[:, place].nunique() for place in (0, 2))
    except TypeError:  # lists cannot be compared
        raise ValueError("the columns of item, annotator and label must contain single values; got lists") from None
    implied = 0 if votes.shape[1] == 4 else len(votes.iloc[:, :2].drop_duplicates()) * q
    check_unpacked_size(MEMORY_PER_CELL * n * q + MEMORY_PER_VOTE * implied, limit)
