"""The one place where errors become a line on stderr and an exit code: 1 could not, 2 wrong usage."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import typer
from typer.core import TyperGroup

from ccmn.cli.wording import in_options, option_names

COULD_NOT = (ValueError, TypeError, OSError, ImportError, MemoryError)
"""What a user's files, values or machine bring about. Anything else is a defect, and shows where it is."""


class PlainErrors(TyperGroup):
    """The whole command line, run so that an error is one line."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit; ``standalone_mode=False`` lets errors through, as everywhere in typer."""
        run = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        options = self._options(args)
        try:
            with warnings.catch_warnings():
                warnings.showwarning = partial(_note, options)
                code = run()
        except typer.Abort:
            code = 130
        except COULD_NOT as error:
            code = _say(in_options(str(error), options) or type(error).__name__, 1)
        except Exception as error:
            if not hasattr(error, "format_message"):  # typer's own: the class has moved between its versions
                raise
            code = _say(_advise(error), getattr(error, "exit_code", 2))
        sys.exit(code if isinstance(code, int) else 0)

    def _options(self, args: Sequence[str] | None) -> dict[str, str]:
        """Argument -> option. The sides that can be wrong are an option of ccmn noise estimate alone; all other
        commands are told them by --noise."""
        typed = list(sys.argv[1:] if args is None else args)
        sides = "--sides" if typed[:2] == ["noise", "estimate"] else "--noise"
        return {**option_names(self.commands.values()), "noise_type": sides}


def _note(options: dict[str, str], message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning, without the line of code it comes from."""
    typer.echo(f"ccmn: note: {in_options(str(message), options)}", err=True)


def _say(message: str, code: int) -> int:
    if message:
        typer.echo(f"ccmn: {message}", err=True)
    return code


def _advise(error: Any) -> str:
    """What was wrong with the command, and where to read how it is meant."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed by now
        return ""
    context = getattr(error, "ctx", None)
    message = str(error.format_message()).replace("\n", " ").strip()
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    return f"{message} See: {context.command_path} --help" if context else message
