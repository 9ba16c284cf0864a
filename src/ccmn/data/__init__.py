"""Multi-label data: file formats, the datasets of the paper, and synthetic tasks.

Public names are imported on first use, so that the command line can check the columns of a file before it imports large
libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # "as" marks a name as exported for type checkers
    from ccmn.data.arff import read_arff as read_arff
    from ccmn.data.catalog import load_dataset as load_dataset
    from ccmn.data.csv_format import read_csv as read_csv
    from ccmn.data.csv_format import write_csv as write_csv
    from ccmn.data.dataset import MultiLabelData as MultiLabelData
    from ccmn.data.libsvm import read_libsvm as read_libsvm
    from ccmn.data.mat import read_mat as read_mat
    from ccmn.data.npz import read_npz as read_npz
    from ccmn.data.npz import write_npz as write_npz
    from ccmn.data.parquet import read_parquet as read_parquet
    from ccmn.data.preprocessing import TablePreprocessor as TablePreprocessor
    from ccmn.data.shards import ShardedData as ShardedData
    from ccmn.data.synthetic import load_digit_scenes as load_digit_scenes
    from ccmn.data.synthetic import make_noisy_multilabel as make_noisy_multilabel

_EXPORTS = {
    name: module
    for module, names in {
        "arff": ("read_arff",),
        "catalog": ("load_dataset",),
        "csv_format": ("read_csv", "write_csv"),
        "dataset": ("MultiLabelData",),
        "libsvm": ("read_libsvm",),
        "mat": ("read_mat",),
        "npz": ("read_npz", "write_npz"),
        "parquet": ("read_parquet",),
        "preprocessing": ("TablePreprocessor",),
        "shards": ("ShardedData",),
        "synthetic": ("load_digit_scenes", "make_noisy_multilabel"),
    }.items()
    for name in names
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name in _EXPORTS:
        return getattr(import_module(f"ccmn.data.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module 'ccmn.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
