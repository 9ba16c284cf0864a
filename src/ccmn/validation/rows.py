"""What is said of single rows: their groups, and which of them are trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_groups(groups: Any, n: int, known: Sequence[Any] | None = None) -> NDArray[np.intp]:
    """The number of every row's group among the known ones (in order of first appearance where none are given)."""
    names = [item.item() if isinstance(item, np.generic) else item for item in groups]
    if len(names) != n:
        raise ValueError(f"groups must name the group of each of the {n} rows; got {len(names)}")
    number = {name: i for i, name in enumerate(dict.fromkeys(names) if known is None else known)}
    strange = next((name for name in names if name not in number), None)
    if strange is not None:
        listed = ", ".join(map(repr, list(number)[:5]))
        raise ValueError(f"there are no rates for group {strange!r}; there are for {listed}")
    return np.array([number[name] for name in names], dtype=np.intp)


def check_trusted_rows(trusted: Any, n: int) -> tuple[NDArray[np.intp], Any]:
    """``(rows, Y_true)`` with numbers of rows of the data, none twice; ``Y_true`` is checked by whoever knows q."""
    if not isinstance(trusted, (tuple, list)) or len(trusted) != 2:
        raise ValueError(
            "trusted must be a pair (rows, Y_true): the numbers of the rows whose true labels are known, and those "
            f"labels; got {type(trusted).__name__}"
        )
    rows = np.asarray(trusted[0])
    if rows.dtype == bool and rows.shape == (n,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or not rows.size or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(f"the rows of trusted must be a list of row numbers; got shape {rows.shape}, {rows.dtype}")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"the rows of trusted must be numbers from 0 to {n - 1}; got {rows.min()} to {rows.max()}")
    if np.unique(rows).size < rows.size:
        raise ValueError("the rows of trusted must differ: a row counted twice would make the result seem surer")
    return rows.astype(np.intp), trusted[1]
