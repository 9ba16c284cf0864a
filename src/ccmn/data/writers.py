"""Which formats data are written in, told by the suffix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ccmn._registry import Catalogue
from ccmn.data.csv import write_csv
from ccmn.data.files import PathLike, blame
from ccmn.data.multilabel import MultiLabelData
from ccmn.data.npz import write_npz

Writer = Callable[[MultiLabelData, PathLike], None]

WRITERS: Catalogue[Writer] = Catalogue("suffix to write", {".npz": write_npz, ".csv": write_csv})


def writer_for(path: PathLike) -> Writer:
    """How a file of this name is written.

    >>> writer_for("noisy.xlsx")
    Traceback (most recent call last):
    ValueError: noisy.xlsx: unknown suffix to write '.xlsx'. Known: .npz, .csv
    """
    with blame(path):
        return WRITERS[Path(path).suffix.lower()]
