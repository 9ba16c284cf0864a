"""Catalog of file formats: readers and writers by file suffix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ccmn._files import PathLike, check_file, prefix_errors
from ccmn._registry import Registry
from ccmn.data.arff import read_arff
from ccmn.data.csv_format import read_csv, read_csv_table, write_csv
from ccmn.data.dataset import MultiLabelData
from ccmn.data.exchange import read_json, read_json_table, write_label_studio, write_rows
from ccmn.data.labeled_table import RawTable
from ccmn.data.libsvm import read_libsvm
from ccmn.data.mat import read_mat
from ccmn.data.npz import read_npz, write_npz
from ccmn.data.parquet import read_parquet, read_parquet_table
from ccmn.data.tables import LabelSpec


@dataclass(frozen=True)
class Format:
    """File format and its readers.

    ``read`` is called with the path and, unless labels are stored apart, the selection of label columns. ``labels``
    says where the file has labels: in columns of a table, in every line, or in a matrix of their own. ``read_table``
    reads tables with columns of any kind; a format that is not ``numeric`` is always such a table.
    """

    name: str
    read: Callable[..., MultiLabelData]
    labels: Literal["columns", "lines", "apart"]
    read_table: Callable[[PathLike], RawTable] | None = None
    numeric: bool = True

    @property
    def labels_apart(self) -> bool:
        """Whether the file stores labels in a separate matrix."""
        return self.labels == "apart"


_JSON = Format(
    "JSON (Label Studio, Argilla, Hugging Face, doccano)", read_json, "columns", read_json_table, numeric=False
)
_LIBSVM = Format("LIBSVM multi-label text", read_libsvm, "lines")

FORMATS: Registry[Format] = Registry(
    "file format",
    {
        ".csv": Format("CSV", read_csv, "columns", read_csv_table),
        ".parquet": Format("Parquet", read_parquet, "columns", read_parquet_table),
        ".arff": Format("ARFF (Mulan, Meka)", read_arff, "columns"),
        ".mat": Format("MATLAB", read_mat, "apart"),
        ".txt": _LIBSVM,
        ".svm": _LIBSVM,
        ".libsvm": _LIBSVM,
        ".npz": Format("NPZ", read_npz, "apart"),
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
    path = check_file(path)
    with prefix_errors(path):
        form = FORMATS[format_suffix(path)]
        if form.labels_apart and labels is not None:
            raise ValueError(f"{form.name} stores labels in a separate matrix: omit labels={labels!r}")
    return form.read(path) if form.labels_apart else form.read(path, labels)


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


def read_rows(path: PathLike) -> MultiLabelData:
    """Read a file to predict: every named column is a feature; labels in a separate matrix are kept."""
    with prefix_errors(check_file(path)):
        form = FORMATS[format_suffix(path)]
    return form.read(path, []) if form.labels == "columns" else form.read(path)


def is_table(path: PathLike) -> bool:
    """Return whether the format, by the suffix, is a table with columns of any kind."""
    suffix = format_suffix(path)
    return suffix in FORMATS and FORMATS[suffix].read_table is not None


def read_table(path: PathLike) -> RawTable:
    """Read a table with columns of any kind."""
    path = check_file(path)
    with prefix_errors(path):
        form = FORMATS[format_suffix(path)]
        if form.read_table is None:
            raise ValueError(f"expected a table (CSV, Parquet, JSON); got {form.name}")
    return form.read_table(path)


def writer_for(path: PathLike) -> Writer:
    """Return the writer for a file name.

    >>> writer_for("noisy.xlsx")
    Traceback (most recent call last):
    ValueError: noisy.xlsx: unknown suffix to write '.xlsx'. Known: .npz, .csv, .json, .jsonl
    """
    with prefix_errors(path):
        return WRITERS[Path(path).suffix.lower()]
