"""Catalog of file formats: readers and writers by file suffix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ccmn._files import PathLike, check_file, prefix_errors
from ccmn._registry import Registry
from ccmn.data.arff import read_arff
from ccmn.data.column_roles import ColumnRoles, LabelSpec, label_columns
from ccmn.data.csv_format import read_csv, read_plain_csv, write_csv
from ccmn.data.dataset import MultiLabelData
from ccmn.data.exchange import read_json, write_label_studio, write_rows
from ccmn.data.labeled_table import LabeledTable, RawTable
from ccmn.data.libsvm import read_libsvm
from ccmn.data.mat import read_mat
from ccmn.data.npz import read_npz, write_npz
from ccmn.data.parquet import read_parquet


@dataclass(frozen=True)
class Format:
    """File format and its readers.

    ``labels`` says where the file has labels: in columns of a table, in every line, or in a matrix of their own.
    ``read`` is called with the path and, unless labels are stored apart, the selection of label columns. Tables with
    columns of any kind have ``read_table`` instead, and perhaps ``read_plain``, a faster reader that returns None if
    the file contains anything else than numbers. A format that is not ``numeric`` has texts as features.
    """

    name: str
    labels: Literal["columns", "lines", "apart"]
    read: Callable[..., MultiLabelData] | None = None
    read_table: Callable[[Path], RawTable] | None = None
    read_plain: Callable[[Path], RawTable | None] | None = None
    numeric: bool = True


_JSON = Format("JSON (Label Studio, Argilla, Hugging Face, doccano)", "columns", read_table=read_json, numeric=False)
_LIBSVM = Format("LIBSVM multi-label text", "lines", read_libsvm)

FORMATS: Registry[Format] = Registry(
    "file format",
    {
        ".csv": Format("CSV", "columns", read_table=read_csv, read_plain=read_plain_csv),
        ".parquet": Format("Parquet", "columns", read_table=read_parquet),
        ".arff": Format("ARFF (Mulan, Meka)", "columns", read_arff),
        ".mat": Format("MATLAB", "apart", read_mat),
        ".txt": _LIBSVM,
        ".svm": _LIBSVM,
        ".libsvm": _LIBSVM,
        ".npz": Format("NPZ", "apart", read_npz),
        ".json": _JSON,
        ".jsonl": _JSON,
    },
)

Writer = Callable[[MultiLabelData, PathLike], None]

WRITERS: Registry[Writer] = Registry(
    "suffix to write", {".npz": write_npz, ".csv": write_csv, ".json": write_label_studio, ".jsonl": write_rows}
)


def format_suffix(path: PathLike) -> str:
    """Return the suffix that determines the format, without ``.gz``.

    >>> format_suffix("folder/Yeast.ARFF.gz")
    '.arff'
    """
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def read_file(path: PathLike, labels: LabelSpec | None = None) -> MultiLabelData:
    """Read a data file of any known format, determined by its suffix (``.gz`` for compressed text).

    Parameters
    ----------
    path : str or path
        File with one of the suffixes .csv, .parquet, .json, .jsonl, .arff, .txt, .svm, .libsvm, .mat and .npz.
    labels : list of str, str, int or path, default=None
        Label columns of a table: names, a pattern such as "label_*", a count from the start (14) or the end (-14), or
        a file with the names (``.xml`` or ``.txt``). LIBSVM text: names or number of the labels. Formats with a
        separate label matrix (.mat, .npz) and Meka files, which declare their labels, need none.

    Returns
    -------
    MultiLabelData
        Features, labels and names.

    Raises
    ------
    ValueError
        If the suffix is unknown or the file is malformed; the message names the file and, for text, the line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ccmn.data import MultiLabelData, read_file, write_file
    >>> data = MultiLabelData([[0.5], [1.5]], [[1, 0], [1, 1]], label_names=["sea", "sky"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(data, pathlib.Path(folder) / "data.csv")
    ...     print(read_file(pathlib.Path(folder) / "data.csv", labels=["sea", "sky"]))
    MultiLabelData(data: n=2, d=1 dense, q=2)
    """
    form = _format(path)
    if form.labels == "apart" and labels is not None:
        raise ValueError(f"{path}: {form.name} stores labels in a separate matrix: omit labels={labels!r}")
    if form.read is not None:
        return form.read(path) if form.labels == "apart" else form.read(path, labels)
    if form.numeric and labels is None:
        with prefix_errors(path):
            label_columns(labels, ())
    table = LabeledTable.read(read_table(path, plain=True), ColumnRoles(labels))
    return table.numeric() if form.numeric else table.fit()[1]


def write_file(data: MultiLabelData, path: PathLike) -> None:
    """Write data to a file in the format of its suffix; an existing file is replaced when the new one is complete.

    Parameters
    ----------
    data : MultiLabelData
        Data to write.
    path : str or path
        ".npz" stores everything that has a number or a name, sparse matrices as such. ".csv" has the features, then
        the labels as last columns. ".json" (Label Studio) and ".jsonl" (rows of Argilla, doccano and Hugging Face)
        have identifiers, texts or pictures with their labels.

    Raises
    ------
    ValueError
        If the suffix is unknown, or the format cannot store these data.
    """
    writer_for(path)(data, path)


def is_table(path: PathLike) -> bool:
    """Return whether the format, by the suffix, is a table with columns of any kind."""
    suffix = format_suffix(path)
    return suffix in FORMATS and FORMATS[suffix].read_table is not None


def read_table(path: PathLike, *, plain: bool = False) -> RawTable:
    """Read a table with columns of any kind; with ``plain``, cells that are numbers need not stay as written."""
    form = _format(path)
    if form.read_table is None:
        raise ValueError(f"{path}: expected a table (CSV, Parquet, JSON); got {form.name}")
    raw = form.read_plain(Path(path)) if plain and form.read_plain is not None else None
    return form.read_table(Path(path)) if raw is None else raw


def _format(path: PathLike) -> Format:
    """Return the format of a file; reject an unknown suffix and a file that does not exist."""
    with prefix_errors(check_file(path)):
        return FORMATS[format_suffix(path)]


def writer_for(path: PathLike) -> Writer:
    """Return the writer for a file name.

    >>> writer_for("noisy.xlsx")
    Traceback (most recent call last):
    ValueError: noisy.xlsx: unknown suffix to write '.xlsx'. Known: .npz, .csv, .json, .jsonl
    """
    with prefix_errors(path):
        return WRITERS[Path(path).suffix.lower()]
