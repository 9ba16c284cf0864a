"""Cells and their results: the SQLite store of a run, and ``cells.csv`` with one value per line."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ccmn._files import PathLike, atomic_write, check_file, prefix_errors, text_lines
from ccmn._sqlite import SQLiteStore
from ccmn.paper.tables import GREATER_IS_BETTER, SELECTIONS, TABLES


@dataclass(frozen=True)
class Cell:
    """One method on one dataset with n rows in one repeat of a table; it has a value for each metric and selection.

    ``configuration`` is everything else that determines the values, as canonical JSON.
    """

    table: str
    protocol: str
    dataset: str
    method: str
    repeat: int
    n: int
    configuration: str = ""

    @cached_property
    def key(self) -> str:
        """Hash of everything that determines the values."""
        fields = [self.table, self.protocol, self.dataset, self.method, self.repeat, self.n, self.configuration]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


@dataclass(frozen=True)
class Result:
    """Cell that was run: its values, or the error that it failed with.

    ``outcome`` has ``values`` and ``chosen`` of :class:`~ccmn.paper.fleet.Outcome`; it is empty for a failure.
    ``seconds`` is the time of the group that the cell was trained in, divided by the number of its cells, and
    ``machine`` the device and the versions.
    """

    cell: Cell
    outcome: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0
    machine: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the run ended with an error."""
        return bool(self.error)


def _check_result(result: Result) -> Result:
    """Raise ``ValueError`` if a result that was read from a file cannot be summarized."""
    cell = result.cell
    TABLES[cell.table]
    if not (isinstance(cell.repeat, int) and isinstance(cell.n, int)):
        raise ValueError(f"repeat and n must be integers; got {cell.repeat!r} and {cell.n!r}")
    if not (isinstance(result.machine, dict) and isinstance(result.seconds, (int, float))):
        raise ValueError("machine must be a mapping and seconds a number")
    texts = (cell.protocol, cell.dataset, cell.method, cell.configuration, result.error, *result.machine.values())
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("protocol, dataset, method, configuration, error and machine must be text")
    values = result.outcome.get("values", {}) if isinstance(result.outcome, dict) else None
    if not isinstance(values, dict) or not all(isinstance(by_metric, dict) for by_metric in values.values()):
        raise ValueError("values must be a mapping from selection and metric to a number")
    for selection, by_metric in values.items():
        if selection not in SELECTIONS:
            raise ValueError(f"unknown selection {selection!r}; expected one of {', '.join(SELECTIONS)}")
        for metric, value in by_metric.items():
            GREATER_IS_BETTER[metric]
            if not isinstance(value, (int, float)):
                raise ValueError(f"the value of {metric} must be a number; got {value!r}")
    return result


class ResultStore(SQLiteStore):
    """SQLite file of results, one row per cell; it is created if it does not exist.

    A stored result does not change. If two processes finish the same cell, the first result is kept. Only failures are
    replaced, by a later run. A damaged file, or one with other contents, is rejected and not modified.
    """

    kind = "result store"
    schema = """
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
    table_name TEXT NOT NULL, protocol TEXT NOT NULL, dataset TEXT NOT NULL, method TEXT NOT NULL,
    repeat INTEGER NOT NULL, n INTEGER NOT NULL, recipe TEXT NOT NULL,
    outcome TEXT NOT NULL,    -- JSON: values, selected hyperparameters; {} for a failure
    error TEXT NOT NULL,
    seconds REAL NOT NULL,    -- time of the group it was part of, divided by its number of cells
    machine TEXT NOT NULL,    -- JSON: device, versions
    finished REAL NOT NULL    -- seconds since 1970
)
"""

    def append(self, results: Iterable[Result]) -> None:
        """Store results in one transaction: all of them are stored, or none.

        A result of a cell that already has one is ignored, unless the stored one is a failure.
        """
        rows = [
            (
                result.cell.key,
                "failed" if result.failed else "done",
                *asdict(result.cell).values(),
                json.dumps(result.outcome),
                result.error,
                result.seconds,
                json.dumps(result.machine),
                time.time(),
            )
            for result in results
        ]
        with self._transaction() as execute:
            for row in rows:
                execute(
                    f"INSERT INTO results VALUES ({', '.join('?' * len(row))}) ON CONFLICT (key) DO UPDATE SET "
                    "status = excluded.status, outcome = excluded.outcome, error = excluded.error, "
                    "seconds = excluded.seconds, machine = excluded.machine, finished = excluded.finished "
                    "WHERE results.status = 'failed'",
                    row,
                )

    def missing(self, cells: Sequence[Cell], *, retry_failed: bool = False) -> list[Cell]:
        """Return the cells that have no result, in the given order; with ``retry_failed`` also failed ones."""
        query = "SELECT key FROM results" + (" WHERE status = 'done'" if retry_failed else "")
        known = {key for (key,) in self._query(query)}
        return [cell for cell in cells if cell.key not in known]

    def results(self) -> Iterator[Result]:
        """Yield all results, in an order that does not depend on when they were stored."""
        rows = self._query(
            "SELECT table_name, protocol, dataset, method, repeat, n, recipe, outcome, error, seconds, machine "
            "FROM results ORDER BY table_name, protocol, dataset, method, repeat, key"
        )
        for *cell, outcome, error, seconds, machine in rows:
            result = Result(Cell(*cell), self._from_json(outcome), error, seconds, self._from_json(machine))
            with prefix_errors(self.path):
                yield _check_result(result)


COLUMNS = ("table", "protocol", "selection", "dataset", "method", "metric", "repeat", "n", "value")
"""Columns of ``cells.csv``."""


def rows(results: Iterable[Result]) -> Iterator[tuple[object, ...]]:
    """Iterate over the values of results as rows with the columns ``COLUMNS``; failures have no rows."""
    for result in results:
        cell = result.cell
        for selection, values in result.outcome.get("values", {}).items():
            for metric, value in values.items():
                before, after = (cell.table, cell.protocol), (cell.dataset, cell.method)
                yield (*before, selection, *after, metric, cell.repeat, cell.n, f"{value:.6f}")


def write_cells(results: Iterable[Result], path: PathLike) -> int:
    """Write the values of results to a CSV file with the columns ``COLUMNS``; return the number of values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    lines = list(rows(results))
    writer.writerows(lines)
    with atomic_write(path) as stream:
        stream.write(text.getvalue().encode())
    return len(lines)


def read_cells(path: PathLike) -> list[Result]:
    """Return the results in a file that :func:`write_cells` wrote, without machine and time.

    An incomplete line, or an unknown table, selection or metric, is an error with the file and the line.
    """
    values_by_cell: dict[Cell, dict[str, dict[str, float]]] = {}
    reader = csv.reader(text_lines(check_file(path)))
    try:
        header = next(reader, [])
        if tuple(header) != COLUMNS:
            found = " ".join(", ".join(header).split())  # a quoted name may have several lines
            raise ValueError(f"{path}: columns must be {', '.join(COLUMNS)}; got {found[:200]}")
        for fields in reader:
            with prefix_errors(f"{path}, line {reader.line_num}"):
                if len(fields) != len(COLUMNS):
                    raise ValueError(f"expected {len(COLUMNS)} fields; got {len(fields)}")
                table, protocol, selection, dataset, method, metric, repeat, n, value = fields
                if "_" in repeat + n + value:  # Python reads 1_0 as 10
                    raise ValueError(f"expected numbers in repeat, n and value; got {repeat!r}, {n!r} and {value!r}")
                cell = Cell(table, protocol, dataset, method, int(repeat), int(n))
                number = {selection: {metric: float(value)}}
                _check_result(Result(cell, {"values": number}))
                values = values_by_cell.setdefault(cell, {}).setdefault(selection, {})
                if metric in values:
                    raise ValueError(f"duplicate value of {metric}")
                values[metric] = number[selection][metric]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    return [Result(cell, {"values": values}) for cell, values in values_by_cell.items()]
