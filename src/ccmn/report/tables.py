"""Results as tables for a terminal (rich)."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table

from ccmn.experiments.demo import DemoRow, DemoSetting

_TRAINED_ON = {"clean": "true labels", "plain": "noisy labels", "unbiased": "noisy, unbiased"}


def demo_table(setting: DemoSetting, rows: Sequence[DemoRow]) -> Group:
    """The demonstration's comparison, with a sentence of what it shows."""
    table = Table(caption="on clean test labels; linear models, same data, same loop, same seed")
    table.add_column("loss")
    table.add_column("trained on", no_wrap=True)
    for column in ("Hamming\nloss ↓", "ranking\nloss ↓", "average\nprecision ↑"):
        table.add_column(column, justify="right")
    for row in rows:
        figures = (f"{v:.3f}" for v in (row.hamming_loss, row.ranking_loss, row.average_precision))
        unbiased = row.labels == "unbiased"
        loss = row.loss if row.labels == "clean" else ""
        table.add_row(loss, _TRAINED_ON[row.labels], *figures, style="bold" if unbiased else None, end_section=unbiased)
    noise = setting.noise
    head = (
        f"{setting.n_train} training pictures with several handwritten digits each, {setting.n_test} test pictures "
        f"by other hands.\n{setting.wrong_labels:.0%} of the training labels are wrong: true ones are lost with rates "
        f"{noise.rho_pos.min():g} to {noise.rho_pos.max():g}, false ones added with {noise.rho_neg.min():g} to "
        f"{noise.rho_neg.max():g}, known to the learner.\n"
    )
    return Group(head, table)
