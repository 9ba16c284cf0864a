"""``ccmn noise``: noise put into labels, its rates estimated, and rates shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.cli.options import (
    Candidates,
    Data,
    DataDir,
    DefaultsInHelp,
    Force,
    Json,
    Labels,
    Seed,
    Text,
    check_choice,
    check_free,
    given_labels,
    read_labels,
)
from ccmn.cli.output import print_json
from ccmn.cli.output import show as show_table
from ccmn.cli.rates import described, rates_for, read_estimate, read_rates, write_rates

if TYPE_CHECKING:
    from ccmn._random import RandomState
    from ccmn.data import MultiLabelData
    from ccmn.noise import NoiseModel

noise_app = typer.Typer(help="Noise in labels: estimate it, inject it, show its rates.", no_args_is_help=True)

MAX_SUM: dict[str, float | None] = {"literal": None, "moderate": 0.6}
"""The paper's draw of rates, by protocol: how large rho_pos + rho_neg may be (None: anything below 1)."""


@noise_app.command(cls=DefaultsInHelp)
def estimate(
    source: Data,
    labels: Labels = None,
    sides: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            callback=check_choice,
            help="How labels go wrong: both | partial (only added) | missing (only lost).",
        ),
    ] = "both",
    method: Annotated[str, typer.Option(metavar="NAME", callback=check_choice, help="{choices}")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write the rates here as well.", metavar="JSON")] = None,
    text: Text = None,
    candidates: Candidates = False,
    seed: Seed = 0,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Estimate how often each label was lost or added, from the noisy data alone.

    Say which side you know to be clean: that makes the estimate far surer. The file written goes into ccmn fit --noise,
    ccmn audit --noise and ccmn noise show.

    Example: ccmn noise estimate train.csv --labels 'label_*' --sides partial --out rates.json
    """
    from ccmn.data.columns import Columns
    from ccmn.estimation import estimate_noise

    if out is not None:
        check_free(out, force)
    _, data = Columns.from_training_data(source, read_labels(labels), text, data_dir=data_dir)
    rates = estimate_noise(data.X, given_labels(data, candidates), method=method, noise_type=sides, random_state=seed)
    if out is not None:
        write_rates(rates, out)
    if as_json:
        print_json(described(rates))
        return
    from ccmn.report.console import estimate_table

    show_table(estimate_table(rates))


@noise_app.command()
def inject(
    source: Data,
    out: Annotated[Path, typer.Option(help="The file to write, .npz or .csv.", show_default=False)],
    labels: Labels = None,
    rates: Annotated[Path | None, typer.Option(help="A file with the rates of every label.", metavar="JSON")] = None,
    rho_pos: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Part of the true labels that is lost.", metavar="RATE")
    ] = None,
    rho_neg: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Part of the absent labels that is added.", metavar="RATE")
    ] = None,
    partial: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Candidate sets: labels are only added.", metavar="RATE")
    ] = None,
    missing: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Weak labels: labels are only lost.", metavar="RATE")
    ] = None,
    paper_draw: Annotated[
        str | None, typer.Option(help="The paper's draw of rates, 0.1 to 0.5.", metavar="literal|moderate")
    ] = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Flip labels at random, and write the noisy data with the rates beside it (noisy.npz: noisy.rates.json).

    Say how the labels go wrong in one way: --rates; --rho-pos and --rho-neg; --partial; --missing; or --paper-draw.

    Example: ccmn noise inject yeast --rho-pos 0.2 --rho-neg 0.1 --seed 1 --out noisy.npz
    """
    from ccmn._random import as_generator
    from ccmn.data import load_dataset
    from ccmn.data.formats import writer_for

    ways = {"rates": rates, "rho": (rho_pos, rho_neg), "partial": partial, "missing": missing, "draw": paper_draw}
    way = _one_way(ways)
    beside = out.with_suffix(".rates.json")
    write = writer_for(check_free(out, force))
    check_free(beside, force)
    data = load_dataset(source, labels=read_labels(labels), data_dir=data_dir)
    generator = as_generator(seed)
    noise = _make_noise(way, ways[way], data, generator)
    noisy = replace(data, Y=noise.corrupt(data.Y, random_state=generator), candidates=None)
    write(noisy, out)
    write_rates(noise, beside)
    _report({"out": str(out), "rates": str(beside), **_count_flips(data, noisy)}, as_json)


@noise_app.command()
def show(
    rates: Annotated[Path, typer.Argument(help="A file of rates, as JSON.", show_default=False)],
    as_json: Json = False,
) -> None:
    """The rates in a file, as a table.

    Example: ccmn noise show noisy.rates.json
    """
    noise = read_estimate(rates)
    if as_json:
        print_json(described(noise))
        return
    from ccmn.estimation import NoiseRates
    from ccmn.report.console import estimate_table, noise_table

    show_table(estimate_table(noise) if isinstance(noise, NoiseRates) else noise_table(noise))


def _one_way(ways: dict[str, Any]) -> str:
    """Which of the ways to say the rates was taken: exactly one."""
    given = [way for way, value in ways.items() if value not in (None, (None, None))]
    if len(given) != 1:
        raise typer.BadParameter(
            "say how labels go wrong in one way: --rates FILE, --rho-pos with --rho-neg, --partial, --missing or "
            f"--paper-draw; {len(given)} were given"
        )
    if given == ["rho"] and None in ways["rho"]:
        raise typer.BadParameter("--rho-pos and --rho-neg go together; give 0 for labels that are never lost, or added")
    if given == ["draw"] and ways["draw"] not in MAX_SUM:
        raise typer.BadParameter(f"--paper-draw is one of {', '.join(MAX_SUM)}; got {ways['draw']!r}")
    return given[0]


def _make_noise(way: str, value: Any, data: MultiLabelData, generator: RandomState) -> NoiseModel:
    """The noise model asked for, with a rate for every label of the data."""
    from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

    if data.q == 0 or _observed(data) == 0:
        raise ValueError("there are no labels in these data to put noise into")
    if way == "rates":
        noise = read_rates(value)
    elif way == "rho":
        noise = ClassConditionalNoise(*value, n_labels=data.q)
    elif way == "draw":
        noise = ClassConditionalNoise.sample(data.q, max_sum=MAX_SUM[value], random_state=generator)
    else:
        noise = (PartialNoise if way == "partial" else MissingNoise)(value, n_labels=data.q)
    return rates_for(noise, data.label_names, data.q)


def _count_flips(data: MultiLabelData, noisy: MultiLabelData) -> dict[str, Any]:
    from ccmn._containers import is_sparse

    true, given = data.Y, noisy.Y
    observed = _observed(data)
    if is_sparse(true):
        kept = int(true.multiply(given).sum())
        lost, added = int(true.sum()) - kept, int(given.sum()) - kept
    else:
        lost, added = int(((true == 1) & (given == 0)).sum()), int(((true == 0) & (given == 1)).sum())
    return {"labels": observed, "flipped": lost + added, "lost": lost, "added": added}


def _observed(data: MultiLabelData) -> int:
    """How many entries of the labels are known."""
    from ccmn._containers import is_sparse

    # NaN, not observed, differs from itself; sparse labels are all known.
    return data.n * data.q if is_sparse(data.Y) else int((data.Y == data.Y).sum())


def _report(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    share = result["flipped"] / result["labels"]
    typer.echo(
        f"{result['flipped']} of {result['labels']} labels flipped ({share:.1%}): {result['lost']} lost, "
        f"{result['added']} added\n{result['out']}, rates in {result['rates']}"
    )
