"""Multi-label data: file formats, the datasets of the paper, and synthetic tasks.

Public names are imported on first use, so that the command line can check the columns of a file before it imports large
libraries.
"""

from typing import TYPE_CHECKING

from ccmn._lazy import lazy_exports

if TYPE_CHECKING:
    from ccmn.data.catalog import load_dataset
    from ccmn.data.dataset import MultiLabelData
    from ccmn.data.formats import read_file, write_file
    from ccmn.data.shards import ShardedData
    from ccmn.data.synthetic import load_digit_scenes, make_noisy_multilabel
    from ccmn.data.table_preprocessor import TablePreprocessor

__all__ = [
    "MultiLabelData",
    "ShardedData",
    "TablePreprocessor",
    "load_dataset",
    "load_digit_scenes",
    "make_noisy_multilabel",
    "read_file",
    "write_file",
]
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "catalog": ["load_dataset"],
        "dataset": ["MultiLabelData"],
        "formats": ["read_file", "write_file"],
        "shards": ["ShardedData"],
        "synthetic": ["load_digit_scenes", "make_noisy_multilabel"],
        "table_preprocessor": ["TablePreprocessor"],
    },
)
