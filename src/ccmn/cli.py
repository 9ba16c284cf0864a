"""The command line: one short function per sub-command, which parses, calls and prints."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

app = typer.Typer(
    help="Multi-label classifiers from labels that are wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from ccmn import __version__

        typer.echo(f"ccmn {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Multi-label classifiers from labels that are wrong."""


@app.command()
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


def main() -> None:
    """The entry point of the console script and of ``python -m ccmn``."""
    app(prog_name="ccmn")
