"""FORMATS: a file's suffix -> how it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ccmn.catalogue import Catalogue
from ccmn.data.arff import read_arff
from ccmn.data.csv import read_csv
from ccmn.data.files import PathLike, blame, check_file
from ccmn.data.labels import LabelSpec
from ccmn.data.libsvm import read_libsvm
from ccmn.data.mat import read_mat
from ccmn.data.multilabel import MultiLabelData
from ccmn.data.npz import read_npz
from ccmn.data.parquet import read_parquet


@dataclass(frozen=True)
class Format:
    """A file format."""

    name: str
    read: Callable[..., MultiLabelData]
    """Called with the path and, unless ``labels_apart``, which columns are labels."""
    labels_apart: bool = False
    """The file itself keeps labels apart from features, in a matrix of their own."""


_LIBSVM = Format("LIBSVM multi-label text", read_libsvm)

FORMATS: Catalogue[Format] = Catalogue(
    "file format",
    {
        ".csv": Format("CSV", read_csv),
        ".parquet": Format("Parquet", read_parquet),
        ".arff": Format("ARFF (Mulan, Meka)", read_arff),
        ".mat": Format("MATLAB", read_mat, labels_apart=True),
        ".txt": _LIBSVM,
        ".svm": _LIBSVM,
        ".libsvm": _LIBSVM,
        ".npz": Format("NPZ", read_npz, labels_apart=True),
    },
)


def format_suffix(path: PathLike) -> str:
    """The suffix that tells the format, whether compressed or not.

    >>> format_suffix("folder/Yeast.ARFF.gz")
    '.arff'
    """
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def read_file(path: PathLike, labels: LabelSpec | None = None) -> MultiLabelData:
    """Read a data file of any format in :data:`FORMATS`, told by its suffix (.gz for compressed text)."""
    path = check_file(path)
    with blame(path):
        form = FORMATS[format_suffix(path)]
        if form.labels_apart and labels is not None:
            raise ValueError(f"{form.name} keeps labels in a matrix of their own: leave labels={labels!r} out")
    return form.read(path) if form.labels_apart else form.read(path, labels)
