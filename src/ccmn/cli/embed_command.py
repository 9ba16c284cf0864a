"""``ccmn embed``: encode a column of image files or texts as vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ccmn.cli.options import Force, Json, check_device, check_output, read_labels
from ccmn.cli.output import error_console, print_json

if TYPE_CHECKING:
    from pandas import DataFrame


def embed(
    source: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with a column of image files or texts.")
    ],
    encoder: Annotated[
        str,
        typer.Option(
            metavar="LIBRARY:NAME",
            help="Encoder: torchvision:resnet50, transformers:NAME, sentence-transformers:NAME, or MODULE:FUNCTION for "
            "a function of your own. NAME may be a local folder.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="PARQUET", help="Parquet file to write.")],
    image: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of image files; relative paths start in the folder of DATA."),
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of texts.")] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Columns that are kept although they are not numbers, as a,b."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Rows that are encoded together.")] = 64,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="DEVICE", callback=check_device, help="auto, cpu, cuda or another device of torch."
        ),
    ] = "auto",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Encode a column of image files or texts as vectors, with a frozen encoder.

    The output has the numeric columns of DATA, such as labels, and columns e0, e1, ... with the vectors. All commands
    read it. Install the libraries with pip install 'ccmn[encoders]'.

    After an interruption the same command continues where it stopped: finished parts are kept in a folder next to the
    output until it is complete.

    Example: ccmn embed photos.csv --image file --encoder torchvision:resnet50 --out photos.parquet
    """
    if (image is None) == (text is None):
        raise typer.BadParameter("Expected either --image COLUMN or --text COLUMN")
    check_output(out, force)
    import torch

    from ccmn._validation import check_device as available_device
    from ccmn.data.encoders import encode_rows, load_encoder, open_images, parts_folder, remove_parts

    table = _read_table(source)
    column = str(image if text is None else text)
    if column not in table:
        raise ValueError(f"{source} has no column {column!r}; its columns are {', '.join(map(str, table))}")
    missing = table[column].isna()
    if missing.any():
        raise ValueError(f"{source}, row {int(missing.to_numpy().argmax()) + 1}: column {column!r} is empty")
    items = table[column].astype(str).tolist()
    rest = _kept_columns(table.drop(columns=column), keep)
    kind = "image" if text is None else "text"
    network = load_encoder(encoder, kind, available_device(device, torch.cuda.is_available()))
    item = open_images(items, source.parent) if kind == "image" else items.__getitem__
    folder = parts_folder(out, encoder, kind, batch_size, items)
    vectors = _encode(encode_rows, network, item, len(items), batch_size=batch_size, parts=folder)
    _write(rest, vectors, out)
    remove_parts(folder)
    printed = {"out": str(out), "rows": len(items), "dimensions": int(vectors.shape[1])}
    print_json(printed) if as_json else typer.echo(f"{out}: {len(items)} rows, {vectors.shape[1]} dimensions")


def _read_table(source: Path) -> DataFrame:
    """Return the columns of a CSV or Parquet file."""
    from ccmn._files import check_file, prefix_errors
    from ccmn.data.csv_format import read_frame_csv
    from ccmn.data.parquet import open_parquet, read_frame

    path = check_file(source)
    if path.suffix.lower() in (".parquet", ".pq"):
        with open_parquet(path) as file, prefix_errors(path):
            table = read_frame(file, path)
    elif path.name.lower().removesuffix(".gz").endswith(".csv"):
        table = read_frame_csv(path)
    else:
        raise ValueError(f"{path}: expected a CSV or Parquet file")
    return cast("DataFrame", table)


def _kept_columns(table: DataFrame, keep: str | None) -> DataFrame:
    """Return the numeric columns and those of ``--keep``; a note lists the others."""
    names = read_labels(keep) if keep else []
    wanted = [names] if isinstance(names, str) else list(names) if isinstance(names, list) else []
    unknown = [name for name in wanted if name not in table]
    if unknown:
        raise ValueError(f"--keep: there is no column {unknown[0]!r}")
    numeric = table.select_dtypes(["number", "bool"]).columns
    dropped = [name for name in table if name not in numeric and name not in wanted]
    if dropped:
        listed = ", ".join(map(str, dropped))
        typer.echo(f"ccmn: note: columns without numbers are left out: {listed}. Use --keep to keep them.", err=True)
    return table.drop(columns=dropped)


def _encode(encode_rows: Any, *arguments: Any, **settings: Any) -> Any:
    """Return the vectors of all rows, with a progress bar in terminals."""
    from rich.progress import Progress

    console = error_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("encoding", total=arguments[2])
        return encode_rows(*arguments, **settings, on_rows=lambda rows: bar.advance(task, rows))


def _write(table: DataFrame, vectors: Any, out: Path) -> None:
    """Write the kept columns and the vectors atomically."""
    import pandas as pd

    from ccmn._files import atomic_write

    names = [f"e{number}" for number in range(vectors.shape[1])]
    taken = [name for name in names if name in table]
    if taken:
        raise ValueError(f"column {taken[0]!r} of the data has the name of a column of the vectors; rename it")
    frame = pd.concat([table.reset_index(drop=True), pd.DataFrame(vectors, columns=names)], axis=1)
    with atomic_write(out) as stream:
        frame.to_parquet(stream, index=False)
