"""``ccmn embed``: encode image files or a column of texts as vectors."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ccmn.app.cli import options as opt
from ccmn.app.cli.output import draw_progress, print_json

if TYPE_CHECKING:
    from pandas import DataFrame

    from ccmn.data.column_roles import ColumnRoles

FOLDER_COLUMNS = ("file", "tags")
"""Columns of the table of a folder: the files, and the names of their sub-folders."""


def embed(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="CSV or Parquet file with a column of image files or texts, or a folder of images, whose sub-folders "
            "are their tags.",
        ),
    ],
    encoder: Annotated[
        str,
        typer.Option(
            metavar="LIBRARY:NAME",
            help="Encoder: torchvision:resnet50, transformers:NAME, sentence-transformers:NAME, pixels:16x16 (for a "
            "first try, without a network), or MODULE:FUNCTION for a function of your own. NAME may be a local folder.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="PARQUET", help="Parquet file to write.")],
    image: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of image files; relative paths start in the folder of DATA."),
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of texts.")] = None,
    labels: opt.Labels = None,
    tags: opt.Tags = None,
    sep: opt.Separator = ";",
    row_id: opt.RowId = None,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Rows that are encoded together.")] = 64,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="DEVICE", callback=opt.check_device, help="auto, cpu, cuda or another device of torch."
        ),
    ] = "auto",
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Encode image files or a column of texts as vectors, with a frozen encoder.

    The output has the numeric columns of DATA, such as labels, the columns of image files, tags and identifiers, and
    columns e0, e1, ... with the vectors. All commands read it, and know the columns of image files, tags and
    identifiers. The encoders need further libraries, those of the extra "encoders" of ccmn.

    After an interruption the same command continues where it stopped: finished parts are kept in a folder next to the
    output until it is complete.

    Examples: ccmn embed photos.csv --image file --tags tags --encoder torchvision:resnet50 --out photos.parquet, or
    ccmn embed photos --encoder torchvision:resnet50 --out photos.parquet
    """
    from ccmn._files import prefix_errors
    from ccmn.data.column_roles import ColumnRoles, check_columns, label_columns
    from ccmn.data.encoders import remove_parts

    if source.is_dir():
        if image or text or tags or labels or row_id:
            raise typer.BadParameter("A folder of images has no columns: omit options that name columns")
        opt.check_output(out, force)
        table, folder = _read_folder(source, out.parent), out.parent
        image = FOLDER_COLUMNS[0]
        tags = FOLDER_COLUMNS[1] if FOLDER_COLUMNS[1] in table else None
    else:
        if (image is None) == (text is None):
            raise typer.BadParameter("Expected either --image COLUMN or --text COLUMN")
        if tags is not None and labels is not None:
            raise typer.BadParameter("Expected either --labels or --tags, not both")
        opt.check_output(out, force)
        table, folder = _read_table(source, [name for name in (image, text, tags, row_id) if name]), source.parent
    roles = ColumnRoles(None, tags, sep.replace("\\t", "\t"), image=image, id=row_id)
    column = str(image if text is None else text)
    names, selected = list(map(str, table)), opt.read_labels(labels)
    with prefix_errors(source):
        check_columns(names, roles if text is None else replace(roles, text=(text,)))
        if selected is not None:
            label_columns(selected, names)
        empty = (table[column].isna() | (table[column] == "")).to_numpy()
        if empty.any():
            raise ValueError(f"row {int(empty.argmax()) + 1}: column {column!r} is empty")
    items = table[column].astype(str).tolist()
    kind = "image" if text is None else "text"
    vectors, parts = _encode(items, kind, encoder, device, batch_size, folder, out)
    kept = _kept_columns(table, roles, None if text is None else column)
    if image is not None:
        kept[image] = _paths_from(items, folder, out.parent)
    _write(kept, vectors, roles, out)
    remove_parts(parts)
    printed = {"out": str(out), "rows": len(items), "dimensions": int(vectors.shape[1])}
    if as_json:
        print_json(printed)
        return
    typer.echo(f"{out}: {len(items)} rows, {vectors.shape[1]} dimensions")
    if tags is not None or labels is not None:
        # The file declares the other columns.
        opt.print_next(opt.shell_command("noise estimate", out, labels=labels, out=opt.unused_name("rates.json")))
    else:
        opt.print_next(
            opt.shell_command("predict", "MODEL", out), "to train a model, declare labels with --tags or --labels"
        )


def _encode(
    items: list[str], kind: str, encoder: str, device: str, batch_size: int, folder: Path, out: Path
) -> tuple[Any, Path]:
    """Return the vectors of all rows and the folder of finished parts; show a progress bar in terminals."""
    import torch

    from ccmn._validation import check_device as available_device
    from ccmn.data.encoders import encode_rows, load_encoder, open_images, parts_folder

    network = load_encoder(encoder, kind, available_device(device, torch.cuda.is_available()))
    item = open_images(items, folder) if kind == "image" else items.__getitem__
    parts = parts_folder(out, encoder, kind, batch_size, items)
    done = 0
    with draw_progress() as on_progress:

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            on_progress("encoding", done, len(items))

        return encode_rows(network, item, len(items), batch_size=batch_size, parts=parts, on_rows=advance), parts


def _read_folder(folder: Path, start: Path) -> DataFrame:
    """Return the image files below a folder as a table, with the names of their sub-folders as tags."""
    import pandas as pd

    from ccmn._pictures import IMAGE_SUFFIXES

    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    if not files:
        raise ValueError(f"{folder} contains no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    file, tags = FOLDER_COLUMNS
    table = pd.DataFrame({file: [os.path.relpath(path, start) for path in files]})
    groups = [path.relative_to(folder).parts[0] if path.parent != folder else None for path in files]
    if any(groups):
        table[tags] = pd.Series(groups, dtype=object)
    return table


def _read_table(source: Path, words: list[str]) -> DataFrame:
    """Return the columns of a CSV or Parquet file; the cells of some columns of a CSV file are words."""
    from ccmn._files import check_file
    from ccmn.data.cells import to_numbers
    from ccmn.data.formats import format_suffix, read_table

    path = check_file(source)
    if format_suffix(path) not in (".csv", ".parquet"):
        raise ValueError(f"{path}: expected a CSV or Parquet file, or a folder of images")
    raw = read_table(path).typed(words)
    if raw.places is None:  # the columns have types
        return cast("DataFrame", raw.frame)
    numbers = {}
    for name in raw.frame.columns.difference(words):
        with suppress(ValueError):  # a column of words
            numbers[name] = to_numbers(raw.frame[name], raw.place)
    return cast("DataFrame", raw.frame.assign(**numbers))


def _kept_columns(table: DataFrame, roles: ColumnRoles, encoded: str | None) -> DataFrame:
    """Return the numeric columns and those with a role; a note lists the others."""
    declared = [name for name in (roles.image, roles.tags, roles.id) if name is not None]
    kept = {*table.select_dtypes(["number", "bool"]).columns, *declared}
    dropped = [name for name in table if name not in kept and name != encoded]
    if dropped:
        typer.echo(
            f"ccmn: note: columns without numbers are left out: {', '.join(map(str, dropped))}. Declare a column of "
            "labels with --tags.",
            err=True,
        )
    return table[[name for name in table if name in kept]].copy()


def _paths_from(files: list[str], folder: Path, start: Path) -> list[str]:
    """Return paths that are relative to a folder as paths relative to the folder of the output."""
    if folder.resolve() == start.resolve():
        return files
    moved = [os.path.relpath(folder / file, start) for file in files]
    if any(file.startswith("..") for file in moved):
        typer.echo(
            f"ccmn: note: the images are not below {start}. Use ccmn review --image-dir {folder} to see them.", err=True
        )
        return files
    return moved


def _write(table: DataFrame, vectors: Any, roles: ColumnRoles, out: Path) -> None:
    """Write the kept columns and the vectors, and declare the roles of the columns."""
    import pandas as pd

    from ccmn.data.parquet import write_parquet_table

    names = [f"e{number}" for number in range(vectors.shape[1])]
    taken = [name for name in names if name in table]
    if taken:
        raise ValueError(f"column {taken[0]!r} of the data has the name of a column of the vectors; rename it")
    frame = pd.concat([table.reset_index(drop=True), pd.DataFrame(vectors, columns=names)], axis=1)
    write_parquet_table(frame, roles, out)
