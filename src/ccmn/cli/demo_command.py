"""``ccmn demo``: compare training strategies on pictures of digits with noisy labels."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ccmn.cli.options import Json, RandomState, program_name
from ccmn.cli.output import error_console, print_json, print_table, write_report


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Use a quarter of the data and fewer epochs.")] = False,
    random_state: RandomState = 0,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for report.html.")] = Path("ccmn-demo"),
    as_json: Json = False,
) -> None:
    """Train on noisy labels with four strategies and compare them on true test labels.

    The data are pictures with several handwritten digits; the labels are the digits in a picture. Every training label
    is flipped with its own rates. Models are trained on the true labels, on the noisy labels without noise correction,
    and with noise correction by the true and by the estimated rates. The demo takes less than a minute and
    writes an HTML report, which overwrites the report of an earlier run.

    Example: ccmn demo --random-state 1
    """
    from rich.progress import Progress

    from ccmn.experiments.demo_task import DEMO_LOSSES, STRATEGIES, make_demo, run_demo
    from ccmn.report.builders import demo_report

    # Create the folder first: an error must not appear after the training.
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file; --out expects a folder")
    out.mkdir(parents=True, exist_ok=True)
    report = out / "report.html"
    task = make_demo(2000 if quick else 8000, random_state)
    console = error_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        models = run_demo(task, epochs=10 if quick else 30, random_state=random_state)
        trained = list(bar.track(models, total=len(STRATEGIES) * len(DEMO_LOSSES), description="training"))
    write_report(demo_report(task, trained), report)
    if as_json:
        result = {
            "n_train": len(task.X),
            "n_test": len(task.X_test),
            "wrong_labels": task.wrong_labels,
            "noise": task.noise.to_dict(),
            "results": [asdict(model.row) for model in trained],
            "report": str(report),
        }
        print_json(result)
        return
    from ccmn.report.console import demo_table

    print_table(demo_table(task, [model.row for model in trained]))
    typer.echo(f"report written to {report}")
    same = f" --random-state {random_state}" if random_state else ""
    typer.echo(f"to review the labels of these pictures and retrain, run: {program_name()} review --demo{same}")
