"""``ccmn demo``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ccmn.cli.options import Json
from ccmn.cli.output import error_console, own_name
from ccmn.cli.reports import write_report


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="A quarter of the data and fewer epochs.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the pictures, the noise and the training.")] = 0,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where report.html goes.")] = Path("ccmn-demo"),
    as_json: Json = False,
) -> None:
    """Noisy labels in, models trained on them in four ways, compared on clean test labels.

    Pictures of handwritten digits, several in each; the labels are the digits in it. Every label of the training
    pictures is flipped with rates of its own. Models are trained on the true labels, on the noisy ones at their word,
    and unbiased, with the true rates and with estimated ones. Takes well under a minute; everything is shown in a
    report, which replaces that of an earlier demonstration.

    Example: ccmn demo --seed 1
    """
    from rich.console import Console
    from rich.progress import Progress

    from ccmn.experiments.demo_task import DEMO_LOSSES, STRATEGIES, make_demo, run_demo
    from ccmn.report.builders import demo_report

    report = _folder(out) / "report.html"
    task = make_demo(2000 if quick else 8000, seed)
    console = error_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        models = run_demo(task, epochs=10 if quick else 30, random_state=seed)
        done = list(bar.track(models, total=len(STRATEGIES) * len(DEMO_LOSSES), description="training"))
    write_report(demo_report(task, done), report)
    if as_json:
        result = {
            "n_train": len(task.X),
            "n_test": len(task.X_test),
            "wrong_labels": task.wrong_labels,
            "noise": task.noise.to_dict(),
            "results": [asdict(model.row) for model in done],
            "report": str(report),
        }
        typer.echo(json.dumps(result))
        return
    from ccmn.report.console import demo_table

    Console().print(demo_table(task, [model.row for model in done]))
    typer.echo(f"the report is in {report}: open it in a browser")
    again = f" --seed {seed}" if seed else ""
    typer.echo(f"to check labels of these pictures by hand, and retrain: {own_name()} review --demo{again}")


def _folder(path: Path) -> Path:
    """A folder, made where there is none: before anything is computed that could not be written."""
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path} is a file; --out names the folder that report.html goes into")
    path.mkdir(parents=True, exist_ok=True)
    return path
