"""Noise models and estimated rates from and to JSON files, and brought into the order of the labels at hand.

A file of estimated rates is a description of the noise model with what else is known of them under "estimate", so that
whatever takes known rates takes it too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

if TYPE_CHECKING:
    from ccmn.estimation import NoiseRates
    from ccmn.noise import NoiseModel

Rates = TypeVar("Rates", bound="NoiseModel | NoiseRates")


def read_rates(path: Path) -> NoiseModel:
    """The noise model that a JSON file describes."""
    from ccmn._files import prefix_errors
    from ccmn.noise import NoiseModel

    text = _text(path)
    with prefix_errors(path):
        return NoiseModel.from_dict(_content(text))


def read_estimate(path: Path) -> NoiseModel | NoiseRates:
    """The estimated rates that a JSON file describes, or the noise model where it says no more."""
    from ccmn._files import prefix_errors
    from ccmn.estimation import NoiseRates
    from ccmn.noise import ClassConditionalNoise, NoiseModel

    text = _text(path)
    with prefix_errors(path):
        content = _content(text)
        # A noise model has one kind, estimated rates (as their to_dict tells them) one for each label.
        if isinstance(content, dict) and isinstance(content.get("kind"), list):
            return NoiseRates.from_dict(content)
        noise = NoiseModel.from_dict(content)
        if "estimate" not in content or not isinstance(noise, ClassConditionalNoise):
            return noise
        if not isinstance(content["estimate"], dict):
            raise ValueError(
                f"'estimate' must be an object, as ccmn noise estimate writes it; got {content['estimate']!r}"
            )
        rates = {"rho_pos": noise.rho_pos, "rho_neg": noise.rho_neg, "label_names": noise.label_names}
        return NoiseRates.from_dict({**content["estimate"], **rates})


def noise_told(how: str, label_names: Sequence[str] | None, n_labels: int) -> str | NoiseModel | NoiseRates:
    """What is typed after ``--noise``: a word, or the rates in a file, in the order of the labels."""
    if how in WORDS:
        return how
    check_is_file(how, WORDS)
    return rates_for(read_estimate(Path(how)), label_names, n_labels)


WORDS = ("estimate", "partial", "missing")
"""How labels go wrong, where the rates are estimated."""


def check_is_file(how: str, words: Sequence[str]) -> None:
    """Not one of the words, and neither a misspelt one."""
    if not how.endswith(".json") and not Path(how).exists():
        raise typer.BadParameter(f"--noise is {', '.join(words)} or a file of rates (.json); got {how!r}")


def write_rates(noise: NoiseModel | NoiseRates, path: Path) -> None:
    """A JSON file that ``read_rates`` and ``read_estimate`` read; it appears whole or not at all."""
    from ccmn._files import atomic_write

    with atomic_write(path) as stream:
        stream.write(json.dumps(described(noise), indent=2).encode() + b"\n")


def described(noise: NoiseModel | NoiseRates) -> dict[str, Any]:
    """JSON-safe: the noise model, and under "estimate" what else is known of estimated rates."""
    from ccmn.estimation import NoiseRates

    if not isinstance(noise, NoiseRates):
        return noise.to_dict()
    model = noise.noise.to_dict()
    return {**model, "estimate": {k: v for k, v in noise.to_dict().items() if k not in RATES}}


RATES = ("rho_pos", "rho_neg", "label_names")
"""What the description of a noise model says already."""


def _text(path: Path) -> str:
    from ccmn._files import check_file, text_lines

    return "".join(text_lines(check_file(path)))


def _content(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON (line {error.lineno}: {error.msg})") from None
    except RecursionError:
        raise ValueError("not a description of noise: it is nested too deeply") from None


def rates_for(noise: Rates, label_names: Sequence[str] | None, n_labels: int) -> Rates:
    """The rates in the order of some labels, named as they are: by name where both have names, else by number."""
    if noise.n_labels != n_labels:
        raise ValueError(f"the rates are those of {noise.n_labels} labels; there are {n_labels} labels here")
    if label_names is None or noise.label_names == tuple(label_names):
        return noise
    return cast(Rates, type(noise).from_dict(_reordered(noise, list(label_names))))


def _reordered(noise: NoiseModel | NoiseRates, wanted: list[str]) -> dict[str, Any]:
    given = list(noise.label_names or wanted)
    missing = [name for name in wanted if name not in given]
    if missing:
        raise ValueError(f"the rates are those of other labels: there are none for {', '.join(map(repr, missing[:5]))}")
    order = [given.index(name) for name in wanted]
    fields = noise.to_dict()
    for name, value in fields.items():
        if name == "flags":
            fields[name] = [(code, note, None if j is None else order.index(j)) for code, note, j in value]
        elif isinstance(value, list):  # an entry per label
            fields[name] = [value[j] for j in order]
    if "T" in fields:
        fields["T"] = [[row[k] for k in order] for row in fields["T"]]
    return {**fields, "label_names": wanted}
