"""Datasets of the paper (``catalog.json``), and :func:`load_dataset`.

A dataset name is looked up as ``NAME.npz``, or in any other known format, in the folder ``$CCMN_DATA``. Datasets that
are not there are downloaded from public repositories into a cache and verified with a checksum or git blob id.
Downloads require pooch and tqdm (``pip install "ccmn[app]"``).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ccmn._containers import is_sparse
from ccmn._files import PathLike, checksum
from ccmn._registry import Registry
from ccmn.data.column_roles import LabelSpec
from ccmn.data.dataset import MultiLabelData
from ccmn.data.formats import FORMATS, format_suffix, read_file

DEFAULT_MIRROR = "https://raw.githubusercontent.com"
"""Base address of downloads; the environment variable CCMN_MIRROR replaces it."""


@dataclass(frozen=True)
class Source:
    """File in a public repository at a fixed commit.

    Files of which only the public file list was seen have the id of the file in git instead of a SHA-256 checksum: the
    SHA-1 of "blob SIZE", a zero byte and the content.
    """

    repository: str
    commit: str
    path: str
    sha256: str = ""
    git_blob: str = ""

    @property
    def file(self) -> str:
        """Name of the file."""
        return PurePosixPath(self.path).name

    def matches(self, path: Path) -> bool:
        """Return whether a file has the expected content."""
        if self.sha256:
            return checksum(path) == self.sha256
        content = path.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == self.git_blob

    @property
    def expected(self) -> str:
        """Checksum or git blob id in words, for error messages."""
        return f"SHA-256 checksum is not {self.sha256}" if self.sha256 else f"git blob id is not {self.git_blob}"

    @property
    def url(self) -> str:
        """Address of the file at ``$CCMN_MIRROR``, or at GitHub."""
        base = os.environ.get("CCMN_MIRROR") or DEFAULT_MIRROR
        return f"{base.rstrip('/')}/{self.repository}/{self.commit}/{self.path}"

    @property
    def cached(self) -> Path:
        """Place of the file in the cache: ``$CCMN_CACHE``, or that of the user."""
        import pooch

        folder = Path(os.environ.get("CCMN_CACHE") or pooch.os_cache("ccmn"))
        return folder / self.repository / self.commit / self.file


class PaperRow(NamedTuple):
    """Row of the appendix table of the paper; its cardinality is truncated, not rounded, to two decimals."""

    n: int
    d: int
    q: int
    cardinality: float
    batch_size: int


@dataclass(frozen=True)
class Dataset:
    """Dataset of the catalog: its row in the paper and its public files.

    Parameters
    ----------
    name, domain : str
        Name and application area.
    paper : PaperRow
        Values in the paper; for tmc_full, which the paper does not use, the row of tmc.
    stem : str, default=""
        Name without suffix of the file in the data folder, if it differs from ``name``.
    sources : tuple of Source, default=()
        Public data files in the order of the rows.
    label_source : Source, default=None
        Public file with the names of the labels.
    recut : str, default=""
        Dataset whose columns this one cuts wrongly, see :func:`cut_labels_last`.
    n_available : int, default=None
        Number of available rows, if it differs from the paper.
    note : str, default=""
        Differences between the available data and the paper.
    """

    name: str
    domain: str
    paper: PaperRow
    stem: str = ""
    sources: tuple[Source, ...] = ()
    label_source: Source | None = None
    recut: str = ""
    n_available: int | None = None
    note: str = ""

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Dataset:
        """Return the dataset that an entry of ``catalog.json`` describes."""
        sources = tuple(Source(**source) for source in d.pop("sources", ()))
        labels = Source(**d.pop("label_source")) if "label_source" in d else None
        return cls(**{**d, "paper": PaperRow(**d["paper"])}, sources=sources, label_source=labels)

    @property
    def n(self) -> int:
        """Number of available rows."""
        return self.n_available or self.paper.n

    @property
    def files(self) -> tuple[Source, ...]:
        """All public files of the dataset."""
        return (*self.sources, self.label_source) if self.label_source else self.sources


_CATALOG = json.loads(files("ccmn.data").joinpath("catalog.json").read_text("utf-8"))
DATASETS: Registry[Dataset] = Registry(
    "dataset", {entry["name"]: Dataset.from_dict(entry) for entry in _CATALOG["datasets"]}
)
ECG_FILES = {PurePosixPath(entry["path"]).stem: Source(**entry) for entry in _CATALOG["ecg"]}
"""Labels of 827 electrocardiograms by five readers and two adjudicators, and predictions of a network; MIT license."""


def fetch_ecg() -> dict[str, Any]:
    """Return readings of electrocardiograms by five readers with the adjudicated truth, downloaded and verified [1]_.

    The arrays are "labels" (6 names), "Y_true" (827, 6), "Y_READER" (827, 6) for every reader, "readers", "votes"
    (827, 5, 6), and "scores" (827, 1, 6): probabilities of a network that was trained on other data.

    References
    ----------
    .. [1] A. H. Ribeiro et al., "Automatic diagnosis of the 12-lead ECG using a deep neural network", Nature
       Communications 11, 2020.
    """
    import pandas as pd

    tables = {name: pd.read_csv(download(source)) for name, source in ECG_FILES.items() if name != "model"}
    truth = tables.pop("gold_standard")
    labels = {f"Y_{name}": table.to_numpy(np.int8) for name, table in tables.items()}
    return {
        "labels": truth.columns.to_numpy(str),
        "Y_true": truth.to_numpy(np.int8),
        **labels,
        "readers": np.array(list(tables)),
        "votes": np.stack(list(labels.values()), axis=1),
        "scores": np.load(download(ECG_FILES["model"]), allow_pickle=False)[:, None],
    }


def load_dataset(
    name_or_path: PathLike, *, labels: LabelSpec | None = None, data_dir: PathLike | None = None
) -> MultiLabelData:
    """Load a dataset by name, or any data file by path.

    A name is looked up as ``NAME.npz``, or in any other known format, in the data folder. Datasets of the catalog
    that are not there are downloaded from public repositories into a cache and verified with a checksum.

    Parameters
    ----------
    name_or_path : str or path
        Path of a file with a known suffix (.csv, .parquet, .arff, .mat, .txt, .svm, .libsvm or .npz), or the name of
        a dataset of the catalog ("yeast", "scene", "enron", ...; ``ccmn data list`` shows all), or of a file of your
        own in the data folder.
    labels : list of str, str, int or path, default=None
        Label columns of a table: names, a pattern such as "label_*", a count from the start (14) or the end (-14), or
        a file with the names (``.xml`` or ``.txt``). Formats with a separate label matrix need none.
    data_dir : str or path, default=None
        Data folder; by default the environment variable ``CCMN_DATA``.

    Returns
    -------
    MultiLabelData
        Features, labels and names.

    Raises
    ------
    FileNotFoundError
        If there is no such file, or the dataset is neither in the data folder nor can be downloaded.
    ValueError
        If the name is unknown or the file is malformed.

    Examples
    --------
    >>> load_dataset("yeast").cardinality  # doctest: +SKIP
    4.237...
    """
    if not _is_name(name_or_path):
        return read_file(name_or_path, labels)
    name = str(name_or_path)
    path = _find(name, data_dir)
    if path is not None and name not in DATASETS:
        return read_file(path, labels)
    try:
        row = DATASETS[name]
    except ValueError as error:
        raise ValueError(f"{error}. A file needs one of the suffixes {', '.join(FORMATS)}.") from None
    # Published ARFF files need the file with their label names; other tables need ``labels``.
    if path is not None and (labels is not None or FORMATS[format_suffix(path)].labels == "apart"):
        data = read_file(path, labels)
    elif labels is not None:
        raise ValueError(f"the labels of {name!r} are known: omit labels={labels!r}")
    else:
        data = cut_labels_last(load_dataset(row.recut, data_dir=data_dir)) if row.recut else _load_public(row, data_dir)
    return replace(data, name=row.name, domain=row.domain)


def cut_labels_last(data: MultiLabelData) -> MultiLabelData:
    """Return the wrong cut of a Meka file: its last q columns, which are words, as labels.

    Meka files have the labels first and state their number in the header. A reader that expects the labels last, as in
    Mulan files, takes the last q words as labels and leaves the true labels among the features. Enron and slashdot of
    the paper were most likely read in this way: the printed values are reached with this cut only (docs/tables.md). The
    result is not a meaningful task.
    """
    columns = scipy.sparse.hstack([scipy.sparse.csr_array(data.Y), scipy.sparse.csr_array(data.X)], format="csr")
    names = None
    if data.feature_names is not None and data.label_names is not None:
        names = [*data.label_names, *data.feature_names]
    return MultiLabelData(
        X=columns[:, : data.d].astype(np.float32),
        Y=columns[:, data.d :].toarray(),
        feature_names=names and names[: data.d],
        label_names=names and names[data.d :],
    )


def dataset_location(name: str, *, data_dir: PathLike | None = None) -> str:
    """Return where a dataset of the catalog is stored: "folder", "cache", or "" if it is not on this machine.

    Only file names are examined; the content is verified when the dataset is loaded.
    """
    row = DATASETS[name]
    if row.recut:
        return dataset_location(row.recut, data_dir=data_dir)
    path = _find(name, data_dir)
    if path and (FORMATS[format_suffix(path)].labels == "apart" or not row.sources):
        return "folder"
    folder = _folder(data_dir)
    if row.files and all((folder / source.file).is_file() for source in row.files):
        return "folder"
    if not row.files or find_spec("pooch") is None:
        return ""
    return "cache" if all((folder / source.file).is_file() or source.cached.is_file() for source in row.files) else ""


def download(source: Source) -> Path:
    """Return a public file from the cache, downloading it if necessary; a file with a wrong checksum is deleted."""
    try:
        import pooch
    except ImportError:
        raise ImportError('downloading requires pooch and tqdm: pip install "ccmn[app]"') from None
    path = source.cached
    pooch.get_logger().setLevel("WARNING")  # pooch logs every download otherwise
    if path.is_file() and not source.matches(path):
        path.unlink()
    try:
        pooch.retrieve(
            source.url,
            known_hash=None,  # pooch cannot check git blob ids
            fname=source.file,
            path=path.parent,
            downloader=pooch.HTTPDownloader(progressbar=sys.stderr.isatty()),
        )
    except OSError as error:
        raise OSError(f"could not download {source.url}: {_reason(error)}") from None
    if not source.matches(path):
        path.unlink()
        raise ValueError(
            f"{source.url} is not the expected file: its {source.expected}. The download was deleted; try again, or "
            "use another network or mirror."
        )
    return path


def _is_name(name_or_path: PathLike) -> bool:
    if not isinstance(name_or_path, str):
        return False
    is_file = format_suffix(name_or_path) in FORMATS or os.path.dirname(name_or_path) or os.path.exists(name_or_path)
    return name_or_path in DATASETS or not is_file


def _folder(data_dir: PathLike | None) -> Path:
    return Path(data_dir or os.environ.get("CCMN_DATA") or os.devnull)


def _find(name: str, data_dir: PathLike | None) -> Path | None:
    """Return the file of a dataset in the data folder: NAME.npz, or NAME with another known suffix."""
    if not name:
        return None
    stem = (name in DATASETS and DATASETS[name].stem) or name
    suffixes = sorted(FORMATS, key=lambda suffix: FORMATS[suffix].labels != "apart")
    suffixes = [".npz", *suffixes, *(f"{suffix}.gz" for suffix in suffixes)]
    paths = (_folder(data_dir) / f"{stem}{suffix}" for suffix in suffixes)
    return next((path for path in paths if path.is_file()), None)


def _load_public(row: Dataset, data_dir: PathLike | None) -> MultiLabelData:
    """Return a dataset from its public files in the data folder or the cache, or download them."""
    try:
        paths = {source: _local(source, data_dir) or download(source) for source in row.files}
    except (ImportError, OSError) as error:
        folder = data_dir or os.environ.get("CCMN_DATA")
        place = f"the data folder {folder}" if folder else "a data folder; none is set (data_dir, or CCMN_DATA)"
        urls = "\n".join(f"  {source.url}" for source in row.files)
        raise FileNotFoundError(
            f"{row.stem or row.name}.npz was not found: it is not in {place}; and {error}.\n"
            f"Put that file, or these public files under their own names, into a folder and set CCMN_DATA to it:\n"
            f"{urls}"
        ) from error
    labels = paths[row.label_source] if row.label_source else None
    parts = [read_file(paths[source], labels) for source in row.sources]
    data = parts[0]
    if len(parts) > 1:
        stack = scipy.sparse.vstack if is_sparse(data.X) else np.concatenate
        Y = np.concatenate([part.Y for part in parts])
        data = replace(data, X=stack([part.X for part in parts]), Y=Y)
    if (data.n, data.d, data.q) != (row.n, row.paper.d, row.paper.q):
        raise ValueError(
            f"the public file of {row.name} has {data.n} rows, {data.d} features and {data.q} labels; expected "
            f"{row.n}, {row.paper.d} and {row.paper.q}. Load {paths[row.sources[0]]} by its path to use it as it is."
        )
    return data


def _local(source: Source, data_dir: PathLike | None) -> Path | None:
    """Return a public file in the data folder, or None; a file with another checksum is rejected."""
    path = _folder(data_dir) / source.file
    if not path.is_file():
        return None
    if source.matches(path):
        return path
    raise ValueError(
        f"{path} is not the expected file: its {source.expected}. Replace or remove it; to use it as it is, load it by "
        "its path."
    )


def _reason(error: OSError) -> str:
    """Return the reason of a failed download."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"the server answered {status}"
    if type(error).__module__.startswith("requests"):
        return "the server cannot be reached"
    return str(error)
