"""``ccmn demo``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ccmn.cli.options import Json


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="A quarter of the data and fewer epochs.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the pictures, the noise and the training.")] = 0,
    as_json: Json = False,
) -> None:
    """Noisy labels in, plain and unbiased models trained, compared on clean test labels.

    Pictures of handwritten digits, several in each; the labels are the digits in it. Every label of the training
    pictures is flipped with rates of its own. Takes a few seconds.

    Example: ccmn demo --seed 1
    """
    from rich.console import Console
    from rich.progress import Progress

    from ccmn.experiments.demo import LOSSES, run_demo

    setting, rows = run_demo(n=2000, epochs=10, seed=seed) if quick else run_demo(seed=seed)
    with Progress(console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal) as bar:
        done = list(bar.track(rows, total=3 * len(LOSSES), description="training"))
    if as_json:
        result = {
            "n_train": setting.n_train,
            "n_test": setting.n_test,
            "wrong_labels": setting.wrong_labels,
            "noise": setting.noise.to_dict(),
            "results": [asdict(row) for row in done],
        }
        typer.echo(json.dumps(result))
        return
    from ccmn.report.tables import demo_table

    Console().print(demo_table(setting, done))
