"""``ccmn demo``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ccmn.cli.options import Json
from ccmn.cli.output import error_console


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="A quarter of the data and fewer epochs.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the pictures, the noise and the training.")] = 0,
    as_json: Json = False,
) -> None:
    """Noisy labels in, models trained on them in four ways, compared on clean test labels.

    Pictures of handwritten digits, several in each; the labels are the digits in it. Every label of the training
    pictures is flipped with rates of its own. Models are trained on the true labels, on the noisy ones at their word,
    and unbiased, with the true rates and with estimated ones. Takes well under a minute.

    Example: ccmn demo --seed 1
    """
    from rich.console import Console
    from rich.progress import Progress

    from ccmn.experiments.demo import LOSSES, WAYS, make_demo, run_demo

    task = make_demo(2000 if quick else 8000, seed)
    console = error_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        rows = run_demo(task, epochs=10 if quick else 30, seed=seed)
        done = list(bar.track(rows, total=len(WAYS) * len(LOSSES), description="training"))
    if as_json:
        result = {
            "n_train": len(task.X),
            "n_test": len(task.X_test),
            "wrong_labels": task.wrong_labels,
            "noise": task.noise.to_dict(),
            "results": [asdict(row) for row in done],
        }
        typer.echo(json.dumps(result))
        return
    from ccmn.report.demo import demo_table

    Console().print(demo_table(task, done))
