"""``ccmn noise``: estimate, inject and show noise rates, and the JSON files that store them.

A file of estimated rates is the description of a noise model with the details of the estimate under the key
"estimate". Every option that takes known rates therefore also takes estimated rates.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from ccmn.app.cli.options import (
    NOISE_TYPES,
    Candidates,
    Command,
    Data,
    DataDir,
    Force,
    Ignore,
    Image,
    Items,
    Json,
    Labels,
    Noise,
    RandomState,
    RowId,
    Separator,
    Tags,
    Text,
    Trusted,
    Votes,
    all_mistakes,
    check_inputs,
    check_output,
    check_source,
    label_frame,
    next_command,
    print_next,
    read_labels,
    unused_name,
)
from ccmn.app.cli.output import CacheFolder, ResultCache, print_json, print_table, write_text

if TYPE_CHECKING:
    from ccmn._random import RandomState as Generator
    from ccmn.data import MultiLabelData
    from ccmn.data.formats import Writer
    from ccmn.data.trusted_files import Verified
    from ccmn.estimation import NoiseRates
    from ccmn.noise import NoiseModel

Rates = TypeVar("Rates", bound="NoiseModel | NoiseRates")

MAX_RATE_SUM: dict[str, float | None] = {"literal": None, "moderate": 0.6}
"""Largest rho_pos + rho_neg of the rates that the protocols of the paper sample (None: any sum below 1)."""
_MODEL_FIELDS = ("rho_pos", "rho_neg", "label_names")
"""Fields of estimated rates that the description of the noise model contains as well."""

noise_app = typer.Typer(help="Estimate, inject and show label noise.", no_args_is_help=True, rich_markup_mode=None)


@noise_app.command(cls=Command)
def estimate(
    context: typer.Context,
    source: Data,
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    noise: Noise = "both",
    out: Annotated[Path | None, typer.Option(help="Write the rates to this file.", metavar="JSON")] = None,
    text: Text = None,
    image: Image = None,
    row_id: RowId = None,
    ignore: Ignore = None,
    votes: Votes = None,
    items: Items = None,
    trusted: Trusted = None,
    candidates: Candidates = False,
    random_state: RandomState = 0,
    data_dir: DataDir = None,
    cache: CacheFolder = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Estimate the missing-label rate and the added-label rate of each label from the noisy data.

    The estimates are much more precise if labels are only added or only removed and --noise says so. The
    file of rates can be used with ccmn fit --noise, ccmn audit --noise, ccmn evaluate --noise and ccmn noise show.
    With --votes, the rates of the majority vote and of every annotator are estimated from the votes alone.

    Example: ccmn noise estimate train.csv --labels 'label_*' --noise partial --out rates.json
    """
    with all_mistakes() as check:
        data_file = check(check_source, source, labels, tags, sep, text, image, row_id, ignore, votes, items, data_dir)
        check(check_noise_type, noise)
        check(check_inputs, trusted)
        check(check_output, out, force)
    from ccmn.data.trusted_files import read_trusted
    from ccmn.estimation import estimate_noise

    _, data = data_file.read()
    if data.votes is None:
        verified, Y = read_trusted(trusted, data, row_id), label_frame(data, candidates)
        rates, annotators = estimate_rates(data, Y, noise, verified, ResultCache(cache, random_state)), None
    else:
        from ccmn.votes import infer_labels

        rates = estimate_noise(Y_noisy=label_frame(data, False), votes=data.votes, noise_type=noise)
        annotators = infer_labels(data.votes, random_state=random_state).annotators
    if out is not None:
        write_rates(rates, out)
    if as_json:
        listed = {} if annotators is None else {"annotators": annotators.to_dict("records")}
        print_json({**describe_rates(rates), **listed})
        return
    from ccmn.app.report.console import annotator_table, estimate_table

    print_table(estimate_table(rates))
    if annotators is not None:
        print_table(annotator_table(annotators))
    known = out or (None if noise == "both" else noise)
    print_next(next_command(context, "audit", source, noise=known, out=unused_name("issues.csv")))


def estimate_rates(data: MultiLabelData, Y: Any, noise: str, verified: Verified | None, results: ResultCache) -> Any:
    """Estimate rates from features and labels, with the verified rows of a random sample."""
    sample = None
    if verified is not None and verified[2].any():
        sample = (verified[0][verified[2]], verified[1][verified[2]])
    return results.rates(data.X, Y, noise, sample)


def check_noise_type(value: str) -> None:
    """Reject other values of ``--noise`` than a noise type."""
    if value not in NOISE_TYPES:
        raise typer.BadParameter(f"--noise must be {', '.join(NOISE_TYPES)}; got {value!r}")


@noise_app.command(cls=Command)
def inject(
    source: Data,
    out: Annotated[Path, typer.Option(help="File to write, .npz or .csv.", show_default=False)],
    labels: Labels = None,
    rates: Annotated[Path | None, typer.Option(help="JSON file with the rates of all labels.", metavar="JSON")] = None,
    rho_pos: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Fraction of true labels to remove.", metavar="RATE")
    ] = None,
    rho_neg: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Fraction of absent labels to add.", metavar="RATE")
    ] = None,
    partial: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Only add labels, at this rate.", metavar="RATE")
    ] = None,
    missing: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Only remove labels, at this rate.", metavar="RATE")
    ] = None,
    paper_draw: Annotated[
        str | None,
        typer.Option(help="Sample rates from 0.1 to 0.5 by this protocol of the paper.", metavar="literal|moderate"),
    ] = None,
    random_state: RandomState = 0,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Flip labels at random and write the noisy data and the noise rates.

    The rates of noisy.npz are written to noisy.rates.json. Specify them by exactly one of --rates, --rho-pos with
    --rho-neg, --partial, --missing and --paper-draw.

    Example: ccmn noise inject yeast --rho-pos 0.2 --rho-neg 0.1 --random-state 1 --out noisy.npz
    """
    given = {"rates": rates, "rho": (rho_pos, rho_neg), "partial": partial, "missing": missing, "draw": paper_draw}
    rates_file = out.with_suffix(".rates.json")
    with all_mistakes() as check:
        kind = check(_specified_noise, given)
        check(check_source, source, labels, data_dir=data_dir)
        check(check_inputs, rates)
        check(check_output, out, force)
        check(check_output, rates_file, force)
    from ccmn._random import as_generator
    from ccmn.data.column_roles import ColumnRoles
    from ccmn.data.columns import read_numbers
    from ccmn.data.formats import writer_for

    write = writer_for(out)
    data = read_numbers(source, ColumnRoles(read_labels(labels)), data_dir)
    observed = _count_observed(data)
    if observed == 0:
        raise ValueError(f"{source} contains no observed labels to add noise to")
    generator = as_generator(random_state)
    noise = _make_noise(kind, given[kind], data, generator)
    noisy = replace(data, Y=noise.corrupt(data.Y, random_state=generator), candidates=None)
    _write_together(write, noisy, out, noise, rates_file)
    removed, added = _count_flips(data.Y, noisy.Y)
    flipped = removed + added
    if as_json:
        counts = {"labels": observed, "flipped": flipped, "lost": removed, "added": added}
        print_json({"out": str(out), "rates": str(rates_file), **counts})
        return
    typer.echo(
        f"{flipped} of {observed} labels flipped ({flipped / observed:.1%}): {removed} removed, {added} added\n"
        f"{out}, rates in {rates_file}"
    )


@noise_app.command(cls=Command)
def show(
    rates: Annotated[Path, typer.Argument(help="JSON file of noise rates.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show the noise rates in a file.

    Example: ccmn noise show noisy.rates.json
    """
    noise = read_estimate(rates)
    if as_json:
        print_json(describe_rates(noise))
        return
    from ccmn.app.report.console import estimate_table, noise_table
    from ccmn.estimation import NoiseRates

    print_table(estimate_table(noise) if isinstance(noise, NoiseRates) else noise_table(noise))


def _specified_noise(given: dict[str, Any]) -> str:
    """Return which of the options of ``ccmn noise inject`` specify the noise; exactly one must."""
    kinds = [kind for kind, value in given.items() if value not in (None, (None, None))]
    if len(kinds) != 1:
        raise typer.BadParameter(
            "Expected exactly one of --rates, --rho-pos with --rho-neg, --partial, --missing and --paper-draw; "
            f"got {len(kinds)}"
        )
    if kinds == ["rho"] and None in given["rho"]:
        raise typer.BadParameter("--rho-pos and --rho-neg must be given together; use 0 for no noise of one kind")
    if kinds == ["draw"] and given["draw"] not in MAX_RATE_SUM:
        raise typer.BadParameter(f"--paper-draw must be one of {', '.join(MAX_RATE_SUM)}; got {given['draw']!r}")
    return kinds[0]


def _make_noise(kind: str, value: Any, data: MultiLabelData, generator: Generator) -> NoiseModel:
    """Return the specified noise model, with rates for every label of the data."""
    from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

    if kind == "rates":
        noise = read_rates(value)
    elif kind == "rho":
        noise = ClassConditionalNoise(*value, n_labels=data.q)
    elif kind == "draw":
        noise = ClassConditionalNoise.sample(data.q, max_sum=MAX_RATE_SUM[value], random_state=generator)
    else:
        noise = (PartialNoise if kind == "partial" else MissingNoise)(value, n_labels=data.q)
    return match_rates(noise, data.label_names, data.q)


def _write_together(write: Writer, noisy: MultiLabelData, out: Path, noise: NoiseModel, rates_file: Path) -> None:
    """Write the data and the rates; an error, such as a full disk, leaves both old files or none.

    The rates are complete on disk before the data are renamed, and are renamed right after the data.
    """
    from ccmn._files import atomic_write

    with atomic_write(rates_file) as stream:
        stream.write(_rates_text(noise).encode())
        stream.flush()
        os.fsync(stream.fileno())
        write(noisy, out)


def _count_observed(data: MultiLabelData) -> int:
    """Return the number of labels that are not NaN."""
    from ccmn._containers import is_sparse

    # NaN differs from itself; sparse label matrices have no NaN.
    return data.n * data.q if is_sparse(data.Y) else int((data.Y == data.Y).sum())


def _count_flips(true: Any, noisy: Any) -> tuple[int, int]:
    """Return how many labels were removed and how many were added."""
    from ccmn._containers import is_sparse

    if is_sparse(true):
        kept = int(true.multiply(noisy).sum())
        return int(true.sum()) - kept, int(noisy.sum()) - kept
    return int(((true == 1) & (noisy == 0)).sum()), int(((true == 0) & (noisy == 1)).sum())


def read_rates(path: Path) -> NoiseModel:
    """Return the noise model described by a JSON file."""
    from ccmn.noise import NoiseModel

    return _parse_file(path, NoiseModel.from_dict)


def read_estimate(path: Path) -> NoiseModel | NoiseRates:
    """Return the estimated rates described by a JSON file, or the noise model if the file has no estimate."""
    return _parse_file(path, _parse_estimate)


def _parse_estimate(content: Any) -> NoiseModel | NoiseRates:
    from ccmn.estimation import NoiseRates
    from ccmn.noise import ClassConditionalNoise, NoiseModel

    if isinstance(content, dict) and "ci_pos" in content:  # NoiseRates.to_dict; noise models have a "kind"
        return NoiseRates.from_dict(content)
    noise = NoiseModel.from_dict(content)
    if "estimate" not in content or not isinstance(noise, ClassConditionalNoise):
        return noise
    if not isinstance(content["estimate"], dict):
        raise ValueError(f"'estimate' must be an object; got {content['estimate']!r}")
    rates = {"rho_pos": noise.rho_pos, "rho_neg": noise.rho_neg, "label_names": noise.label_names}
    return NoiseRates.from_dict({**content["estimate"], **rates})


Parsed = TypeVar("Parsed")


def _parse_file(path: Path, parse: Callable[[Any], Parsed]) -> Parsed:
    """Return the parsed content of a JSON file; every error names the file."""
    from ccmn._files import check_file, text_lines

    text = "".join(text_lines(check_file(path)))
    try:
        return parse(json.loads(text))
    except json.JSONDecodeError as error:
        reason = f"not JSON (line {error.lineno}: {error.msg})"
    except RecursionError:
        reason = "not a description of noise: it is nested too deeply"
    except OverflowError:
        reason = "not a description of noise: a number is too large"
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        reason = f"not a description of noise: {error}"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"{path}: {reason}")


def write_rates(noise: NoiseModel | NoiseRates, path: Path) -> None:
    """Write a JSON file that ``read_rates`` and ``read_estimate`` read."""
    write_text(path, _rates_text(noise))


def _rates_text(noise: NoiseModel | NoiseRates) -> str:
    """Return the content of a file of rates."""
    return json.dumps(describe_rates(noise), indent=2) + "\n"


def describe_rates(noise: NoiseModel | NoiseRates) -> dict[str, Any]:
    """Return the JSON description of a noise model, with the details of estimated rates under "estimate"."""
    from ccmn.estimation import NoiseRates

    if not isinstance(noise, NoiseRates):
        return noise.to_dict()
    details = {name: value for name, value in noise.to_dict().items() if name not in _MODEL_FIELDS}
    return {**noise.noise.to_dict(), "estimate": details}


def check_noise(value: str | None, *, words: Sequence[str] = NOISE_TYPES) -> None:
    """Reject a value of ``--noise`` that is neither one of the words nor an existing file."""
    if value is None or value in words:
        return
    if not value.endswith(".json") and not Path(value).is_file():
        raise typer.BadParameter(f"--noise must be {', '.join(words)} or a JSON file of noise rates; got {value!r}")
    check_inputs(Path(value))


def check_rates_file(path: Path | None) -> None:
    """Reject a value of ``--noise`` that is not an existing file."""
    if path is not None and str(path) in (*NOISE_TYPES, "none") and not path.exists():
        raise typer.BadParameter(
            f"--noise of this command must be a JSON file of noise rates, as written by ccmn noise estimate --out; got "
            f"{str(path)!r}"
        )
    check_inputs(path)


def read_noise_option(
    value: str, label_names: Sequence[str] | None, n_labels: int, *, words: Sequence[str] = NOISE_TYPES
) -> str | NoiseModel | NoiseRates:
    """Return the value of ``--noise``: one of the words, or the rates in a file in the order of the labels."""
    return value if value in words else read_matching(Path(value), label_names, n_labels)


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
