"""Top-level command ``ccmn``, and its errors as one line on stderr with an exit code.

Modules of commands import numpy, torch and pandas only inside functions, so that ``ccmn --help`` is fast.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from ccmn.app.cli.audit_command import audit
from ccmn.app.cli.data_commands import data_app
from ccmn.app.cli.embed_command import embed
from ccmn.app.cli.experiment_commands import demo, report, reproduce
from ccmn.app.cli.fit_command import fit
from ccmn.app.cli.noise_commands import noise_app
from ccmn.app.cli.options import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE, Command, CommandGroup
from ccmn.app.cli.predict_command import evaluate, predict
from ccmn.app.cli.review_command import review

USER_ERRORS = (ValueError, TypeError, OSError, ImportError, MemoryError)
"""Errors caused by files, option values or the machine. Any other exception is a bug and keeps its traceback."""

PARAMETER_OPTIONS = {
    "noise_type='partial' or 'missing'": "--noise partial or missing (--noise-type of ccmn noise estimate)",
    "noise_type='both'": "--noise estimate",
    "as trusted=(rows, Y_true)": "with --trusted FILE (ccmn review exports it)",
}
"""Parameters in warnings of the library, and the options that users of the command line need instead."""

REMOVED_OPTIONS = {
    "--engine": "Use --jobs N on one machine; on a cluster, run ccmn.paper.run_table with a joblib backend "
    "(examples/recipes/with_ray.py).",
}
"""Options of earlier versions, and what replaces them."""
REMOVED_OPTIONS["--address"] = REMOVED_OPTIONS["--engine"]


class ErrorReporter(CommandGroup):
    """Command group that prints errors and warnings as single lines on stderr."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit; with ``standalone_mode=False`` return its result and let errors propagate."""
        run = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _print_warning
                code = run()
        except typer.Abort:
            code = EXIT_INTERRUPTED
        except USER_ERRORS as error:
            _print_error(_error_message(error))
            code = EXIT_FAILURE
        except Exception as error:
            # Usage errors of typer are recognized by this method: the module of their class depends on its version.
            if not hasattr(error, "format_message"):
                raise
            _print_error(_usage_message(error))
            code = getattr(error, "exit_code", EXIT_USAGE)
        sys.exit(code if isinstance(code, int) else 0)


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning without its source line, with options in place of parameters."""
    text = str(message)
    for parameter, option in PARAMETER_OPTIONS.items():
        text = text.replace(parameter, option)
    typer.echo(f"ccmn: note: {_printable(text)}", err=True)


def _print_error(message: str) -> None:
    """Print an error message in one line unless it is empty."""
    if message:
        typer.echo(f"ccmn: {_printable(message)}", err=True)


def _printable(message: str) -> str:
    """Return a message in one line; control characters, which names in data may contain, are shown by their codes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(message.splitlines()))


def _error_message(error: Exception) -> str:
    """Return the message of an error; errors of the operating system start with the name of the file."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _usage_message(error: Any) -> str:
    """Return the message of a usage error, with the command that prints the relevant help."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help has already been printed
        return ""
    context = getattr(error, "ctx", None)
    message = str(error.format_message()).replace("\n", " ").strip()
    message = re.sub(r"(Did you mean [^?]*\?) \1", r"\1", message)  # some versions of typer and click both add it
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    message = " ".join((message, REMOVED_OPTIONS.get(getattr(error, "option_name", ""), ""))).strip()
    return f"{message} See: {context.command_path} --help" if context else message


app = typer.Typer(
    cls=ErrorReporter,
    help="Train multi-label classifiers when some labels are wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: tuple[Callable[..., None], ...] = (demo, embed, fit, predict, evaluate, audit, review, report, reproduce)
for command in COMMANDS:
    app.command(cls=Command)(command)
app.add_typer(noise_app, name="noise")
app.add_typer(data_app, name="data")


def _print_version(requested: bool) -> None:
    """Print the version and exit if ``--version`` is given."""
    if requested:
        from ccmn._version import __version__

        typer.echo(f"ccmn {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train multi-label classifiers when some labels are wrong."""


def main() -> None:
    """Run the command line: the entry point of the console script and of ``python -m ccmn``."""
    app(prog_name="ccmn")
