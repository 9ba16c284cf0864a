"""``ccmn predict``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ccmn.cli.models import Model, columns_of, predictions_of
from ccmn.cli.options import Data, DataDir, Force, Json, check_free
from ccmn.cli.output import print_json


def predict(
    model: Model,
    source: Data,
    out: Annotated[
        Path | None, typer.Option(help="The CSV file to write; else it goes to the screen.", metavar="CSV")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="The K most probable labels of every row, a line each.")
    ] = None,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict labels, with their probabilities.

    A line per row: every label as 0 or 1, then every label's probability p(label); the cut is at 0.5. Columns are
    found by the names that the model was fitted on; labels among them do not matter.

    Example: ccmn predict model.ccmn new.csv --out predictions.csv
    """
    from ccmn._files import atomic_write
    from ccmn.models import load_model

    if out is not None:
        check_free(out, force)
    classifier = load_model(model)
    data = columns_of(classifier).read_rows(source, data_dir=data_dir)
    found = predictions_of(classifier, data.X)
    if out is not None:
        with atomic_write(out) as stream:
            for part in found:
                part.write(stream, top)
        print_json({"out": str(out), "rows": data.n}) if as_json else typer.echo(f"{out}: {data.n} rows")
    elif as_json:
        parts = list(found)
        rows = [row for part in parts for row in part.to_dicts(top)]
        print_json({"labels": list(parts[0].label_names), "cut": 0.5, "rows": rows})
    else:
        for part in found:
            part.write(sys.stdout.buffer, top)
