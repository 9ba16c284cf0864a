"""Values of metrics as a table for a terminal (rich)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from ccmn.metrics import METRICS


def metrics_table(values: Mapping[str, Any], n: int, *, corrected: bool) -> Table:
    """A metric per line, with an arrow in the direction of improvement.

    A value is a number, or for ``corrected`` ones value, se and status.
    """
    kind = "estimated for clean labels from noisy ones" if corrected else "on the labels as they are"
    table = Table(caption=f"{n} rows, {kind}")
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right")
    if corrected:
        table.add_column("±", justify="right")
        table.add_column("estimate")
    for name, value in values.items():
        title = f"{name.replace('_', ' ')} {'↑' if METRICS[name].greater_is_better else '↓'}"
        cells = (f"{value['value']:.4f}", f"{value['se']:.4f}", value["status"]) if corrected else (f"{value:.4f}",)
        table.add_row(title, *cells)
    return table
