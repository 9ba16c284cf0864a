"""``ccmn data``: list, describe, download and convert datasets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.app.cli import options as opt
from ccmn.app.cli import output

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ccmn.data import MultiLabelData
    from ccmn.data.column_roles import ColumnRoles
    from ccmn.data.dataset import Characteristics
    from ccmn.estimation.diagnosis import UncertainLabels

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
        _fetch_ecg(out or Path("ecg.npz"), force, as_json)
        return
    if out is not None:
        raise ValueError("--out requires the name ecg; use ccmn data convert to write a dataset")
    DATASETS[name]  # rejects an unknown name
    data = load_dataset(name, data_dir=data_dir)
    if as_json:
        location = dataset_location(name, data_dir=data_dir)
        output.print_json({"name": name, "here": location, "n": data.n, "d": data.d, "q": data.q})
    else:
        typer.echo(f"{name}: {data.n} rows, {data.d} features, {data.q} labels")


def _fetch_ecg(out: Path, force: bool, as_json: bool) -> None:
    """Write the readings of electrocardiograms as numpy arrays."""
    import numpy as np

    from ccmn._files import atomic_write
    from ccmn.data.catalog import fetch_ecg

    if out.suffix.lower() != ".npz":
        raise ValueError("ecg contains arrays; pass --out FILE.npz")
    opt.check_output(out, force)
    arrays = fetch_ecg()
    with atomic_write(out) as stream:
        np.savez_compressed(stream, **arrays)
    shapes = {key: list(values.shape) for key, values in arrays.items()}
    if as_json:
        output.print_json({"name": "ecg", "out": str(out), "arrays": shapes, "license": "MIT"})
    else:
        typer.echo(f"{out}: {', '.join(f'{key} {tuple(shape)}' for key, shape in shapes.items())}")


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
    uncertain: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            help="Third value in the label columns that means uncertain, such as -1 in CheXpert. Each entry becomes 0, "
            "1 or empty, and the share of positives is printed for every label. Requires a table and --out FILE.csv.",
            show_default=False,
        ),
    ] = None,
    data_dir: opt.DataDir = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Convert data from any supported format to another one.

    NPZ is small, fast to load and stores which columns are labels. JSON is a list of tasks for Label Studio. JSONL has
    one object per row, as read by Hugging Face datasets, Argilla and doccano. CSV has one column per label, or a column
    of labels (separated by --sep; # for doccano) if the data have texts, pictures or identifiers.

    Examples: ccmn data convert yeast.arff --labels yeast.xml --out yeast.npz,
    ccmn data convert export.json --out tickets.csv, or
    ccmn data convert xray.csv --labels 'finding_*' --uncertain -1 --out resolved.csv
    """
    with opt.all_mistakes() as check:
        file = check(opt.check_source, source, context.params)
        check(opt.check_output, out, force)
    from ccmn.data.formats import writer_for

    write = writer_for(out)
    if uncertain is not None:
        _resolve_uncertain(source, file.roles, uncertain, out, as_json)
        return
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


def _resolve_uncertain(source: str, roles: ColumnRoles, uncertain: float, out: Path, as_json: bool) -> None:
    """Write the table with 0, 1 or nothing in the uncertain entries of its label columns."""
    from dataclasses import replace

    import numpy as np

    from ccmn._files import atomic_write
    from ccmn.data.cells import to_numbers, without_gap_words
    from ccmn.data.column_roles import label_columns
    from ccmn.data.formats import is_table, read_table
    from ccmn.data.labeled_table import LabeledTable
    from ccmn.estimation import resolve_uncertain

    if not is_table(source) or roles.labels is None or out.suffix.lower() != ".csv":
        raise ValueError("--uncertain requires a table (CSV, Parquet, JSON), --labels and --out FILE.csv")
    raw = read_table(source)
    names = [str(name) for name in raw.frame.columns]
    chosen = [names[j] for j in label_columns(roles.labels, names)]
    # The cells of CSV files are texts.
    cells = raw.frame if raw.places is None else raw.frame.assign(**without_gap_words(raw.frame[chosen]))
    values = np.column_stack([to_numbers(cells[name], raw.place) for name in chosen])
    unclear = values == uncertain
    without = raw.frame.assign(**{name: cells[name].mask(unclear[:, j]) for j, name in enumerate(chosen)})
    _, data = LabeledTable.read(replace(raw, frame=without), replace(roles, labels=chosen)).fit()
    found = resolve_uncertain(data.X, np.where(unclear, uncertain, data.Y), uncertain=uncertain)
    resolved = {
        name: ["" if np.isnan(value) else str(int(value)) for value in found.Y[:, j]] for j, name in enumerate(chosen)
    }
    with atomic_write(out) as stream:
        raw.frame.assign(**resolved).to_csv(stream, index=False)
    rows = [_resolution(name, found, unclear, j) for j, name in enumerate(chosen)]
    if as_json:
        output.print_json({"out": str(out), "n": len(values), "q": len(chosen), "labels": rows})
        return
    for row in rows:
        if row["uncertain"]:
            low, high = row["interval"]
            typer.echo(
                f"{row['label']}: {row['uncertain']} uncertain, {row['share_positive']:.0%} positive (90 % interval "
                f"{low:.0%} to {high:.0%}); {row['set_to_1']} set to 1, {row['set_to_0']} set to 0, the others empty"
            )
    typer.echo(f"{out}: {len(values)} rows, {len(chosen)} labels")


def _resolution(name: str, found: UncertainLabels, unclear: NDArray[np.bool_], j: int) -> dict[str, Any]:
    """Return how the uncertain entries of label j were resolved."""
    known = bool(found.counts[j])
    return {
        "label": name,
        "uncertain": int(found.counts[j]),
        "share_positive": round(float(found.share[j]), 4) if known else None,
        "interval": [round(float(end), 4) for end in found.ci[j]] if known else None,
        "set_to_1": int((unclear[:, j] & (found.Y[:, j] == 1)).sum()),
        "set_to_0": int((unclear[:, j] & (found.Y[:, j] == 0)).sum()),
    }


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
    from ccmn.data import load_dataset
    from ccmn.data.catalog import DATASETS
    from ccmn.data.columns import Columns
    from ccmn.data.dataset import describe
    from ccmn.data.formats import is_table

    if source in DATASETS:
        return describe(load_dataset(source, data_dir=data_dir)), DATASETS[source].paper
    if is_table(source):
        return describe(Columns.from_training_data(source, roles=roles, data_dir=data_dir)[1]), None
    return describe(load_dataset(source, labels=roles.labels, data_dir=data_dir)), None
