"""Where X and Y come from, and what they come in."""

from __future__ import annotations

from ccmn.data.arff import read_arff
from ccmn.data.characteristics import Characteristics, describe
from ccmn.data.columns import Columns
from ccmn.data.csv import read_csv, write_csv
from ccmn.data.datasets import DATASETS, Dataset, load_dataset, load_labels, where_is
from ccmn.data.downloads import download
from ccmn.data.formats import FORMATS, Format, read_file, read_rows, read_text_file
from ccmn.data.labels import LabelSpec
from ccmn.data.libsvm import read_libsvm
from ccmn.data.mat import read_mat
from ccmn.data.multilabel import MultiLabelData, concatenate
from ccmn.data.npz import read_npz, write_npz
from ccmn.data.parquet import read_parquet
from ccmn.data.shards import ShardedData
from ccmn.data.splits import split
from ccmn.data.synthetic import SyntheticTask, make_noisy_multilabel
from ccmn.data.text import TextFeatures
from ccmn.data.writers import WRITERS, writer_for

__all__ = [
    "DATASETS",
    "FORMATS",
    "WRITERS",
    "Characteristics",
    "Columns",
    "Dataset",
    "Format",
    "LabelSpec",
    "MultiLabelData",
    "ShardedData",
    "SyntheticTask",
    "TextFeatures",
    "concatenate",
    "describe",
    "download",
    "load_dataset",
    "load_labels",
    "make_noisy_multilabel",
    "read_arff",
    "read_csv",
    "read_file",
    "read_libsvm",
    "read_mat",
    "read_npz",
    "read_parquet",
    "read_rows",
    "read_text_file",
    "split",
    "where_is",
    "write_csv",
    "write_npz",
    "writer_for",
]
