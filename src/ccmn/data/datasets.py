"""DATASETS: one row per data set of the paper; load_dataset(name or path)."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccmn._registry import Catalogue
from ccmn.data.downloads import Source, download, is_cached
from ccmn.data.files import PathLike
from ccmn.data.formats import FORMATS, format_suffix, read_file
from ccmn.data.labels import LabelSpec
from ccmn.data.multilabel import MultiLabelData, concatenate
from ccmn.data.npz import read_npz


class Bundle(NamedTuple):
    """An NPZ file in the local data folder."""

    file: str
    sha256: str


class Printed(NamedTuple):
    """A row of the paper's appendix table."""

    n: int
    d: int
    q: int
    cardinality: float
    """Cut off, not rounded, after two decimals."""
    batch_size: int


@dataclass(frozen=True)
class Dataset:
    """A data set: what the paper's appendix prints about it, and where it is."""

    name: str
    domain: str
    paper: Printed
    """What the paper prints; for tmc_full, which it does not use, the row of tmc."""
    bundle: Bundle | None
    """Features and labels; None where the features are not to be had."""
    labels_bundle: Bundle | None = None
    """Labels and candidates alone, where more rows have them than have features."""
    sources: tuple[Source, ...] = ()
    """The public files, in the order of the rows."""
    label_source: Source | None = None
    """The public file that says which columns are labels."""
    other_n: int | None = None
    """How many rows there are, where they are not as many as the paper prints."""
    note: str = ""
    """How the data at hand differ from what the paper prints."""

    @property
    def n(self) -> int:
        """How many rows there are to be had."""
        return self.other_n or self.paper.n

    @property
    def files(self) -> tuple[Source, ...]:
        """Every public file the data set is made of."""
        return (*self.sources, self.label_source) if self.label_source else self.sources


def _mulan(path: str, sha256: str) -> Source:
    commit = "43f6389095ad71984264db4387a8074b22bc7d4a"
    return Source("tsoumakas/mulan", commit, f"data/multi-label/{path}", sha256)


_TMC_TRAIN = _mulan(
    "tmc2007/tmc2007-500-train.arff", "edfe7b7615c6f80e54c92a214437610d1ae36560c5cc6c4253b51c434d258273"
)
_TMC_TEST = _mulan("tmc2007/tmc2007-500-test.arff", "b24f9c3f1eba77c9da0bbaff093ba41d331b7351be0167a8e1e3852c62e25e38")
_TMC_LABELS = _mulan("tmc2007/tmc2007-500.xml", "cb6a67c8ae72fd9b47d89f77aa5b7f6cafb4ba9c20b1124c65a95a3f2caec38d")
_NO_FEATURES = "labels and candidates only: the features could not be had"

_ROWS = (
    Dataset(
        "yeast",
        "biology",
        Printed(n=2417, d=103, q=14, cardinality=4.23, batch_size=100),
        bundle=Bundle("yeast.npz", "4a6c1e86fc4bead64f9edb03ec0b6adad2f636e35293d755ace3d6c39a13c91a"),
        sources=(_mulan("yeast/yeast.arff", "55c07a3b6ff885ae338fb6987a1d57f55572b29809922c2822c4885c61230dd7"),),
        label_source=_mulan("yeast/yeast.xml", "c3056cc26444b5158b1588d1b73bec9c45429e10f0957ad085903423cb81f247"),
    ),
    Dataset(
        "scene",
        "image",
        Printed(n=2407, d=294, q=6, cardinality=1.07, batch_size=100),
        bundle=Bundle("scene.npz", "3e6d3d406e4ad8a42a2e3e8a83a99618db0397480b9aef3e996b81a4255c09c2"),
        sources=(
            _mulan("scene/scene-train.arff", "b53ba93bdf412de922e3960389bcee24744fa3e872ce610511fc1d750888b64d"),
            _mulan("scene/scene-test.arff", "ea38d20296b3ff7e220f477a3b802a9bcb2d768881fe6ee163efbc97ea527a42"),
        ),
        label_source=_mulan("scene/scene.xml", "55d8b247b949ad5c52e5a73d8c6775ec6e5469ce9682465b45b333b68ee4bcc5"),
    ),
    Dataset(
        "enron",
        "text",
        Printed(n=1702, d=1001, q=53, cardinality=3.37, batch_size=100),
        bundle=Bundle("enron.npz", "0359e4fa6db337387c52c5f5dda0492cf1c6e3f11522bb9c0ba83f8aed5a42dc"),
        sources=(_mulan("enron/enron.arff", "d0889ef0576d4e7b5ec0df3b3e4760e476ac11a6e7d7ddeee4c4a34470dedf97"),),
        label_source=_mulan("enron/enron.xml", "ed40c92d7f613eed51714912cab10dddc4ce456262137d8fef230d44c7f4457b"),
    ),
    Dataset(
        "slashdot",
        "text",
        Printed(n=3782, d=1079, q=22, cardinality=1.18, batch_size=200),
        bundle=Bundle("slashdot.npz", "a2b5ef9853b22cd9c857502d31e8de20fb0f44eb73466d916a998257ec76939d"),
        sources=(
            Source(
                "lehneres/edu.uni-tuebingen",
                "3faf6f0c5b4cbfbbe048b4d59fbeafde5ae39195",
                "data/SLASHDOT-F.arff",
                "35c7b933211fc39c623252f2289de1460f588265a3df8be2c97f3090708476eb",
            ),
        ),
    ),
    Dataset(
        "tmc",
        "text",
        Printed(n=21519, d=500, q=22, cardinality=2.15, batch_size=1000),
        bundle=Bundle("tmc.npz", "3338ced9e194139b53a524b8c4783b59628f9258cd42fa8b24fd99952b80c249"),
        sources=(_TMC_TRAIN,),
        label_source=_TMC_LABELS,
        note="the training file, whose n the paper prints beside the cardinality of training and test together",
    ),
    Dataset(
        "tmc_full",
        "text",
        Printed(n=21519, d=500, q=22, cardinality=2.15, batch_size=1000),
        bundle=Bundle("tmc_full.npz", "cbcfcf63978207cc6200a9e9d7a43e1630def3213fe8a265cb081b1e93d09ab8"),
        sources=(_TMC_TRAIN, _TMC_TEST),
        label_source=_TMC_LABELS,
        other_n=28596,
        note="training then test file, whose cardinality the paper prints beside the n of the training file",
    ),
    Dataset(
        "mirflickr",
        "image",
        Printed(n=10433, d=100, q=7, cardinality=1.77, batch_size=1000),
        bundle=Bundle("mirflickr_5000.npz", "33e9f9717862a78e1479dfd0684859857dd0ee4af835edd57f9471df6118c9e8"),
        labels_bundle=Bundle(
            "mirflickr_labels.npz", "7e2612d3b976a7943b6deb23806e7aad32d28764c2cdf4de79ccdcf003fcb64d"
        ),
        sources=(
            Source(
                "zhenzhenSun-FZU/PMFS-FLC",
                "7d6af5f38803070ec7ef2da64d82a6adfd75ac24",
                "data/mirflickr.mat",
                "85fe1ab7d65994fca93d03b12b4375478977e9325bc56857cc8850db88cbde66",
            ),
        ),
        other_n=5000,
        note="5000 of the 10433 rows; load_labels has the labels of all, in another order",
    ),
    Dataset(
        "music_emotion",
        "music",
        Printed(n=6833, d=98, q=11, cardinality=2.42, batch_size=400),
        bundle=None,
        labels_bundle=Bundle(
            "music_emotion_labels.npz", "16b92f7ba79af8e3dea0f538c114f47cd6c2867e3b118b51eb5a2bbb9017d4c6"
        ),
        note=_NO_FEATURES,
    ),
    Dataset(
        "music_style",
        "music",
        Printed(n=6839, d=98, q=10, cardinality=1.44, batch_size=400),
        bundle=None,
        labels_bundle=Bundle(
            "music_style_labels.npz", "c034be62a0e68bf5f68a9bbf0297d6b85737550efa2714b7bd359e2fd0df4719"
        ),
        note=_NO_FEATURES,
    ),
)

DATASETS: Catalogue[Dataset] = Catalogue("data set", {row.name: row for row in _ROWS})


def load_dataset(
    name_or_path: PathLike, *, labels: LabelSpec | None = None, data_dir: PathLike | None = None
) -> MultiLabelData:
    """Load a data set of the paper by its name, or any data file by its path.

    Parameters
    ----------
    name_or_path : str or path
        A name in :data:`DATASETS`, or a file whose suffix is in :data:`FORMATS`.
    labels : list of names, pattern, count or file, optional
        For a file: which columns are labels; see :data:`ccmn.data.labels.LabelSpec`.
    data_dir : path, optional
        For a name: the folder in which the data set's NPZ file, or its public files, are looked for; else the
        environment's ``CCMN_DATA``. What is not there is downloaded, with a checksum, into a cache.
    """
    if not _is_name(name_or_path):
        return read_file(name_or_path, labels)
    row = _row(name_or_path)
    if labels is not None:
        raise ValueError(f"{row.name!r} knows its labels: leave labels={labels!r} out")
    if row.bundle is None:
        data = read_file(_own_file(row, data_dir))
    else:
        path = _local(row.bundle.file, row.bundle.sha256, data_dir)
        data = _from_public_files(row, data_dir) if path is None else read_npz(path)
    return replace(data, name=row.name, domain=row.domain)


def load_labels(name: str, *, data_dir: PathLike | None = None) -> MultiLabelData:
    """The labels and candidates of a data set alone, ``X`` of shape (n, 0).

    For mirflickr and the music sets these are all rows of the paper, with true labels and real candidate sets, from
    which real noise rates can be counted. For mirflickr they do NOT correspond to the rows of ``load_dataset``.
    """
    row = _row(name)
    if row.labels_bundle is None:
        data = load_dataset(name, data_dir=data_dir)
    else:
        path = _local(row.labels_bundle.file, row.labels_bundle.sha256, data_dir)
        if path is None:
            raise FileNotFoundError(
                f"{row.labels_bundle.file} was not found: {_where_looked(data_dir)}. The labels and candidates come "
                f"from the public repository HaruhiMizuguchi/grad_thesis, data/{name}/target.csv and "
                f"data/{name}/cand/0.csv; they are not downloaded from here."
            )
        data = read_npz(path)
    return replace(data, X=np.empty((data.n, 0), np.float32), feature_names=None, name=row.name, domain=row.domain)


def where_is(name: str, *, data_dir: PathLike | None = None) -> str:
    """Where a data set is on this machine: "folder", "cache", "labels only" (no features), or "" when it is not.

    A look at names only; what is in the files is checked when they are loaded.
    """
    row = _row(name)
    folder = Path(data_dir or os.environ.get("CCMN_DATA") or os.devnull)
    if row.bundle and (folder / row.bundle.file).is_file():
        return "folder"
    if row.bundle is None and any((folder / f"{name}{suffix}").is_file() for suffix in (".mat", ".npz")):
        return "folder"
    if row.files and all((folder / source.file).is_file() for source in row.files):
        return "folder"
    if row.files and all((folder / source.file).is_file() or is_cached(source) for source in row.files):
        return "cache"
    return "labels only" if row.labels_bundle and (folder / row.labels_bundle.file).is_file() else ""


def _own_file(row: Dataset, data_dir: PathLike | None) -> Path:
    """A file that the user has of a data set without public features: NAME.mat or NAME.npz in the data folder."""
    folder = Path(data_dir or os.environ.get("CCMN_DATA") or os.devnull)
    for path in (folder / f"{row.name}.mat", folder / f"{row.name}.npz"):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"the features of {row.name} could not be had. Its labels and candidates alone: load_labels({row.name!r}). "
        f"If you have the features, put them with labels and candidates into {row.name}.mat or {row.name}.npz and set "
        f"CCMN_DATA to its folder: {_where_looked(data_dir)}."
    )


def _is_name(name_or_path: PathLike) -> bool:
    """A string that is in the catalogue, or neither looks like a data file nor is a file."""
    if not isinstance(name_or_path, str):
        return False
    is_file = format_suffix(name_or_path) in FORMATS or os.path.dirname(name_or_path) or os.path.exists(name_or_path)
    return name_or_path in DATASETS or not is_file


def _row(name: object) -> Dataset:
    try:
        return DATASETS[name]  # type: ignore[index]
    except ValueError as error:
        raise ValueError(f"{error}. A file is told by its suffix: {', '.join(FORMATS)}.") from None


def _from_public_files(row: Dataset, data_dir: PathLike | None) -> MultiLabelData:
    try:
        found = {source: _local(source.file, source.sha256, data_dir) or download(source) for source in row.files}
    except (ImportError, OSError) as error:
        raise FileNotFoundError(_advice(row, data_dir, error)) from error
    labels = found[row.label_source] if row.label_source else None
    return concatenate([read_file(found[source], labels) for source in row.sources])


def _local(file: str, sha256: str, data_dir: PathLike | None) -> Path | None:
    """The file in the local data folder, if it is there; refused if it is another one."""
    folder = data_dir or os.environ.get("CCMN_DATA")
    path = Path(folder or ".") / file
    if not folder or not path.is_file():
        return None
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise ValueError(
            f"{path} is not the file expected: its checksum (SHA-256) is not {sha256}. Replace or remove it; to use "
            "it as it is, load it by its path."
        )
    return path


def _where_looked(data_dir: PathLike | None) -> str:
    if data_dir:
        return f"it is not in the folder {data_dir}"
    folder = os.environ.get("CCMN_DATA")
    return f"it is not in CCMN_DATA={folder}" if folder else "no folder was given (data_dir, or CCMN_DATA)"


def _advice(row: Dataset, data_dir: PathLike | None, error: Exception) -> str:
    assert row.bundle is not None
    public = "\n".join(f"  {source.url()}" for source in row.files)
    return (
        f"{row.bundle.file} was not found: {_where_looked(data_dir)}; and {error}.\n"
        f"Put that file, or these public ones under their own names, into a folder and set CCMN_DATA to it:\n{public}"
    )
