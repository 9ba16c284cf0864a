"""Options shared by several commands: types, checks and parsing of their values."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.tables import LabelSpec

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, by the convention of shells."""

DATA_HELP = "Data file (CSV, Parquet, ARFF, MAT, LIBSVM, NPZ) or name of a dataset (see ccmn data list)."

Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model saved by ccmn fit.", show_default=False)]
Labels = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Label columns: names a,b,\"c, d\", a pattern 'label_*', a count (14: the first, -14: the last), or a "
        "file of names (.xml, .txt). NPZ, MAT and LIBSVM files define their own.",
    ),
]
Text = Annotated[str | None, typer.Option(metavar="COLUMN", help="Text column, converted to TF-IDF features.")]
Votes = Annotated[
    str | None,
    typer.Option(
        metavar="ROW,ANNOTATOR,LABEL[,VALUE]",
        help="DATA has one line per vote of an annotator (CSV, Parquet): columns of row, annotator, label, and of the "
        "vote (0, 1 or a probability). Without VALUE, every line is an assigned label.",
    ),
]
Candidates = Annotated[
    bool, typer.Option("--candidates", help="Use the candidate sets stored in the data as the labels.")
]
RandomState = Annotated[
    int, typer.Option("--random-state", min=0, metavar="N", help="Random seed; equal seeds give equal results.")
]
DataDir = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder of the named datasets (default: $CCMN_DATA).")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

OPTION_ALIASES = {"--seed": "--random-state", "--sides": "--noise-type"}
"""Former names of options, still accepted but not shown in the help."""


class Command(TyperCommand):
    """Command with hidden option aliases, and with choices and defaults in its help.

    The placeholders "{choices}" and "{default}" of help texts are replaced when the help is printed, because the
    catalogs of the library take seconds to import.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after replacing former option names."""
        options = {option for parameter in self.params for option in parameter.opts}
        for position, argument in enumerate(args):
            name, equals, value = argument.partition("=")
            current = OPTION_ALIASES.get(name)
            if current in options:
                args[position] = f"{current}{equals}{value}"
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; report exhausted memory with the name of the data."""
        try:
            return super().invoke(ctx)
        except (MemoryError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            # torch raises a plain RuntimeError on the CPU and a subclass of it, with another text, on CUDA devices.
            if isinstance(error, RuntimeError) and not re.search("can't allocate memory|out of memory", reason):
                raise
            source = ctx.params.get("source") or "these data"
            raise MemoryError(f"not enough memory for {source}" + (f" ({reason})" if reason else "")) from error

    def format_help(self, *args: Any, **kwargs: Any) -> None:
        """Print the help with the choices and with the default parameters of the classifier."""
        # Unwrap the lines of the docstring: the help is wrapped to the width of the terminal.
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in (self.help or "").split("\n\n"))
        described = [p for p in self.params if re.search("{choices}|{default}", getattr(p, "help", None) or "")]
        if described:
            from ccmn.models import CCMNClassifier

            defaults = CCMNClassifier().get_params()
        for parameter in described:
            name = str(parameter.name)
            choices = " | ".join(CHOICES[name]()) if name in CHOICES else ""
            default = defaults.get(name)
            if isinstance(default, tuple):
                default = ", ".join(f"{value:g}" for value in default)
            text = str(parameter.help).replace("{choices}", choices)  # type: ignore[attr-defined]
            parameter.help = text.replace("{default}", "none" if default is None else str(default))  # type: ignore[attr-defined]
        super().format_help(*args, **kwargs)


def _losses() -> Iterable[str]:
    from ccmn.losses import LOSSES

    return [*LOSSES, "forward", "plugin"]


def _surrogates() -> Iterable[str]:
    from ccmn.losses import SURROGATES

    return SURROGATES


def _corrections() -> Iterable[str]:
    from ccmn.losses import CORRECTIONS

    return CORRECTIONS


def _models() -> Iterable[str]:
    from ccmn.training import NETWORKS

    return NETWORKS


def _methods() -> Iterable[str]:
    from ccmn.estimation import METHODS

    # These methods need trusted rows, votes or prevalences, which a data file does not contain.
    return [name for name in METHODS if name not in ("trusted", "dawid_skene", "known_prevalence")]


CHOICES: dict[str, Callable[[], Iterable[str]]] = {
    "loss": _losses,
    "surrogate": _surrogates,
    "correction": _corrections,
    "model": _models,
    "solver": lambda: ("auto", "adam", "closed_form", "newton"),
    "threshold": lambda: ("fixed", "f1"),
    "noise_type": lambda: ("both", "partial", "missing"),
    "method": _methods,
}
"""Values of an option by its parameter name; functions, because the catalogs take seconds to import."""


def check_choice(param: typer.CallbackParam, value: str | None) -> str | None:
    """Return the value of an option if it is one of its choices."""
    if value is None or value in (choices := tuple(CHOICES[str(param.name)]())):
        return value
    raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}")


def check_learning_rates(values: list[float] | None) -> list[float] | None:
    """Return the learning rates if all are positive."""
    for value in values or ():
        if not 0 < value < math.inf:
            raise typer.BadParameter(f"Expected a positive number; got {value:g}")
    return values


def check_fraction(value: float | None) -> float | None:
    """Return a fraction strictly between 0 and 1."""
    if value is None or 0 < value < 1:
        return value
    raise typer.BadParameter(f"Expected a number between 0 and 1, both excluded; got {value:g}")


def check_device(value: str | None) -> str | None:
    """Return the name of a device if torch can use it on this machine."""
    if value is None or value == "auto":
        return value
    import torch

    try:
        torch.empty(0, device=value)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise typer.BadParameter(
            f"device {value!r} is not available ({reason}); use --device auto to select one automatically"
        ) from None
    return value


def read_labels(text: str | None) -> LabelSpec | None:
    """Return the value of ``--labels`` in the form that the readers of data files expect.

    >>> read_labels("sea, sky"), read_labels("-14"), read_labels("label_*")
    (['sea', 'sky'], -14, 'label_*')

    Names with a comma are enclosed in double quotes, as in a CSV file:

    >>> read_labels('"sea, deep",sky')
    ['sea, deep', 'sky']
    """
    if text is None:
        return None
    if re.fullmatch(r"[+-]?\d+", text.strip()):
        return int(text)
    if "," in text:
        names = next(csv.reader([text], skipinitialspace=True))
        return [name.strip() for name in names if name.strip()]
    if not text.strip():
        raise typer.BadParameter("--labels is empty; expected column names (a,b,c), a pattern, a count or a file")
    return text


def read_vote_columns(text: str | None) -> list[str] | None:
    """Return the value of ``--votes``: three or four column names.

    >>> read_vote_columns("item, worker, tag")
    ['item', 'worker', 'tag']
    """
    if text is None:
        return None
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True))]
    if len(names) not in (3, 4) or not all(names):
        raise typer.BadParameter(f"--votes expects ROW,ANNOTATOR,LABEL or ROW,ANNOTATOR,LABEL,VALUE; got {text!r}")
    return names


def label_frame(data: MultiLabelData, candidates: bool) -> Any:
    """Return the labels, or the candidate sets, as a DataFrame if the names of the labels are known."""
    if candidates and data.candidates is None:
        raise ValueError("--candidates requires data with candidate sets; these data have no candidate sets")
    Y = data.candidates if candidates else data.Y
    if data.label_names is None:
        return Y
    import pandas as pd

    from ccmn._containers import to_dense_array

    return pd.DataFrame(to_dense_array(Y), columns=list(data.label_names))


def check_output(path: Path, force: bool, *, folder: bool = False) -> Path:
    """Return a path that can be written: its folder exists, and a file of that name exists only with ``--force``.

    If ``folder`` is True, the path may be an existing folder.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist; create it to write {path.name}")
    if path.exists() and not force:
        raise FileExistsError(f"{path} already exists; use --force to overwrite it")
    if path.is_dir() and not folder:
        raise IsADirectoryError(f"{path} is a folder; expected the path of a file")
    return path
