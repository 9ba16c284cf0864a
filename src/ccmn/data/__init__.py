"""Multi-label data: file formats, the datasets of the paper, and synthetic tasks."""

from __future__ import annotations

from ccmn.data.arff import read_arff
from ccmn.data.catalog import load_dataset
from ccmn.data.csv_format import read_csv, write_csv
from ccmn.data.dataset import MultiLabelData
from ccmn.data.libsvm import read_libsvm
from ccmn.data.mat import read_mat
from ccmn.data.npz import read_npz, write_npz
from ccmn.data.parquet import read_parquet
from ccmn.data.preprocessing import TablePreprocessor
from ccmn.data.shards import ShardedData
from ccmn.data.synthetic import SyntheticTask, load_digit_scenes, make_noisy_multilabel

__all__ = [
    "MultiLabelData",
    "ShardedData",
    "SyntheticTask",
    "TablePreprocessor",
    "load_dataset",
    "load_digit_scenes",
    "make_noisy_multilabel",
    "read_arff",
    "read_csv",
    "read_libsvm",
    "read_mat",
    "read_npz",
    "read_parquet",
    "write_csv",
    "write_npz",
]
