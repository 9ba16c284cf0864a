"""Multi-label data: file formats, the datasets of the paper, and synthetic tasks.

Public names are imported on first use, so that the command line can check the columns of a file before it imports large
libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # "as" marks a name as exported for type checkers
    from ccmn.data.catalog import load_dataset as load_dataset
    from ccmn.data.dataset import MultiLabelData as MultiLabelData
    from ccmn.data.formats import read_file as read_file
    from ccmn.data.formats import write_file as write_file
    from ccmn.data.shards import ShardedData as ShardedData
    from ccmn.data.synthetic import load_digit_scenes as load_digit_scenes
    from ccmn.data.synthetic import make_noisy_multilabel as make_noisy_multilabel
    from ccmn.data.table_preprocessor import TablePreprocessor as TablePreprocessor

_EXPORTS = {
    "MultiLabelData": "dataset",
    "ShardedData": "shards",
    "TablePreprocessor": "table_preprocessor",
    "load_dataset": "catalog",
    "load_digit_scenes": "synthetic",
    "make_noisy_multilabel": "synthetic",
    "read_file": "formats",
    "write_file": "formats",
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
