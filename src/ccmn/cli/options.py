"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.tables import LabelSpec

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]
DataDir = Annotated[
    Path | None, typer.Option(help="For a data set by name: the folder it is in (else CCMN_DATA).", metavar="FOLDER")
]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A data file (CSV, Parquet, ARFF, MAT, LIBSVM, NPZ), or the name of a data set: see ccmn data list.",
        show_default=False,
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Which columns are labels: a,b,\"c, d\" or 'label_*' or 14 (the first) or -14 (the last), or a file of "
        "names (.xml, .txt). NPZ, MAT and LIBSVM files know theirs.",
    ),
]
Text = Annotated[str | None, typer.Option(metavar="COLUMN", help="A column of texts, turned into TF-IDF features.")]
Candidates = Annotated[
    bool, typer.Option("--candidates", help="Take the candidate sets in the data for the labels given.")
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="The same seed gives the same result.")]


def read_labels(text: str | None) -> LabelSpec | None:
    """What is typed after ``--labels``, as the readers take it.

    >>> read_labels("sea, sky"), read_labels("-14"), read_labels("label_*")
    (['sea', 'sky'], -14, 'label_*')

    A name that holds a comma stands in double quotes, as in the file:

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
        raise typer.BadParameter("--labels is empty; name columns (a,b,c), or give a pattern, a count or a file")
    return text


def given_labels(data: MultiLabelData, candidates: bool) -> Any:
    """The labels (or the candidate sets) with their names, where they have any."""
    if candidates and data.candidates is None:
        raise ValueError("these data have no candidate sets beside the labels: leave --candidates out")
    Y = data.candidates if candidates else data.Y
    if data.label_names is None:
        return Y
    import pandas as pd

    from ccmn._containers import to_dense_array

    return pd.DataFrame(to_dense_array(Y), columns=list(data.label_names))


def check_free(path: Path, force: bool, *, folder: bool = False) -> Path:
    """A place to write to: its folder is there, and nothing in its place unless it may be replaced.

    What is written may be a ``folder``; else no folder makes way for it.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into")
    if path.exists() and not force:
        raise FileExistsError(f"{path} is there already; --force replaces it")
    if path.is_dir() and not folder:
        raise IsADirectoryError(f"{path} is a folder; name a file to write")
    return path


def _losses() -> Iterable[str]:
    from ccmn.losses import LOSSES

    return [*LOSSES, "forward", "plugin"]


def _surrogates() -> Iterable[str]:
    from ccmn.losses import SURROGATES

    return SURROGATES


def _models() -> Iterable[str]:
    from ccmn.training import NETWORKS

    return NETWORKS


def _corrections() -> Iterable[str]:
    from ccmn.losses import CORRECTIONS

    return CORRECTIONS


def _methods() -> Iterable[str]:
    from ccmn.estimation import METHODS

    # What these rest on (rows with true labels, votes, prevalences) has no place in a data file.
    return [name for name in METHODS if name not in ("trusted", "dawid_skene", "known_prevalence")]


CHOICES: dict[str, Callable[[], Iterable[str]]] = {
    "loss": _losses,
    "surrogate": _surrogates,
    "model": _models,
    "correction": _corrections,
    "solver": lambda: ("auto", "adam", "closed_form", "lbfgs"),
    "threshold": lambda: ("fixed", "f1"),
    "sides": lambda: ("both", "partial", "missing"),
    "method": _methods,
}
"""The words an option takes, by the option's name; from the catalogues, which are heavy to import."""


def check_choice(param: typer.CallbackParam, value: str | None) -> str | None:
    """One of the option's words."""
    if value is None or value in (words := tuple(CHOICES[str(param.name)]())):
        return value
    raise typer.BadParameter(f"{value!r} is none of {', '.join(words)}")


def check_device(value: str | None) -> str | None:
    """A device that torch can compute on here."""
    if value is None or value == "auto":
        return value
    import torch

    try:
        torch.empty(0, device=value)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise typer.BadParameter(
            f"cannot compute on {value!r} here ({reason}); --device auto takes what there is"
        ) from None
    return value


class DefaultsInHelp(TyperCommand):
    """A command whose help says "{choices}" and "{default}", filled in only when it is read."""

    def format_help(self, *args: Any, **kwargs: Any) -> None:
        """Fill in the choices and the estimator's default values, then print."""
        from ccmn.models import CCMNClassifier

        defaults = CCMNClassifier().get_params()
        for parameter in self.params:
            name, text = str(parameter.name), getattr(parameter, "help", None) or ""
            choices = " | ".join(CHOICES[name]()) if name in CHOICES else ""
            default = _in_words(defaults.get(name))
            parameter.help = text.replace("{choices}", choices).replace("{default}", default)  # type: ignore[attr-defined]
        super().format_help(*args, **kwargs)


def _in_words(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(f"{v:g}" for v in value) if isinstance(value, tuple) else str(value)
