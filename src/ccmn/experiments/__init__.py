"""Experiments of the paper: tables, protocols, runs, stored results and summaries.

The command line runs them with ``ccmn reproduce`` and shows the results with ``ccmn report``.
"""

from __future__ import annotations

from ccmn.experiments.demo_task import make_demo, run_demo
from ccmn.experiments.paper_tables import METHODS, TABLES, PaperTable, printed_values
from ccmn.experiments.protocols import Protocol
from ccmn.experiments.ray_engine import search_on_ray
from ccmn.experiments.result_store import Cell, Result, ResultStore, read_cells, write_cells
from ccmn.experiments.runner import prepare, run_table
from ccmn.experiments.summary import Summary, summarize

__all__ = [
    "METHODS",
    "TABLES",
    "Cell",
    "PaperTable",
    "Protocol",
    "Result",
    "ResultStore",
    "Summary",
    "make_demo",
    "prepare",
    "printed_values",
    "read_cells",
    "run_demo",
    "run_table",
    "search_on_ray",
    "summarize",
    "write_cells",
]
