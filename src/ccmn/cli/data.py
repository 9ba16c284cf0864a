"""``ccmn data``: what data sets there are, what they are like, and files from one format into another."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.cli.options import Data, DataDir, Force, Json, Labels, check_free, read_labels
from ccmn.cli.output import print_json, show

if TYPE_CHECKING:
    from ccmn.data.catalog import Dataset
    from ccmn.data.characteristics import Characteristics

data_app = typer.Typer(help="Data sets: list, info, fetch, convert.", no_args_is_help=True)


@data_app.command("list")
def list_data_sets(data_dir: DataDir = None, as_json: Json = False) -> None:
    """The data sets of the paper, and which of them are on this machine.

    Example: ccmn data list
    """
    from ccmn.data.catalog import DATASETS, dataset_location

    places = {name: dataset_location(name, data_dir=data_dir) for name in DATASETS}
    if as_json:
        print_json([_row(row, places[name]) for name, row in DATASETS.items()])
        return
    from ccmn.report.console import data_sets_table

    show(data_sets_table(DATASETS, places))


@data_app.command()
def info(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA]...", help="Names of data sets, or data files; none: every data set on this machine."
        ),
    ] = None,
    labels: Labels = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """What data are like: the table of the paper's appendix, measured, beside what is printed there.

    Examples: ccmn data info yeast scene, or ccmn data info mine.csv --labels 'label_*'
    """
    found = [_describe(source, labels, data_dir) for source in sources or _at_hand(data_dir)]
    if as_json:
        rows = [{**asdict(figures), "paper": paper and paper._asdict()} for figures, paper in found]
        print_json(rows if len(sources or ()) != 1 else rows[0])
        return
    from ccmn.report.console import appendix_table, characteristics_table

    show(appendix_table(found) if len(found) > 1 else characteristics_table(*found[0]))


@data_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="The name of a data set; see ccmn data list.", show_default=False)],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Download a data set into the cache, unless it is here, and check that it can be read.

    Example: ccmn data fetch yeast
    """
    from ccmn.data.catalog import DATASETS, dataset_location, load_dataset

    DATASETS[name]
    data = load_dataset(name, data_dir=data_dir)
    if as_json:
        shape = {"n": data.n, "d": data.d, "q": data.q}
        print_json({"name": name, "here": dataset_location(name, data_dir=data_dir), **shape})
    else:
        typer.echo(f"{name} is here: {data.n} rows, {data.d} features, {data.q} labels")


@data_app.command("import", hidden=True, deprecated=True)
@data_app.command()
def convert(
    source: Data,
    out: Annotated[Path, typer.Option(help="The file to write, .npz or .csv.", show_default=False)],
    labels: Labels = None,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Convert data from any supported format to NPZ (small, fast to load, stores which columns are labels) or CSV.

    Example: ccmn data convert yeast.arff --labels yeast.xml --out yeast.npz
    """
    from ccmn.data.catalog import load_dataset
    from ccmn.data.formats import writer_for

    write = writer_for(check_free(out, force))
    data = load_dataset(source, labels=read_labels(labels), data_dir=data_dir)
    write(data, out)
    if as_json:
        print_json({"out": str(out), "n": data.n, "d": data.d, "q": data.q})
    else:
        typer.echo(f"{out}: {data.n} rows, {data.d} features, {data.q} labels")


def _row(row: Dataset, here: str) -> dict[str, Any]:
    sizes = {"n": row.n, "d": row.paper.d, "q": row.paper.q}
    return {
        "name": row.name,
        "domain": row.domain,
        **sizes,
        "paper": row.paper._asdict(),
        "here": here,
        "note": row.note,
    }


def _at_hand(data_dir: Path | None) -> list[str]:
    from ccmn.data.catalog import DATASETS, dataset_location

    names = [name for name in DATASETS if dataset_location(name, data_dir=data_dir)]
    if not names:
        raise FileNotFoundError(
            "no data set is on this machine: name one to download it (ccmn data fetch yeast), or set CCMN_DATA to "
            "a folder that has them"
        )
    return names


def _describe(source: str, labels: str | None, data_dir: Path | None) -> tuple[Characteristics, Any]:
    """The figures of a data set or file, and what the paper prints (None: it does not know it)."""
    from ccmn.data import load_dataset
    from ccmn.data.catalog import DATASETS
    from ccmn.data.characteristics import describe

    paper = DATASETS[source].paper if source in DATASETS else None
    spec = None if source in DATASETS else read_labels(labels)
    return describe(load_dataset(source, labels=spec, data_dir=data_dir)), paper
