"""The demonstration's comparison as a table for a terminal (rich)."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table

from ccmn.experiments.demo import WAYS, DemoRow, DemoTask

TRAINED_ON = {
    "clean": "true labels",
    "plain": "noisy labels",
    "unbiased": "noisy, unbiased",
    "estimated": "noisy, rates estimated",
}


def demo_table(task: DemoTask, rows: Sequence[DemoRow]) -> Group:
    """The comparison, with a sentence of what it shows."""
    table = Table(caption="on clean test labels; linear models that differ only in what they know of the noise")
    table.add_column("loss")
    table.add_column("trained on", no_wrap=True)
    for column in ("Hamming\nloss ↓", "ranking\nloss ↓", "average\nprecision ↑"):
        table.add_column(column, justify="right")
    for row in rows:
        figures = (f"{v:.3f}" for v in (row.hamming_loss, row.ranking_loss, row.average_precision))
        table.add_row(
            row.loss if row.way == WAYS[0] else "",
            TRAINED_ON[row.way],
            *figures,
            style="bold" if row.way == "unbiased" else None,
            end_section=row.way == WAYS[-1],
        )
    noise = task.noise
    head = (
        f"{len(task.X)} training pictures with several handwritten digits each, {len(task.X_test)} test pictures "
        f"by other hands.\n{task.wrong_labels:.0%} of the training labels are wrong: true ones are lost with rates "
        f"{noise.rho_pos.min():g} to {noise.rho_pos.max():g}, false ones added with {noise.rho_neg.min():g} to "
        f"{noise.rho_neg.max():g}.\n"
    )
    return Group(head, table)
