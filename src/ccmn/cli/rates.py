"""Noise models from and to JSON files, and brought into the order of the labels at hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccmn.noise import NoiseModel


def read_rates(path: Path) -> NoiseModel:
    """The noise model that a JSON file describes."""
    from ccmn.data.files import blame, check_file, text_lines
    from ccmn.noise import NoiseModel

    text = "".join(text_lines(check_file(path)))
    with blame(path):
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON (line {error.lineno}: {error.msg})") from None
        except RecursionError:
            raise ValueError("not a description of noise: it is nested too deeply") from None
        return NoiseModel.from_dict(content)


def write_rates(noise: NoiseModel, path: Path) -> None:
    """A JSON file that ``read_rates`` reads; it appears whole or not at all."""
    from ccmn.data.files import whole_file

    with whole_file(path) as stream:
        stream.write(json.dumps(noise.to_dict(), indent=2).encode() + b"\n")


def rates_for(noise: NoiseModel, label_names: Sequence[str] | None, n_labels: int) -> NoiseModel:
    """The rates in the order of some labels, named as they are: by name where both have names, else by number."""
    if noise.n_labels != n_labels:
        raise ValueError(f"the rates are those of {noise.n_labels} labels; there are {n_labels} labels here")
    if label_names is None or noise.label_names == tuple(label_names):
        return noise
    return type(noise).from_dict(_reordered(noise, list(label_names)))


def _reordered(noise: NoiseModel, wanted: list[str]) -> dict[str, Any]:
    given = list(noise.label_names or wanted)
    missing = [name for name in wanted if name not in given]
    if missing:
        raise ValueError(f"the rates are those of other labels: there are none for {', '.join(map(repr, missing[:5]))}")
    order = [given.index(name) for name in wanted]
    fields = noise.to_dict()
    for rate in ("rho_pos", "rho_neg"):
        if rate in fields:
            fields[rate] = [fields[rate][j] for j in order]
    if "T" in fields:
        fields["T"] = [[fields["T"][j][k] for k in order] for j in order]
    return {**fields, "label_names": wanted}
