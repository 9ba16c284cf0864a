"""``ccmn``: the sub-commands under one roof. Nothing heavy is imported here: ``ccmn --help`` is to be quick."""

from __future__ import annotations

from typing import Annotated

import typer

from ccmn.cli.audit import audit
from ccmn.cli.data import data_app
from ccmn.cli.demo import demo
from ccmn.cli.errors import PlainErrors
from ccmn.cli.evaluate import evaluate
from ccmn.cli.fit import fit
from ccmn.cli.noise import noise_app
from ccmn.cli.options import DefaultsInHelp
from ccmn.cli.predict import predict
from ccmn.cli.reproduce import report, reproduce
from ccmn.cli.review import review

app = typer.Typer(
    cls=PlainErrors,
    help="Multi-label classifiers from labels that are wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command(cls=DefaultsInHelp)(fit)
app.command()(predict)
app.command()(evaluate)
app.command()(reproduce)
app.command()(report)
app.command()(audit)
app.command()(review)
app.add_typer(data_app, name="data")
app.add_typer(noise_app, name="noise")


def _print_version(wanted: bool) -> None:
    if wanted:
        from ccmn._version import __version__

        typer.echo(f"ccmn {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Multi-label classifiers from labels that are wrong."""


def main() -> None:
    """The entry point of the console script and of ``python -m ccmn``."""
    app(prog_name="ccmn")
