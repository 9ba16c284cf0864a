"""``ccmn data``: list, describe, download and convert datasets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.app.cli import options as opt
from ccmn.app.cli import output

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.column_roles import ColumnRoles
    from ccmn.data.dataset import Characteristics

SIZES = {"n": "rows", "d": "features", "q": "labels"}
"""Sizes that are printed of downloaded data."""

data_app = typer.Typer(
    help="List, inspect, download and convert datasets.", no_args_is_help=True, rich_markup_mode=None
)


@data_app.command("list", cls=opt.Command)
def list_datasets(data_dir: opt.DataDir = None, as_json: opt.Json = False) -> None:
    """List the datasets of the paper and show which of them are on this machine.

    Example: ccmn data list
    """
    from ccmn.data.catalog import DATASETS, dataset_location

    places = {name: dataset_location(name, data_dir=data_dir) for name in DATASETS}
    if as_json:
        rows = []
        for name, row in DATASETS.items():
            sizes = {"n": row.n, "d": row.paper.d, "q": row.paper.q, "paper": row.paper._asdict()}
            rows.append({"name": name, "domain": row.domain, **sizes, "here": places[name], "note": row.note})
        output.print_json(rows)
        return
    from ccmn.app.report.tables import datasets_table

    output.print_table(datasets_table(DATASETS, places))
    typer.echo("\nLabels of five readers of electrocardiograms, with an adjudicated truth (MIT): ccmn data fetch ecg")


@data_app.command(cls=opt.Command)
def info(
    context: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA]...", help="Dataset names or data files (default: all datasets on this machine)."
        ),
    ] = None,
    labels: opt.Labels = None,
    tags: opt.Tags = None,
    sep: opt.Separator = ";",
    text: opt.Text = None,
    image: opt.Image = None,
    row_id: opt.RowId = None,
    ignore: opt.Ignore = None,
    data_dir: opt.DataDir = None,
    as_json: opt.Json = False,
) -> None:
    """Show the characteristics of datasets next to those printed in the paper.

    Examples: ccmn data info yeast scene, or ccmn data info mine.csv --labels 'label_*'
    """
    roles = opt.read_roles(context.params)
    described = [_describe(source, roles, data_dir) for source in sources or _available(data_dir)]
    if as_json:
        rows = [{**asdict(figures), "paper": paper and paper._asdict()} for figures, paper in described]
        output.print_json(rows if len(sources or ()) != 1 else rows[0])
        return
    from ccmn.app.report.tables import characteristics_table

    output.print_table(characteristics_table(described))


@data_app.command(cls=opt.Command)
def fetch(
    name: Annotated[str, typer.Argument(help="Name of a dataset (see ccmn data list).", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(metavar="NPZ", help="Write the readings of ecg to this file (default: ecg.npz)."),
    ] = None,
    data_dir: opt.DataDir = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Download a dataset into the cache if it is not on this machine, and check that it can be read.

    The name ecg stands for readings of electrocardiograms by five readers, with an adjudicated truth.

    Examples: ccmn data fetch yeast, or ccmn data fetch ecg
    """
    from ccmn.data.catalog import DATASETS, dataset_location, load_dataset

    if name == "ecg":
        result = _fetch_ecg(out or Path("ecg.npz"), force)
    elif out is not None:
        raise ValueError("--out requires the name ecg; use ccmn data convert to write a dataset")
    else:
        DATASETS[name]  # rejects an unknown name
        data = load_dataset(name, data_dir=data_dir)
        result = {"here": dataset_location(name, data_dir=data_dir), "n": data.n, "d": data.d, "q": data.q}
    if as_json:
        output.print_json({"name": name, **result})
        return
    sizes = ", ".join(f"{result[key]} {noun}" for key, noun in SIZES.items() if key in result)
    terms = f". License: {result['license']}" if "license" in result else ""
    typer.echo(f"{result.get('out', name)}: {sizes}{terms}")


def _fetch_ecg(out: Path, force: bool) -> dict[str, Any]:
    """Write the readings of electrocardiograms as numpy arrays."""
    import numpy as np

    from ccmn._files import atomic_write
    from ccmn.data.catalog import fetch_ecg

    opt.check_output(out, force, suffixes=(".npz",))
    arrays = fetch_ecg()
    with atomic_write(out) as stream:
        np.savez_compressed(stream, **arrays)
    shapes = {key: list(values.shape) for key, values in arrays.items()}
    return {"out": str(out), "n": len(arrays["Y_true"]), "arrays": shapes, "license": "MIT"}


@data_app.command(cls=opt.Command)
def convert(
    context: typer.Context,
    source: opt.Data,
    out: Annotated[Path, typer.Option(help="File to write: .npz, .csv, .json or .jsonl.", show_default=False)],
    labels: opt.Labels = None,
    tags: opt.Tags = None,
    sep: opt.Separator = ";",
    text: opt.Text = None,
    image: opt.Image = None,
    row_id: opt.RowId = None,
    ignore: opt.Ignore = None,
    data_dir: opt.DataDir = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Convert data from any supported format to another one.

    NPZ is small, fast to load and stores which columns are labels. JSON is a list of tasks for Label Studio. JSONL has
    one object per row, as read by Hugging Face datasets, Argilla and doccano. CSV has one column per label, or a column
    of labels (separated by --sep; # for doccano) if the data have texts, pictures or identifiers.

    Examples: ccmn data convert yeast.arff --labels yeast.xml --out yeast.npz, or
    ccmn data convert export.json --out tickets.csv
    """
    with opt.all_mistakes() as check:
        file = check(opt.check_source, source, context.params)
        check(opt.check_output, out, force)
    from ccmn.data.formats import writer_for

    write = writer_for(out)
    data = _read_for_exchange(source, file.roles, out, data_dir)
    if out.suffix.lower() == ".csv" and not data.d and data.q:
        from ccmn.data.exchange import write_tag_csv

        write_tag_csv(data, out, sep)
    else:
        write(data, out)
    if as_json:
        output.print_json({"out": str(out), "n": data.n, "d": data.d, "q": data.q})
    else:
        typer.echo(f"{out}: {data.n} rows, {data.d} features, {data.q} labels")


def _read_for_exchange(source: str, roles: ColumnRoles, out: Path, data_dir: Path | None) -> MultiLabelData:
    """Return data to write: without features if the target has texts and labels only."""
    import numpy as np

    from ccmn.data.columns import Columns, read_numbers
    from ccmn.data.formats import FORMATS, format_suffix, is_table, read_table
    from ccmn.data.labeled_table import LabeledTable

    plain = not is_table(source) or (roles.is_plain and FORMATS[format_suffix(source)].numeric)
    if plain and roles.is_plain:
        return read_numbers(source, roles, data_dir)
    if plain or out.suffix.lower() == ".npz":
        return Columns.from_training_data(source, roles=roles, data_dir=data_dir)[1]
    table = LabeledTable.read(read_table(source), roles)
    return table.data(np.empty((len(table.raw.frame), 0), dtype=np.float32), None)


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


def _describe(source: str, roles: ColumnRoles, data_dir: Path | None) -> tuple[Characteristics, Any]:
    """Return the characteristics of a dataset or file and those printed in the paper, if any."""
    from ccmn.data.catalog import DATASETS, load_dataset
    from ccmn.data.columns import Columns
    from ccmn.data.dataset import describe
    from ccmn.data.formats import is_table

    if source in DATASETS:
        return describe(load_dataset(source, data_dir=data_dir)), DATASETS[source].paper
    if is_table(source):
        return describe(Columns.from_training_data(source, roles=roles, data_dir=data_dir)[1]), None
    return describe(load_dataset(source, labels=roles.labels, data_dir=data_dir)), None
