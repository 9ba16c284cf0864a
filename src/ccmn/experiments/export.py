"""Results as plain rows: one value per line, for whoever wants to count for themselves."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from ccmn.data.files import PathLike, blame, check_file, text_lines, whole_file
from ccmn.experiments.cells import Cell
from ccmn.experiments.store import Result

COLUMNS = ("table", "protocol", "selection", "dataset", "method", "metric", "repeat", "n", "value")


def rows(results: Iterable[Result]) -> Iterator[tuple[object, ...]]:
    """A row per value, in the order of ``COLUMNS``; failures have none."""
    for result in results:
        cell = result.cell
        for selection, values in result.outcome.get("values", {}).items():
            for metric, value in values.items():
                yield (
                    cell.table,
                    cell.protocol,
                    selection,
                    cell.dataset,
                    cell.method,
                    metric,
                    cell.repeat,
                    cell.n,
                    f"{value:.6f}",
                )


def read_cells(path: PathLike) -> list[Result]:
    """The results in a file that ``write_cells`` wrote: values alone, without machine, time or learning curves."""
    found: dict[Cell, dict[str, dict[str, float]]] = {}
    with blame(path):
        reader = csv.DictReader(text_lines(check_file(path)))
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"its columns must be {', '.join(COLUMNS)}; got {', '.join(reader.fieldnames or ())}")
        for row in reader:
            names = {"table": row["table"], "protocol": row["protocol"], "dataset": row["dataset"]}
            cell = Cell(**names, method=row["method"], repeat=int(row["repeat"]), n=int(row["n"]))
            values = found.setdefault(cell, {}).setdefault(row["selection"], {})
            values[row["metric"]] = float(row["value"])
    return [Result(cell, {"values": values}) for cell, values in found.items()]


def write_cells(results: Iterable[Result], path: PathLike) -> int:
    """Write ``cells.csv``; returns the number of values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    found = list(rows(results))
    writer.writerows(found)
    with whole_file(path) as stream:
        stream.write(text.getvalue().encode())
    return len(found)
