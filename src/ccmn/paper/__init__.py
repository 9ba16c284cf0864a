"""Experiments of the paper: tables, printed values, repeats, bounds and competing methods.

"The paper" is arXiv 2105.07338; tables and equations are numbered as there. The command line runs the tables with
``ccmn reproduce`` and shows the results with ``ccmn report``.
"""

from ccmn.paper import baselines as baselines
from ccmn.paper import theory as theory
from ccmn.paper.fleet import metrics
from ccmn.paper.protocols import make_repeat
from ccmn.paper.runner import run_table
from ccmn.paper.summary import summarize
from ccmn.paper.tables import TABLES, printed

__all__ = ["TABLES", "make_repeat", "metrics", "printed", "run_table", "summarize"]
