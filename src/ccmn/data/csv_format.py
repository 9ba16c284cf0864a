"""CSV files: a header line with column names, then one row per line.

Files that contain only plain numbers are read with pandas. All other files, such as those with text columns, quoted
cells, words or errors, are read row by row with the strict reader of the standard library: pandas accepts malformed
quotes and short rows silently and does not report the line of an invalid cell.
"""

from __future__ import annotations

import csv
import io
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from ccmn._containers import is_sparse
from ccmn._files import (
    MAX_LINE_CHARACTERS,
    PathLike,
    UnpackedSizeError,
    atomic_write,
    check_unpacked_size,
    open_text,
    prefix_errors,
    text_lines,
    unpacked_limit,
)
from ccmn.data.column_roles import check_column_names, check_width, csv_records, csv_separator
from ccmn.data.dataset import MultiLabelData
from ccmn.data.labeled_table import RawTable

INDEX_NAMES = ("", "Unnamed: 0")
"""Names of the index of a DataFrame in a CSV file."""
_VALUES_PER_BLOCK = 1 << 22
"""Values that are parsed, or written, together, to bound the memory in addition to that of the result."""


def read_csv(path: Path) -> RawTable:
    """Return all columns as texts, exactly as they are in the file.

    The first line contains the column names. The index of a DataFrame, a first column without a name that numbers the
    rows, is left out.
    """
    import pandas as pd

    names = _read_header(path)
    columns: list[list[str]] = [[] for _ in names]
    lines, size, limit = array("q"), 0, unpacked_limit(path)
    records = csv_records(path)
    next(records)
    for line, cells in records:
        with prefix_errors(f"{path}, line {line}"):
            check_width(cells, len(names))
            size += sum(map(len, cells)) + 8 * len(cells)
            check_unpacked_size(size, limit)
        for column, cell in zip(columns, cells):
            column.append(cell)
        lines.append(line)
    if names[0] in INDEX_NAMES:
        with prefix_errors(path):
            if columns[0] != [str(number) for number in range(len(lines))]:
                check_column_names(names)
        names, columns = names[1:], columns[1:]
    frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in zip(names, columns)})
    return RawTable(path, frame, lines, decimal_comma=csv_separator(next(text_lines(path))) == ";")


def write_csv(data: MultiLabelData, path: PathLike) -> None:
    """Write features, then labels; unnamed columns become x0, x1, ... and label_0, label_1, ..."""
    import pandas as pd

    if data.candidates is not None:
        raise ValueError("CSV cannot store candidate sets in addition to labels; write an .npz file")
    features = data.feature_names or [f"x{j}" for j in range(data.d)]
    labels = data.label_names or [f"label_{j}" for j in range(data.q)]
    with prefix_errors("the names of features and labels together"):
        check_column_names([*features, *labels])
    rows = 1 + _VALUES_PER_BLOCK // (1 + data.d + data.q)
    with atomic_write(path) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        csv.writer(text, lineterminator="\n").writerow([*features, *labels])
        for start in range(0, data.n, rows):
            block = (M[start : start + rows] for M in (data.X, data.Y))
            frame = pd.concat([pd.DataFrame(M.toarray() if is_sparse(M) else M) for M in block], axis=1)
            frame.to_csv(text, header=False, index=False, float_format=_shortest, lineterminator="\n")


def _shortest(value: Any) -> str:
    return str(value).removesuffix(".0")


def read_cells(path: Path) -> Any:
    """Return the cells of a CSV file as a DataFrame of unchanged texts, with all columns."""
    import pandas as pd

    (_, names), *rows = csv_records(path)
    return pd.DataFrame([cells for _, cells in rows], columns=[name.strip() for name in names], dtype=object)


def _read_header(path: Path) -> list[str]:
    """Return the column names; the first one may be that of an index."""
    _, cells = next(csv_records(path), (0, []))
    names = [name.strip() for name in cells]
    with prefix_errors(path):
        if not names:
            raise ValueError("the file is empty; expected a line of column names, then one row per line")
        check_column_names(names[1:] if names[0] in INDEX_NAMES else names)
        if _looks_like_data(names):
            raise ValueError(
                f"the first line contains numbers, {', '.join(names[:3])} ..., instead of column names; add a header "
                "line"
            )
    return names


def _looks_like_data(names: list[str]) -> bool:
    try:
        return not all(float(name).is_integer() for name in names)
    except ValueError:
        return False


def read_plain_csv(path: Path) -> RawTable | None:
    """Return the columns of a file that contains only plain numbers, or None if rows must be read one by one."""
    import pandas as pd

    names = _read_header(path)
    if names[0] in INDEX_NAMES:
        return None
    # Before version 3 the default parser of pandas does not round to the nearest number.
    exact: dict[str, Any] = {} if int(pd.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
    blocks, limit = [np.empty((0, len(names)), np.float32)], unpacked_limit(path)
    try:
        with open_text(path) as stream:
            if [name.strip() for name in stream.readline(MAX_LINE_CHARACTERS).split(",")] != names:
                return None  # quoted names, or blank lines above the header
            frames = pd.read_csv(
                stream,
                header=None,
                names=range(len(names)),
                dtype=np.float64,
                quoting=csv.QUOTE_NONE,
                skip_blank_lines=False,
                na_values=[""],
                keep_default_na=False,
                chunksize=1 + _VALUES_PER_BLOCK // len(names),
                **exact,
            )
            for frame in frames:
                # pandas uses surplus cells of the first row as an index and fills short rows and blank lines with NaN.
                if not isinstance(frame.index, pd.RangeIndex) or frame[len(names) - 1].isna().any():
                    return None
                with np.errstate(over="ignore"):  # values beyond float32 become infinite and are rejected
                    blocks.append(frame.to_numpy().astype(np.float32))
                check_unpacked_size(sum(block.nbytes for block in blocks), limit)  # open_text names the file
    except UnpackedSizeError:
        raise
    except (ValueError, OverflowError, OSError):  # read row by row to name the line and the column
        return None
    values = np.concatenate(blocks)
    return RawTable(path, pd.DataFrame(values, columns=names), range(2, len(values) + 2))
