"""JSON files of noise rates.

A file of estimated rates is the description of a noise model with the details of the estimate under the key
"estimate". Every option that takes known rates therefore also takes estimated rates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from ccmn.estimation import NoiseRates
    from ccmn.noise import NoiseModel

Rates = TypeVar("Rates", bound="NoiseModel | NoiseRates")
_MODEL_FIELDS = ("rho_pos", "rho_neg", "label_names")
"""Fields of estimated rates that the description of the noise model contains as well."""


def read_estimate(path: Path) -> NoiseModel | NoiseRates:
    """Return the estimated rates in a file, or the noise model if the file has no estimate; errors name the file."""
    from ccmn._files import check_file, text_lines

    text = "".join(text_lines(check_file(path)))
    try:
        return _parse(json.loads(text))
    except json.JSONDecodeError as error:
        reason = f"not JSON (line {error.lineno}: {error.msg})"
    except (RecursionError, OverflowError, TypeError, AttributeError, KeyError, IndexError) as error:
        reason = f"not a description of noise: {error}"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"{path}: {reason}")


def _parse(content: Any) -> NoiseModel | NoiseRates:
    from ccmn.estimation import NoiseRates
    from ccmn.noise import ClassConditionalNoise, NoiseModel

    if isinstance(content, dict) and "ci_pos" in content:  # written by NoiseRates.to_dict
        return NoiseRates.from_dict(content)
    noise = NoiseModel.from_dict(content)
    if "estimate" not in content or not isinstance(noise, ClassConditionalNoise):
        return noise
    if not isinstance(content["estimate"], dict):
        raise ValueError(f"'estimate' must be an object; got {content['estimate']!r}")
    return NoiseRates.from_dict({**content["estimate"], **{name: getattr(noise, name) for name in _MODEL_FIELDS}})


def describe_rates(noise: NoiseModel | NoiseRates) -> dict[str, Any]:
    """Return the content of a file of rates."""
    from ccmn.estimation import NoiseRates

    if not isinstance(noise, NoiseRates):
        return noise.to_dict()
    details = {name: value for name, value in noise.to_dict().items() if name not in _MODEL_FIELDS}
    return {**noise.noise.to_dict(), "estimate": details}


def rates_text(noise: NoiseModel | NoiseRates) -> str:
    """Return the content of a file of rates, which :func:`read_estimate` reads."""
    return json.dumps(describe_rates(noise), indent=2, ensure_ascii=False) + "\n"


def read_matching(path: Path, label_names: Sequence[str] | None, n_labels: int) -> NoiseModel | NoiseRates:
    """Return the rates in a file in the order of the labels; errors name the file."""
    from ccmn._files import prefix_errors

    noise = read_estimate(path)
    with prefix_errors(path):
        return match_rates(noise, label_names, n_labels)


def match_rates(noise: Rates, label_names: Sequence[str] | None, n_labels: int) -> Rates:
    """Return rates in the order of the given labels: matched by name if both have names, else by position."""
    if noise.n_labels != n_labels:
        raise ValueError(f"Expected noise rates of {n_labels} labels; got rates of {noise.n_labels} labels")
    if label_names is None or noise.label_names == tuple(label_names):
        return noise
    names = list(label_names)
    given = list(noise.label_names or names)
    unknown = [name for name in names if name not in given]
    if unknown:
        raise ValueError(f"noise rates are missing for {', '.join(map(repr, unknown[:5]))}")
    order = [given.index(name) for name in names]
    fields = noise.to_dict()
    for name, value in fields.items():
        if name == "flags":
            fields[name] = [(code, note, None if j is None else order.index(j)) for code, note, j in value]
        elif isinstance(value, list):  # one element per label
            fields[name] = [value[j] for j in order]
    if "T" in fields:
        fields["T"] = [[row[k] for k in order] for row in fields["T"]]
    return cast(Rates, type(noise).from_dict({**fields, "label_names": names}))
