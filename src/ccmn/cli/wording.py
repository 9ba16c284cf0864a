"""What the library says in the words of Python, said in those of the command line.

The library names arguments, ``loss="forward"``; who types commands knows options, ``--loss forward``. Every note and
every error passes through here. What has an option of the same name is turned into it; what has none has a line of
its own below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_APART = r"(?<![\w'\"/.-])"
"""Not inside a word, a path or quotes: names of files and columns stay as they are."""
_VALUE = r"(?:'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\.\.\.|[\w:+-]+(?:\.\w+)*)"

_BARE = ("lr", "batch_size", "weight_decay", "validation_fraction", "data_dir")
"""Arguments that are spoken of by their name alone; most names are words that mean something else as well."""

_RATES_FILE = "--noise rates.json"
_PHRASES: tuple[tuple[str, str], ...] = (
    (r",? trusted=\(rows, Y_true\)", ": ccmn review asks you for them"),
    (r"noise=ClassConditionalNoise\(rho_pos, rho_neg\)", _RATES_FILE),
    (r"\bestimate_noise\b", "ccmn noise estimate"),
    (r"give a noise model to correct them", f"give {_RATES_FILE} to correct them"),
    (r"load it with load_model\(path, model=\.\.\.\)", "only load_model in Python can be told what it is"),
    (r"(^|: )labels: ", r"\1--labels: "),
)


def option_names(commands: Iterable[Any]) -> dict[str, str]:
    """Argument -> option, ``{"weight_decay": "--weight-decay", ...}``, of all commands and those under them."""
    return {str(p.name): p.opts[0] for c in _leaves(commands) for p in c.params if p.opts[0].startswith("--")}


def _leaves(commands: Iterable[Any]) -> Iterator[Any]:
    for command in commands:
        below = getattr(command, "commands", None)
        if below:
            yield from _leaves(below.values())
        else:
            yield command


def in_options(message: str, options: Mapping[str, str]) -> str:
    """A message with options in place of arguments.

    >>> in_options("use solver='auto'; or more weight_decay", {"solver": "--solver", "weight_decay": "--weight-decay"})
    'use --solver auto; or more --weight-decay'
    """
    for pattern, words in _PHRASES:
        message = re.sub(pattern, words, message)
    for name, option in options.items():
        message = re.sub(rf"{_APART}leave {name}=.*? out\b", f"leave {option} out", message)
        message = re.sub(rf"{_APART}use {name}=None\b", f"leave {option} out", message)
        given = re.compile(rf"{_APART}{name}=({_VALUE}(?: or {_VALUE})*)?")
        message = given.sub(lambda found, option=option: _option(option, found[1]), message)  # type: ignore[misc]
        if name in _BARE:
            message = re.sub(rf"{_APART}{name}(?![\w'\"/.=])", option, message)
    return message


def _option(option: str, value: str | None) -> str:
    """``'a' or 'b'`` -> a or b, ``['a', 'b']`` -> a,b; an ellipsis says nothing."""
    if value is None or value == "...":
        return option
    if value.startswith("["):
        value = ",".join(part.strip() for part in value[1:-1].split(","))
    return f"{option} {re.sub(_QUOTED, _plain, value)}"


_QUOTED = r"'([^']*)'|\"([^\"]*)\""


def _plain(found: re.Match[str]) -> str:
    """What stands in quotes, which a shell needs around a pattern only."""
    text = found[1] if found[1] is not None else found[2]
    return f"'{text}'" if re.search(r"[*?\s]", text) else text
