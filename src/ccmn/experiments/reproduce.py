"""One call for a whole table: its data sets loaded, its cells run, whatever is stored already left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.preprocessing import normalize

from ccmn._registry import Catalogue
from ccmn.data.datasets import DATASETS, load_dataset
from ccmn.data.digits import load_digit_scenes
from ccmn.data.files import PathLike, data_name
from ccmn.data.multilabel import MultiLabelData
from ccmn.experiments.cells import Column
from ccmn.experiments.engines import ENGINES
from ccmn.experiments.methods import METHODS, Method
from ccmn.experiments.paper import TABLES, Table
from ccmn.experiments.rivals import RIVALS, Rival
from ccmn.experiments.runner import Tell, Unit, plan
from ccmn.experiments.store import ResultStore

DIGITS = "digits"
"""A data set that is always at hand: pictures of handwritten digits, made of those that come with scikit-learn."""


@dataclass(frozen=True)
class Reproduction:
    """What there is to run, and what cannot be run here."""

    columns: list[Column]
    absent: dict[str, str]
    """Data set -> why it is left out."""


def prepare(
    tables: Sequence[str],
    *,
    datasets: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    data_dir: PathLike | None = None,
    small: bool = False,
    seed: int = 0,
) -> Reproduction:
    """Load the data of the tables' columns.

    Parameters
    ----------
    tables : names in ``TABLES``
    datasets : names, or paths of data files, optional
        These columns rather than all of the table; a file's column is called by the file's name.
    protocols : names, optional
        Of those a table has, these alone.
    small : bool
        Two repeats of ten epochs on the bundled digits (or the data sets named): a table to try things with.
    """
    _check_protocols(tables, protocols or ())
    columns, absent = [], {}
    for table in (_small(TABLES[name]) if small else TABLES[name] for name in tables):
        for dataset in datasets or table.datasets:
            name = column_name(str(dataset))
            chosen = [p for p in table.protocols_for(name) if protocols is None or p.name in protocols]
            try:
                data = load(table, str(dataset), data_dir) if chosen else None
            except FileNotFoundError as error:
                if datasets:
                    raise
                absent[dataset] = str(error).splitlines()[0]
                continue
            columns += [Column(table, protocol, name, data, seed) for protocol in chosen if data is not None]
    if not columns:
        reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
        raise ValueError(f"nothing to run: no data set of {', '.join(tables)} is at hand ({reasons})")
    return Reproduction(columns, absent)


def _small(table: Table) -> Table:
    protocols = tuple(replace(p, epochs=10) for p in table.protocols)
    return replace(table, datasets=(DIGITS,), repeats=2, protocols=protocols)


def column_name(dataset: str) -> str:
    """What a column is called: the name of its data set, or that of its file.

    >>> column_name("yeast"), column_name("folder/mine.csv")
    ('yeast', 'mine')
    """
    return dataset if dataset in DATASETS or dataset == DIGITS else data_name(Path(dataset))


def load(table: Table, dataset: str, data_dir: PathLike | None = None) -> MultiLabelData:
    """The data of a column."""
    if dataset == DIGITS:
        return load_digit_scenes(1000)
    name = table.files.get(dataset, dataset)
    data = load_dataset(name, data_dir=data_dir)
    if dataset in table.unit_rows:
        data = replace(data, X=normalize(data.X))
    kept = [j for j in range(data.q) if j not in table.dropped_labels.get(dataset, ())]
    return data if len(kept) == data.q else _with_labels(data, kept)


def _with_labels(data: MultiLabelData, kept: list[int]) -> MultiLabelData:
    names = None if data.label_names is None else tuple(np.asarray(data.label_names)[kept])
    candidates = None if data.candidates is None else data.candidates[:, kept]
    return replace(data, Y=data.Y[:, kept], candidates=candidates, label_names=names)


def check_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """Names of methods that a fleet trains or that are rivals; an unknown one is refused, with those that are known."""
    known: Catalogue[Method | Rival] = Catalogue("method", {**METHODS, **RIVALS})
    return tuple(known[method].name for method in methods)


def reproduce(
    columns: Sequence[Column],
    store: ResultStore,
    *,
    methods: Sequence[str] | None = None,
    engine: str = "local",
    device: str = "cpu",
    jobs: int = 1,
    address: str | None = None,
    retry_failed: bool = False,
    tell: Tell | None = None,
) -> list[Unit]:
    """Run every cell of the columns that has no result in the store yet.

    ``jobs`` processes at once on this machine (engine "local"), or on the Ray cluster at ``address`` (engine "ray";
    without an address on one that is started here).

    >>> import tempfile, pathlib
    >>> folder = tempfile.TemporaryDirectory()
    >>> with ResultStore(pathlib.Path(folder.name) / "results.db") as store:
    ...     found = prepare(["table1"], protocols=["literal"], small=True)
    ...     units = reproduce(found.columns, store, methods=["unbiased-hamming-square"])
    ...     sum(1 for _ in store.results())
    2
    """
    units = plan(columns, check_methods(methods) if methods else None, device=device)
    if (engine == "ray" and jobs != 1) or (engine != "ray" and address is not None):
        raise ValueError(f"jobs is for engine 'local', address for engine 'ray'; got {engine!r}")
    own = {"address": address} if engine == "ray" else {"jobs": jobs}
    ENGINES[engine](units, store, device=device, retry_failed=retry_failed, tell=tell, **own)
    return units


def _check_protocols(tables: Sequence[str], protocols: Sequence[str]) -> None:
    known = dict.fromkeys(p.name for name in tables for p in TABLES[name].protocols)
    for protocol in protocols:
        if protocol not in known:
            raise ValueError(f"{', '.join(tables)} has no protocol {protocol}; it has {', '.join(known)}")
