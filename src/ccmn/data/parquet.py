"""Parquet: the same table as CSV, in columns; null is missing (a feature) or not observed (a label)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.data.files import PathLike, blame, check_file
from ccmn.data.labels import LabelSpec, label_columns, text_column
from ccmn.data.multilabel import MultiLabelData
from ccmn.data.tables import Table, check_column_names


def read_parquet(path: PathLike, labels: LabelSpec | None = None) -> MultiLabelData:
    """Read a Parquet file; needs pyarrow (``pip install 'ccmn[parquet]'``).

    Parameters
    ----------
    path : path
        A single file whose columns are numbers or booleans.
    labels : list of names, pattern, count or file
        Which columns are labels; see :data:`ccmn.data.labels.LabelSpec`.
    """
    return _split(path, labels, None)[0]


def read_parquet_text(path: PathLike, text: str, labels: LabelSpec | None = None) -> tuple[MultiLabelData, list[str]]:
    """``read_parquet`` for a file with a column of words: the data of all other columns, and that column's texts."""
    return _split(path, labels, text)


def _split(path: PathLike, labels: LabelSpec | None, text: str | None) -> tuple[MultiLabelData, list[str]]:
    path = check_file(path)
    arrow = _read(path)
    n, texts = arrow.num_rows, []
    with blame(path):
        names = [str(name) for name in arrow.column_names]
        check_column_names(names)
        if text is not None:
            place = text_column(text, names)
            texts = _texts(arrow.column(place), text)
            arrow = arrow.remove_column(place)
            del names[place]
        columns = label_columns(labels, names)
        parts = [_numbers(arrow.column(j), name) for j, name in enumerate(names)]
    values = np.stack(parts, axis=1) if parts else np.empty((n, 0), np.float32)
    return Table(path, names, values, range(1, len(values) + 1), unit="row").split(columns), texts


def _read(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("reading Parquet needs pyarrow: pip install 'ccmn[parquet]'") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return file.read()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a whole Parquet file: {error}") from None


def _numbers(column: Any, name: str) -> NDArray[np.float32]:
    import pyarrow.types as types

    kind = column.type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise ValueError(
            f"column {name!r} holds {kind}, not numbers. Features must be numbers and labels 0 or 1: encode a column "
            "of words as numbers (one 0/1 column per word), or remove it."
        )
    numbers: NDArray[np.float32] = column.cast("float32", safe=False).to_numpy()
    return numbers


def _texts(column: Any, name: str) -> list[str]:
    import pyarrow.types as types

    kind = column.type
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise ValueError(f"the text column {name!r} holds {kind}, not text")
    return ["" if text is None else str(text) for text in column.to_pylist()]
