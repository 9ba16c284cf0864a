"""Experiments of the paper: tables, protocols, runs, stored results and summaries.

The command line runs them with ``ccmn reproduce`` and shows the results with ``ccmn report``.
"""

from __future__ import annotations

from ccmn.paper import baselines as baselines
from ccmn.paper import theory as theory
from ccmn.paper.protocols import Protocol
from ccmn.paper.result_store import Cell, Result, ResultStore, read_cells, write_cells
from ccmn.paper.runner import prepare, run_table
from ccmn.paper.summary import Summary, summarize
from ccmn.paper.tables import METHODS, TABLES, PaperTable, printed_values

__all__ = [
    "METHODS",
    "TABLES",
    "Cell",
    "PaperTable",
    "Protocol",
    "Result",
    "ResultStore",
    "Summary",
    "prepare",
    "printed_values",
    "read_cells",
    "run_table",
    "summarize",
    "write_cells",
]
