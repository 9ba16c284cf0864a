"""Options shared by several commands: types, checks and parsing of their values."""

from __future__ import annotations

import csv
import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.column_roles import ColumnRoles, LabelSpec
    from ccmn.data.columns import Columns

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, by the convention of shells."""

DATA_HELP = "Data file (CSV, Parquet, JSON, JSONL, ARFF, MAT, LIBSVM, NPZ) or name of a dataset (see ccmn data list)."
NOISE_TYPES = ("both", "partial", "missing")
REVIEW_PORT = 8765
"""Port of ``ccmn review``, if it is free; the links of audit reports lead to it."""

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
Tags = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column that lists the labels of a row, as a;b;c, instead of label columns."),
]
Separator = Annotated[str, typer.Option("--sep", metavar="TEXT", help="Separator of the labels in --tags.")]
Text = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Text column, converted to TF-IDF features; several columns as a,b."),
]
Image = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column with the names of picture files, which is not a feature.")
]
RowId = Annotated[
    str | None, typer.Option("--id", metavar="COLUMN", help="Column that identifies the rows, which is not a feature.")
]
Ignore = Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns that are not used, as a,b.")]
Trusted = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Verified rows: trusted.npz or trusted.csv of ccmn review, or a table with the label columns and the "
        "column of --id (or row, the number of the row from 0).",
    ),
]
Votes = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="DATA has one line per vote of an annotator (CSV, Parquet). The columns are ITEM,ANNOTATOR,LABEL or "
        "ITEM,ANNOTATOR,LABEL,VALUE, with the vote (0, 1 or a probability) as VALUE. Without VALUE, every line is an "
        "assigned label.",
    ),
]
Noise = Annotated[
    str,
    typer.Option(
        "--noise",
        metavar="NOISE",
        help="Errors that the labels have: both | partial (labels were only added) | missing (labels were only "
        "removed) | none (no correction), or a JSON file of noise rates, known or from ccmn noise estimate.",
    ),
]
DeclaredNoise = Annotated[
    str | None,
    typer.Option(
        "--noise",
        metavar="NOISE",
        help="Declared errors of the labels: both | partial (labels were only added) | missing (labels were only "
        "removed), or a JSON file of noise rates. Without it, and without verified rows, labels are only ranked.",
    ),
]
RatesFile = Annotated[
    Path | None,
    typer.Option(
        "--noise",
        metavar="FILE",
        help="JSON file of the noise rates of the labels, as written by ccmn noise estimate (default: correct labels).",
    ),
]
Items = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Table with the features, texts and pictures of the items of --votes. Its column of the items has the "
        "name in --votes, or that in --id.",
    ),
]
RandomState = Annotated[
    int, typer.Option("--random-state", min=0, metavar="N", help="Random seed; equal seeds give equal results.")
]
DataDir = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder of the named datasets (default: $CCMN_DATA).")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

OUT_OF_MEMORY = "allocate memory|out of memory|failed to map segment"
"""Words of errors which mean that the memory is exhausted."""
CARRIED_OPTIONS = ("labels", "tags", "sep", "text", "image", "row_id", "ignore", "votes", "items", "random_state")
"""Parameters that describe the data; the command that is printed as the next step repeats them."""
REMOVED_OPTIONS = {
    "--seed": "use --random-state",
    "--sides": "use --noise both, partial or missing",
    "--noise-type": "use --noise both, partial or missing",
    "--loss": "use --method corrected, hamming or ranking",
    **dict.fromkeys(
        ("--engine", "--address"),
        "use --jobs N on one machine; on a cluster, ccmn.paper.run_table with a joblib backend "
        "(examples/recipes/with_ray.py)",
    ),
    "--diverse": "the list has one entry per row with all its labels",
    "--annotator": "use --groups COLUMN",
    **dict.fromkeys(
        ("--surrogate", "--correction", "--model", "--solver", "--batch-size", "--weight-decay", "--scale"),
        "use the parameters of ccmn.CCMNClassifier in Python",
    ),
    **dict.fromkeys(
        ("--no-scale", "--patience", "--threshold", "--validation-fraction", "--validation-is-clean"),
        "use the parameters of ccmn.CCMNClassifier in Python",
    ),
    **dict.fromkeys(("--memory", "--n-labels"), "use ccmn.data.ShardedData in Python"),
    "--cleanlab": "use --out issues.csv, or cleanlab in Python (examples/recipes/with_cleanlab.py)",
    "--uncertain": "use ccmn.estimation.resolve_uncertain in Python",
    "--candidates": "in Python, pass data.candidates as the labels to fit",
    "--open": "follow the printed link",
    "--host": "the server listens on 127.0.0.1; use ssh -L to reach it from another machine",
    "--latex": "use --csv, and pandas.DataFrame.to_latex",
    "--cache": "write the rates with ccmn noise estimate --out, and pass them as --noise",
    "--partial": "use --rho-neg RATE",
    "--missing": "use --rho-pos RATE",
    "--picture": "use --report and --picture of ccmn audit",
    "--paper-draw": "in Python, use ccmn.paper.make_repeat",
    "--keep": "name numeric columns, --tags or --id; join other columns by the identifier",
}
"""Former options and their replacements."""


class Command(TyperCommand):
    """Command that names the replacements of former options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; reject former options."""
        options = {option for parameter in self.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for argument in itertools.takewhile(lambda argument: argument != "--", args):
            name = argument.partition("=")[0]
            if name in REMOVED_OPTIONS and name not in options:
                raise typer.BadParameter(f"{name} does not exist: {REMOVED_OPTIONS[name]}", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; report exhausted memory with the name of the data."""
        try:
            return super().invoke(ctx)
        except (MemoryError, RuntimeError, ImportError) as error:
            reason = str(error).partition("\n")[0]
            # torch on a CPU and on a CUDA device, and the loader of shared libraries
            if not isinstance(error, MemoryError) and not re.search(OUT_OF_MEMORY, reason):
                raise
            source = ctx.params.get("source") or "these data"
            raise MemoryError(f"not enough memory for {source}" + (f" ({reason})" if reason else "")) from error


class MistakesError(Exception):
    """Several mistakes in the arguments of one command."""

    def __init__(self, mistakes: list[Exception]) -> None:
        super().__init__("; ".join(map(str, mistakes)))
        self.mistakes = mistakes


@contextmanager
def all_mistakes() -> Iterator[Callable[..., Any]]:
    """Yield a function that runs a check and returns its result; the mistakes of all checks are reported together.

    The checks come before torch and pandas are imported, so that a mistake is reported at once.
    """
    mistakes: list[Exception] = []

    def check(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except MistakesError as found:
            mistakes.extend(found.mistakes)
        except (typer.BadParameter, ValueError, OSError) as error:
            mistakes.append(error)

    yield check
    if len(mistakes) == 1:
        raise mistakes[0]  # typer adds the command, whose help is mentioned
    if mistakes:
        raise MistakesError(mistakes)


class Source(NamedTuple):
    """Data that the arguments of a command describe."""

    path: str
    roles: ColumnRoles
    votes: list[str] | None
    items: Path | None
    data_dir: Path | None

    def read(self) -> tuple[Columns, MultiLabelData]:
        """Return the data with all columns converted to features, and their columns."""
        from ccmn.data.columns import Columns

        return Columns.from_training_data(
            self.path, roles=self.roles, data_dir=self.data_dir, votes=self.votes, items=self.items
        )

    def require_features(self, data: MultiLabelData) -> None:
        """Reject data without features."""
        if not data.d:
            hint = ". Describe the items with --items FILE" if self.votes is not None else ""
            raise ValueError(f"{self.path}: there are no features in these data{hint}")


def check_source(source: str, given: Mapping[str, Any]) -> Source:
    """Return the data that the options of a command describe; reject missing files and columns.

    The rows are not read.

    Parameters
    ----------
    source : str
        File or name of a dataset.
    given : mapping
        Parameters of the command.
    """
    roles, columns, items = read_roles(given), read_vote_columns(given.get("votes")), given.get("items")
    if items is not None and columns is None:
        raise typer.BadParameter("--items requires --votes ITEM,ANNOTATOR,LABEL")
    if columns is not None and (roles.labels is not None or roles.tags is not None):
        raise typer.BadParameter("Expected either label columns or votes, not both (--labels and --votes)")
    path = Path(source)
    if not path.is_dir() and (path.exists() or path.suffix or path.name != source):  # else the name of a dataset
        with all_mistakes() as check:
            for column_check in check(_column_checks, path, roles, columns, items) or ():
                check(column_check)
    return Source(source, roles, columns, items, given.get("data_dir"))


def _column_checks(
    path: Path, roles: ColumnRoles, votes: list[str] | None, items: Path | None
) -> list[Callable[[], None]]:
    check_inputs(path, items)  # before numpy is imported
    from ccmn.data.column_roles import table_checks, vote_checks

    return table_checks(path, roles) if votes is None else vote_checks(path, votes, roles, items)


def reject(message: str) -> None:
    """Report a mistake in the combination of options."""
    raise typer.BadParameter(message)


def check_inputs(*paths: Path | None) -> None:
    """Reject files that do not exist."""
    from ccmn._files import check_file

    for path in paths:
        if path is not None:
            check_file(path)


def check_device(value: str | None) -> str | None:
    """Return the name of a device; whether torch can use it is checked later, because its import takes seconds."""
    if value is not None and not re.fullmatch(r"auto|cpu|mps|(cuda|xpu)(:\d+)?|meta", value):
        raise typer.BadParameter(f"Expected auto, cpu, cuda or cuda:N; got {value!r}")
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
        return list(read_names(text.strip(" ,"), "--labels"))
    if not text.strip():
        raise typer.BadParameter("--labels is empty; expected column names (a,b,c), a pattern, a count or a file")
    return text


def read_names(text: str | None, option: str) -> tuple[str, ...]:
    """Return the column names of an option; names with a comma are in double quotes.

    >>> read_names('title, "body, long"', "--text")
    ('title', 'body, long')
    """
    names = () if text is None else tuple(map(str.strip, next(csv.reader([text], skipinitialspace=True), [])))
    if text is not None and not (names and all(names)):
        raise typer.BadParameter(f"{option} expects column names, as a,b; got {text!r}")
    return names


def read_roles(given: Mapping[str, Any]) -> ColumnRoles:
    """Return the columns that the parameters of a command select."""
    from ccmn.data.column_roles import ColumnRoles

    separator = given.get("sep", ";").replace("\\t", "\t")
    if not separator:
        raise typer.BadParameter("--sep is empty; expected a separator such as ;")
    text, ignored = read_names(given.get("text"), "--text"), read_names(given.get("ignore"), "--ignore")
    labels, tags = read_labels(given.get("labels")), given.get("tags")
    return ColumnRoles(labels, tags, separator, text, given.get("image"), given.get("row_id"), ignored)


def read_vote_columns(text: str | None) -> list[str] | None:
    """Return the value of ``--votes``: three or four column names."""
    names = list(read_names(text, "--votes"))
    if text is not None and len(names) not in (3, 4):
        raise typer.BadParameter(f"--votes expects ITEM,ANNOTATOR,LABEL or ITEM,ANNOTATOR,LABEL,VALUE; got {text!r}")
    return names or None


def shell_command(command: str, *arguments: object, **options: object) -> str:
    """Return a command of ccmn as it is typed in a shell, with quoted arguments.

    Parameters
    ----------
    command : str
        Command, as "noise estimate".
    *arguments : object
        Its arguments.
    **options : object
        Its options; None leaves an option out.

    Returns
    -------
    str
        Command.
    """
    words = [str(argument) for argument in arguments]
    for name, value in options.items():
        words += [] if value is None else [f"--{name}", str(value)]
    return f"ccmn {command} {shlex.join(words)}"


def next_command(context: typer.Context, command: str, source: object, **options: object) -> str:
    """Return a command on the data of the current one, with its options in ``CARRIED_OPTIONS``."""
    words: list[object] = [source]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if parameter.name in CARRIED_OPTIONS and value not in (None, False, parameter.default):
            words += [parameter.opts[0]] if value is True else [parameter.opts[0], value]
    return shell_command(command, *words, **options)


def print_next(command: str, comment: str = "") -> None:
    """Print the command of the next step on stderr; shells ignore the comment."""
    from ccmn.app.cli.output import printable

    typer.echo(f"next: {printable(command)}" + (f"  # {comment}" if comment else ""), err=True)


def unused_name(name: str) -> str:
    """Return a name for an output file of the next command that does not exist in the current folder.

    >>> unused_name("no-such-model.ccmn")
    'no-such-model.ccmn'
    """
    path = Path(name)
    names = itertools.chain([name], (f"{path.stem}-{number}{path.suffix}" for number in itertools.count(2)))
    return next(name for name in names if not Path(name).exists())


def check_output(path: Path | None, force: bool, *, folder: bool = False, suffixes: tuple[str, ...] = ()) -> None:
    """Reject a path that cannot be written: without its folder, or of a file that exists without ``--force``.

    If ``folder`` is True, the path may be an existing folder. ``suffixes`` are the endings that are expected, if any.
    """
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise typer.BadParameter(f"--out must end in {' or '.join(suffixes)}; got {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist; create it to write {path.name}")
    if path.exists() and not force:
        raise FileExistsError(f"{path} already exists; use --force to overwrite it")
    if path.is_dir() and not folder:
        raise IsADirectoryError(f"{path} is a folder; expected the path of a file")


def check_noise(value: str | Path | None, words: Sequence[str] = NOISE_TYPES) -> None:
    """Reject a value of ``--noise`` that is neither one of the words nor an existing file."""
    if value is None or value in words:
        return
    if not str(value).endswith(".json") and not Path(value).is_file():
        expected = f"{', '.join(words)} or a JSON file of noise rates" if words else "a JSON file of noise rates"
        raise typer.BadParameter(f"--noise must be {expected}; got {str(value)!r}")
    check_inputs(Path(value))


def read_noise(value: str, data: Any, words: Sequence[str] = NOISE_TYPES) -> Any:
    """Return the value of ``--noise``: one of the words, or the rates in a file in the order of the labels."""
    from ccmn.app.rates_files import read_matching

    return value if value in words else read_matching(Path(value), data.label_names, data.q)
