"""Options shared by several commands: types, checks and parsing of their values."""

from __future__ import annotations

import csv
import ctypes
import itertools
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ccmn.data import MultiLabelData
    from ccmn.data.labeled_table import ColumnRoles
    from ccmn.data.tables import LabelSpec

    Verified = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, by the convention of shells."""

DATA_HELP = "Data file (CSV, Parquet, JSON, JSONL, ARFF, MAT, LIBSVM, NPZ) or name of a dataset (see ccmn data list)."

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
        help="DATA has one line per vote of an annotator (CSV, Parquet). The columns are ROW,ANNOTATOR,LABEL or "
        "ROW,ANNOTATOR,LABEL,VALUE, with the vote (0, 1 or a probability) as VALUE. Without VALUE, every line is an "
        "assigned label.",
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

CARRIED_OPTIONS = frozenset(
    (
        *("labels", "tags", "sep", "text", "image", "row_id", "ignore", "votes", "candidates"),
        *("random_state", "data_dir", "cache"),
    )
)
"""Parameters that describe the data; the command that is printed as the next step repeats them."""
HELP_PANELS = {
    "Columns of DATA": (
        *("labels", "tags", "sep", "text", "image", "image_dir", "picture", "row_id", "ignore", "votes"),
        *("annotator", "candidates", "keep"),
    ),
    "Model and training": (
        *("loss", "surrogate", "correction", "model", "lr", "epochs", "batch_size", "weight_decay", "scale"),
        *("threshold", "validation", "validation_is_clean", "validation_fraction", "device", "checkpoint"),
        "n_labels",
    ),
}
"""Options that the help shows together, by title. The other options come first."""
OPTION_ALIASES = {"--seed": "--random-state", "--sides": "--noise-type"}
"""Former names of options, still accepted but not shown in the help."""
REMOVED_OPTIONS = {
    "--patience": "the best of --epochs is always selected; use fewer --epochs to save time",
    "--solver": "--loss hamming and --loss ranking are trained with Adam",
    "--method": "rates have one method; use --noise-type, --trusted or --votes to add what is known",
    "--memory": "the buffers of a folder of shards take 500 MB",
}
"""Options that no longer exist, with what replaces them."""


LIBRARY_BYTES = 1200 << 20
"""Address space that torch, scikit-learn, pandas and what they load take, measured on Linux with torch for CPUs."""
BLAS_BUFFER_BYTES = 36 << 20
"""OpenBLAS allocates buffers of 32 MiB, and needs some memory beside them."""
BLAS_THREAD_BYTES = 9 << 20
"""The stack of a thread of OpenBLAS has 8 MiB by default."""
STACK_BYTES = 3 << 20
"""Decompositions of OpenBLAS with several threads use up to six frames of 0.5 MiB on the stack of the process."""


def reserve_blas_memory() -> None:
    """Let OpenBLAS allocate its buffers and its stack while there is memory if the memory of the process is limited.

    OpenBLAS tries to allocate buffers again and again, without end, if the memory is exhausted when it needs them. A
    stack that cannot grow ends the process.
    """
    if memory_is_limited():
        _load_libraries()
        fill_blas_buffers()


def memory_is_limited() -> bool:
    """Return whether the address space of the process is limited (``ulimit -v``)."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _load_libraries() -> None:
    """Import the large libraries while there is memory: if it is exhausted, some of them end the process or hang."""
    if "torch" in sys.modules:
        return
    n_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    _check_free(LIBRARY_BYTES + 2 * n_threads * BLAS_THREAD_BYTES, "the libraries")
    import ccmn.audit
    import ccmn.models  # noqa: F401


def _check_free(size: int, user: str) -> None:
    """Raise ``MemoryError`` if the limit of the address space leaves less than ``size`` bytes."""
    import mmap

    try:
        mmap.mmap(-1, max(1, size)).close()
    except OSError:
        raise MemoryError(f"not enough memory: {user} need {size >> 20} MiB; raise ulimit -v") from None


@cache
def fill_blas_buffers() -> None:
    """Use OpenBLAS of numpy and scipy once, with all their threads; their buffers are kept until the process ends."""
    import numpy as np
    from scipy.linalg import blas
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().select(internal_api="openblas").lib_controllers
    n_threads = [library.get_num_threads() for library in libraries]
    # A call occupies one buffer, or two if it uses several threads.
    needed = 2 * len(libraries) * BLAS_BUFFER_BYTES + sum(n_threads) * BLAS_THREAD_BYTES + 2 * STACK_BYTES
    _check_free(needed, "the buffers of OpenBLAS")
    _grow_stack()
    # A fork ends the threads. They start again when their number is set, and then occupy buffers that were free before.
    for library, n in zip(libraries, n_threads):
        library.set_num_threads(n)
    matrix = np.ones((300, 300), order="F")  # products of small matrices need no buffer
    _ = matrix @ matrix, matrix @ matrix[0]
    blas.dgemm(1.0, matrix, matrix)
    blas.dgemv(1.0, matrix, matrix[0])


def _grow_stack() -> None:
    """Let the stack grow by ``STACK_BYTES``, or by a part of its limit; it does not shrink again."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    size = STACK_BYTES if limit == resource.RLIM_INFINITY else min(STACK_BYTES, limit * 3 // 8)

    class Block(ctypes.Structure):
        _fields_ = [("content", ctypes.c_char * size)]

    ctypes.pythonapi.Py_IsInitialized(Block())  # one or two copies of the block are passed on the stack


def _is_memory_error(error: Exception, reason: str) -> bool:
    """Return whether an exception means that the memory is exhausted; libraries report it in different ways."""
    if isinstance(error, RuntimeError):  # torch on a CPU, and on a CUDA device
        return re.search("can't allocate memory|out of memory", reason) is not None
    if isinstance(error, ImportError):  # the loader of shared libraries
        return re.search("failed to map segment|[Cc]annot allocate memory", reason) is not None
    # A C function that runs out of memory may fail without an exception, which Python reports as SystemError.
    return isinstance(error, MemoryError) or memory_is_limited()


class Command(TyperCommand):
    """Command with hidden option aliases, and with choices and defaults in its help.

    The placeholders "{choices}" and "{default}" of help texts are replaced when the help is printed, because the
    catalogs of the library take seconds to import.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after replacing former option names."""
        reserve_blas_memory()  # before the checks of option values import libraries
        options = {option for parameter in self.params for option in parameter.opts}
        for position, argument in enumerate(args):
            name, equals, value = argument.partition("=")
            if name in REMOVED_OPTIONS and name not in options:
                raise typer.BadParameter(f"{name} was removed: {REMOVED_OPTIONS[name]}", ctx=ctx)
            current = OPTION_ALIASES.get(name)
            if current in options:
                args[position] = f"{current}{equals}{value}"
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; report exhausted memory with the name of the data."""
        try:
            return super().invoke(ctx)
        except (MemoryError, RuntimeError, SystemError, ImportError) as error:
            reason = str(error).partition("\n")[0]
            if not _is_memory_error(error, reason):
                raise
            source = ctx.params.get("source") or "these data"
            raise MemoryError(f"not enough memory for {source}" + (f" ({reason})" if reason else "")) from error

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help with the choices and with the default parameters of the classifier."""
        # Unwrap the lines of the docstring: the help is wrapped to the width of the terminal.
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in (self.help or "").split("\n\n"))
        described = [p for p in self.params if re.search("{choices}|{default}", getattr(p, "help", None) or "")]
        if described:
            from ccmn.models import CCMNClassifier, CorrectedClassifier

            defaults = {**CCMNClassifier().get_params(), **CorrectedClassifier().get_params(), "loss": None}
        for parameter in described:
            name = str(parameter.name)
            choices = " | ".join(CHOICES[name]()) if name in CHOICES else ""
            default = defaults.get(name)
            if isinstance(default, tuple):
                default = ", ".join(f"{value:g}" for value in default)
            text = str(parameter.help).replace("{choices}", choices)  # type: ignore[attr-defined]
            parameter.help = text.replace("{default}", "none" if default is None else str(default))  # type: ignore[attr-defined]
        with _terminal_layout(self, ctx):
            super().format_help(ctx, formatter)


class CommandGroup(TyperGroup):
    """Group of commands whose help has the layout of the commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        with _terminal_layout(self, ctx):
            super().format_help(ctx, formatter)


@contextmanager
def _terminal_layout(command: Any, ctx: Any) -> Iterator[None]:
    """Change the help for the terminal: one example per line, options in panels, no type of flags, brackets as text."""
    panels = {name: title for title, names in HELP_PANELS.items() for name in names}
    options = [parameter for parameter in command.get_params(ctx) if parameter.param_type_name == "option"]
    grouped = sum(parameter.name in panels for parameter in options) > 1
    changes: list[tuple[Any, str, Any]] = [(command, "help", _terminal_help(command.help or ""))]
    for parameter in options:
        changes.append((parameter, "help", _escape_markup(parameter.help or "")))
        if parameter.is_flag:
            changes.append((parameter, "metavar", ""))
        if grouped and parameter.name in panels:
            changes.append((parameter, "rich_help_panel", panels[parameter.name]))
    original = [getattr(target, name, None) for target, name, _ in changes]
    try:
        for target, name, value in changes:
            setattr(target, name, value)
        yield
    finally:
        for (target, name, _), value in zip(changes, original):
            setattr(target, name, value)


def _terminal_help(text: str) -> str:
    r"""Return the help of a command with one example per line.

    >>> print(_terminal_help("Fit.\n\nExamples: ccmn fit a[b], or ccmn fit c"))
    Fit.
    <BLANKLINE>
    Examples:
      ccmn fit a\[b]
      ccmn fit c
    """
    first, found, examples = text.rpartition("\n\nExample")
    if not found:
        return _escape_markup(text)
    word, _, commands = examples.partition(": ")
    lines = re.split(r",? or (?=ccmn |torchrun )|, (?=ccmn )", commands)
    return _escape_markup(f"{first}{found}{word}:\n" + "\n".join(f"  {line}" for line in lines))


def _escape_markup(text: str) -> str:
    """Return a text whose brackets rich prints as they are."""
    return re.sub(r"(?<!\\)\[", r"\[", text)


def _surrogates() -> Iterable[str]:
    from ccmn.losses import SURROGATES

    return ["auto", *SURROGATES]


def _corrections() -> Iterable[str]:
    from ccmn.losses import CORRECTIONS

    return CORRECTIONS


CHOICES: dict[str, Callable[[], Iterable[str]]] = {
    "loss": lambda: ("hamming", "ranking"),
    "surrogate": _surrogates,
    "correction": _corrections,
    "model": lambda: ("linear", "mlp"),
    "threshold": lambda: ("fixed", "f1"),
    "noise_type": lambda: ("both", "partial", "missing"),
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


def read_names(text: str | None, option: str) -> tuple[str, ...]:
    """Return the column names of an option.

    >>> read_names('title, "body, long"', "--text")
    ('title', 'body, long')
    """
    if text is None:
        return ()
    names = tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))
    if not names or not all(names):
        raise typer.BadParameter(f"{option} expects column names, as a,b; got {text!r}")
    return names


def read_roles(
    labels: str | None = None,
    tags: str | None = None,
    separator: str = ";",
    text: str | None = None,
    image: str | None = None,
    row_id: str | None = None,
    ignore: str | None = None,
) -> ColumnRoles:
    """Return the columns that the shared options select."""
    from ccmn.data.labeled_table import ColumnRoles

    if not separator:
        raise typer.BadParameter("--sep is empty; expected a separator such as ;")
    separator = separator.replace("\\t", "\t")
    text_columns, ignored = read_names(text, "--text"), read_names(ignore, "--ignore")
    return ColumnRoles(read_labels(labels), tags, separator, text_columns, image, row_id, ignored)


def program_name() -> str:
    """Return the command that starts ccmn in the current shell."""
    called = Path(sys.argv[0])
    if shutil.which("ccmn"):
        return "ccmn"
    return str(called) if called.stem == "ccmn" else "python -m ccmn"


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
    return f"{program_name()} {command} {shlex.join(words)}"


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
    typer.echo(f"next: {command}" + (f"  # {comment}" if comment else ""), err=True)


def unused_name(name: str) -> str:
    """Return a name for an output file of the next command that does not exist in the current folder.

    >>> unused_name("no-such-model.ccmn")
    'no-such-model.ccmn'
    """
    path = Path(name)
    names = itertools.chain([name], (f"{path.stem}-{number}{path.suffix}" for number in itertools.count(2)))
    return next(name for name in names if not Path(name).exists())


def read_trusted(path: Path | None, data: MultiLabelData, row_id: str | None = None) -> Verified | None:
    """Return the verified rows, their labels, and which of them are a random sample.

    Without a file, these are the rows that the data themselves declare as verified, if any.
    """
    import numpy as np

    from ccmn._files import check_file, prefix_errors
    from ccmn._validation import check_label_matrix, check_trusted_rows
    from ccmn.data.formats import is_table, read_table
    from ccmn.data.npz import load_arrays

    if path is None:
        if data.trusted is None or np.isnan(data.trusted).all():
            return None
        rows = np.flatnonzero(~np.isnan(data.trusted).all(1))
        return rows, data.trusted[rows], np.zeros(len(rows), dtype=bool)
    if is_table(path):
        frame = read_table(path).frame
        with prefix_errors(path):
            rows, Y, random = _trusted_table(frame, data, row_id)
    else:
        arrays = load_arrays(check_file(path), {"rows", "Y", "random", "label_names"})
        with prefix_errors(path):
            rows, Y, random = _trusted_arrays(arrays, data)
    with prefix_errors(path):
        if not rows.size:
            raise ValueError("there are no verified rows")
        rows, Y = check_trusted_rows((rows, Y), data.n)
        Y = check_label_matrix(Y, "the verified labels")
        if Y.shape != (len(rows), data.q) or random.shape != rows.shape or random.dtype != bool:
            raise ValueError(f"expected {data.q} labels and a random flag for each of {len(rows)} verified rows")
    return rows, Y, random


def _trusted_arrays(arrays: dict[str, NDArray[Any]], data: MultiLabelData) -> Verified:
    """Return the verified rows of an NPZ file."""
    missing = {"rows", "Y", "random", "label_names"} - set(arrays)
    if missing:
        raise ValueError(f"not a file of verified rows: it has no {', '.join(sorted(missing))}")
    names = tuple(map(str, arrays["label_names"].ravel()))
    if data.label_names is not None and names != tuple(data.label_names):
        raise ValueError(f"verified labels {', '.join(map(repr, names[:4]))} ... are not the labels of the data")
    return arrays["rows"], arrays["Y"], arrays["random"]


def _trusted_table(frame: Any, data: MultiLabelData, row_id: str | None) -> Verified:
    """Return the verified rows of a table with label columns, or with one answer per line."""
    import numpy as np
    import pandas as pd

    from ccmn.data.preprocessing import category_name, to_numbers, without_gap_words

    key = row_id if row_id is not None and row_id in frame else "row"
    if key not in frame:
        raise ValueError(f"not a file of verified rows: it has no column {row_id or 'row'!r}")
    names = [str(name) for name in data.label_names or range(data.q)]
    ids = list(data.ids) if key == row_id and data.ids is not None else [str(i) for i in range(data.n)]
    rows = pd.Index(ids).get_indexer(pd.Index([category_name(value) for value in frame[key]]))
    if not pd.Index(ids).is_unique or (rows < 0).any():
        raise ValueError(f"column {key!r} contains {frame[key][int((rows < 0).argmax())]!r}, which is not a unique row")
    labels = pd.DataFrame(np.nan, index=range(data.n), columns=names)
    random = np.ones(data.n, dtype=bool)
    if {"label", "answer"} <= set(frame.columns):
        value = frame["answer"].map({"yes": 1.0, "no": 0.0})
        for row, label, answer in zip(rows, frame["label"].map(category_name), value):
            if label not in labels:
                raise ValueError(f"label {label!r} is not a label of the data")
            labels.loc[row, label] = answer
        if "counts_for_rates" in frame:
            random[rows] = frame["counts_for_rates"].map(category_name).isin(("1", "True", "yes")).to_numpy()
    else:
        missing = [name for name in names if name not in frame]
        if missing:
            raise ValueError(f"not a file of verified rows: it has no label column {missing[0]!r}")
        columns = frame[names]
        columns = without_gap_words(columns) if columns.dtypes.map(str).eq("object").all() else columns
        labels.iloc[rows] = np.column_stack([to_numbers(columns[name]) for name in names])
    verified = np.flatnonzero(labels.notna().any(axis=1))
    return verified, labels.to_numpy(np.float64)[verified], random[verified]


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
