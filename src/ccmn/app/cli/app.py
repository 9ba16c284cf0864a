"""Top-level command ``ccmn``, and its errors as one line on stderr with an exit code.

Modules of commands import numpy, torch and pandas only inside functions, so that ``ccmn --help`` is fast.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ccmn._messages import drawn_by
from ccmn.app.cli import APP_PACKAGES, INSTALL_APP
from ccmn.app.cli.audit_command import audit
from ccmn.app.cli.data_commands import data_app
from ccmn.app.cli.embed_command import embed
from ccmn.app.cli.experiment_commands import demo, report, reproduce
from ccmn.app.cli.fit_command import fit
from ccmn.app.cli.noise_commands import noise_app
from ccmn.app.cli.options import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE, Command, MistakesError
from ccmn.app.cli.output import draw_progress, printable
from ccmn.app.cli.predict_command import evaluate, predict
from ccmn.app.cli.review_command import review
from ccmn.app.cli.votes_command import votes

USER_ERRORS = (ValueError, TypeError, OSError, ImportError, MemoryError)
"""Errors caused by files, option values or the machine. Any other exception is a bug and keeps its traceback."""

PARAMETER_OPTIONS = {
    "noise_type='partial' or 'missing'": "--noise partial or missing",
    "noise_type='both'": "--noise both",
    "as trusted=(rows, Y_true)": "with --trusted FILE (ccmn review exports it)",
}
"""Parameters in warnings of the library, and the options that users of the command line need instead."""


class ErrorReporter(TyperGroup):
    """Command group that prints errors and warnings as single lines on stderr."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and exit."""
        try:
            with warnings.catch_warnings(), drawn_by(draw_progress):
                warnings.showwarning = _print_warning
                code = super().main(*args, **{**extra, "standalone_mode": False})
        except typer.Abort:
            code = EXIT_INTERRUPTED
        except MistakesError as found:
            code = max(_report(mistake) for mistake in found.mistakes)
        except Exception as error:
            code = _report(error)
        sys.exit(code if isinstance(code, int) else 0)


def _report(error: Exception) -> int:
    """Print an error in one line and return the exit code; raise errors again that are bugs."""
    from ccmn._files import ColumnError

    if isinstance(error, ColumnError):
        _print_error(str(error))
        return EXIT_USAGE
    if isinstance(error, USER_ERRORS):
        _print_error(_error_message(error))
        return EXIT_FAILURE
    # Usage errors of typer are recognized by this method: the module of their class depends on its version.
    if not hasattr(error, "format_message"):
        raise error
    _print_error(_usage_message(error))
    return int(getattr(error, "exit_code", EXIT_USAGE))


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning without its source line, with options in place of parameters."""
    text = str(message)
    for parameter, option in PARAMETER_OPTIONS.items():
        text = text.replace(parameter, option)
    typer.echo(f"ccmn: note: {printable(' '.join(text.splitlines()))}", err=True)


def _print_error(message: str) -> None:
    if message:
        typer.echo(f"ccmn: {printable(' '.join(message.splitlines()))}", err=True)


def _error_message(error: Exception) -> str:
    """Return the message of an error; errors of the operating system start with the name of the file."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and error.name in APP_PACKAGES:
        return f"this command requires {error.name}: {INSTALL_APP}"
    return str(error) or type(error).__name__


def _usage_message(error: Any) -> str:
    """Return the message of a usage error, with the command that prints the relevant help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.ctx.get_help(), err=True)
        return ""
    context = getattr(error, "ctx", None)
    message = str(error.format_message()).replace("\n", " ").strip()
    message = re.sub(r"(Did you mean [^?]*\?) \1", r"\1", message)  # some versions of typer and click both add it
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    return f"{message} See: {context.command_path} --help" if context else message


app = typer.Typer(
    cls=ErrorReporter,
    help="Train multi-label classifiers when some labels are wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: brackets are text
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: tuple[Callable[..., None], ...] = (
    demo,
    embed,
    fit,
    predict,
    evaluate,
    audit,
    review,
    votes,
    report,
    reproduce,
)
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
