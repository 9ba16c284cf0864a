"""``ccmn data``: list, describe, download and convert datasets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.cli.options import (
    Command,
    Data,
    DataDir,
    Force,
    Ignore,
    Image,
    Json,
    Labels,
    RowId,
    Separator,
    Tags,
    Text,
    check_output,
    read_labels,
    read_roles,
)
from ccmn.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.characteristics import Characteristics
    from ccmn.data.labeled_table import ColumnRoles

data_app = typer.Typer(help="List, describe, download and convert datasets.", no_args_is_help=True)


@data_app.command("list", cls=Command)
def list_datasets(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the datasets of the paper and show which of them are on this machine.

    Example: ccmn data list
    """
    from ccmn.data.catalog import DATASETS, dataset_location

    places = {name: dataset_location(name, data_dir=data_dir) for name in DATASETS}
    if as_json:
        rows = [
            {
                "name": row.name,
                "domain": row.domain,
                "n": row.n,
                "d": row.paper.d,
                "q": row.paper.q,
                "paper": row.paper._asdict(),
                "here": places[name],
                "note": row.note,
            }
            for name, row in DATASETS.items()
        ]
        print_json(rows)
        return
    from ccmn.report.console import data_sets_table

    print_table(data_sets_table(DATASETS, places))


@data_app.command(cls=Command)
def info(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA]...", help="Dataset names or data files (default: all datasets on this machine)."
        ),
    ] = None,
    labels: Labels = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show the characteristics of datasets next to those printed in the paper.

    Examples: ccmn data info yeast scene, or ccmn data info mine.csv --labels 'label_*'
    """
    described = [_describe(source, labels, data_dir) for source in sources or _available(data_dir)]
    if as_json:
        rows = [{**asdict(figures), "paper": paper and paper._asdict()} for figures, paper in described]
        print_json(rows if len(sources or ()) != 1 else rows[0])
        return
    from ccmn.report.console import appendix_table, characteristics_table

    print_table(appendix_table(described) if len(described) > 1 else characteristics_table(*described[0]))


@data_app.command(cls=Command)
def fetch(
    name: Annotated[str, typer.Argument(help="Name of a dataset (see ccmn data list).", show_default=False)],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Download a dataset into the cache if it is not on this machine, and check that it can be read.

    Example: ccmn data fetch yeast
    """
    from ccmn.data.catalog import DATASETS, dataset_location, load_dataset

    DATASETS[name]  # rejects an unknown name
    data = load_dataset(name, data_dir=data_dir)
    if as_json:
        location = dataset_location(name, data_dir=data_dir)
        print_json({"name": name, "here": location, "n": data.n, "d": data.d, "q": data.q})
    else:
        typer.echo(f"{name}: {data.n} rows, {data.d} features, {data.q} labels")


@data_app.command("import", cls=Command, hidden=True, deprecated=True)
@data_app.command(cls=Command)
def convert(
    source: Data,
    out: Annotated[Path, typer.Option(help="File to write: .npz, .csv, .json or .jsonl.", show_default=False)],
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    text: Text = None,
    image: Image = None,
    row_id: RowId = None,
    ignore: Ignore = None,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Convert data from any supported format to another one.

    NPZ is small, fast to load and stores which columns are labels. JSON is a list of tasks for Label Studio. JSONL has
    one object per row, as read by Hugging Face datasets, Argilla and doccano. CSV has one column per label, or a column
    of labels (separated by --sep; # for doccano) if the data have texts, pictures or identifiers.

    Examples: ccmn data convert yeast.arff --labels yeast.xml --out yeast.npz, or
    ccmn data convert export.json --out tickets.csv
    """
    from ccmn.data.formats import writer_for

    write = writer_for(check_output(out, force))
    data = _read_for_exchange(source, read_roles(labels, tags, sep, text, image, row_id, ignore), out, data_dir)
    if out.suffix.lower() == ".csv" and not data.d and data.q:
        from ccmn.data.exchange import write_tag_csv

        write_tag_csv(data, out, sep)
    else:
        write(data, out)
    if as_json:
        print_json({"out": str(out), "n": data.n, "d": data.d, "q": data.q})
    else:
        typer.echo(f"{out}: {data.n} rows, {data.d} features, {data.q} labels")


def _read_for_exchange(source: str, roles: ColumnRoles, out: Path, data_dir: Path | None) -> MultiLabelData:
    """Return data to write: without features if the target has texts and labels only."""
    import numpy as np

    from ccmn.data.catalog import load_dataset
    from ccmn.data.columns import Columns
    from ccmn.data.formats import FORMATS, format_suffix, is_table, read_table
    from ccmn.data.labeled_table import LabeledTable

    plain = not is_table(source) or (roles.is_plain and not roles.text and FORMATS[format_suffix(source)].numeric)
    if plain and roles.is_plain and not roles.text:
        return load_dataset(source, labels=roles.labels, data_dir=data_dir)
    if plain or out.suffix.lower() == ".npz":
        return Columns.from_training_data(source, roles=roles, data_dir=data_dir)[1]
    table = LabeledTable.read(read_table(source), roles)
    return table.data(np.empty((len(table.cells), 0), dtype=np.float32), None)


def _available(data_dir: Path | None) -> list[str]:
    """Return the names of the datasets on this machine."""
    from ccmn.data.catalog import DATASETS, dataset_location

    names = [name for name in DATASETS if dataset_location(name, data_dir=data_dir)]
    if not names:
        raise FileNotFoundError(
            "no dataset is on this machine: download one (ccmn data fetch yeast), or set CCMN_DATA or --data-dir to a "
            "folder with datasets"
        )
    return names


def _describe(source: str, labels: str | None, data_dir: Path | None) -> tuple[Characteristics, Any]:
    """Return the characteristics of a dataset or file and those printed in the paper, if any."""
    from ccmn.data import load_dataset
    from ccmn.data.catalog import DATASETS
    from ccmn.data.characteristics import describe

    paper = DATASETS[source].paper if source in DATASETS else None
    spec = None if source in DATASETS else read_labels(labels)
    return describe(load_dataset(source, labels=spec, data_dir=data_dir)), paper
