"""``ccmn noise``: estimate, inject and show noise rates."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ccmn.app.cli import options as opt
from ccmn.app.cli import output
from ccmn.app.files import write_text

noise_app = typer.Typer(help="Estimate, inject and show label noise.", no_args_is_help=True, rich_markup_mode=None)


@noise_app.command(cls=opt.Command)
def estimate(
    context: typer.Context,
    source: opt.Data,
    labels: opt.Labels = None,
    tags: opt.Tags = None,
    sep: opt.Separator = ";",
    noise: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="Errors that the labels have: both | partial (labels were only added) | missing (labels were only "
            "removed).",
        ),
    ] = "both",
    out: Annotated[Path | None, typer.Option(help="Write the rates to this file.", metavar="JSON")] = None,
    text: opt.Text = None,
    image: opt.Image = None,
    row_id: opt.RowId = None,
    ignore: opt.Ignore = None,
    votes: opt.Votes = None,
    items: opt.Items = None,
    trusted: opt.Trusted = None,
    random_state: opt.RandomState = 0,
    data_dir: opt.DataDir = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Estimate the missing-label rate and the added-label rate of each label from the noisy data.

    The estimates are much more precise if labels are only added or only removed and --noise says so. The
    file of rates can be used with ccmn fit --noise, ccmn audit --noise, ccmn evaluate --noise and ccmn noise show.
    With --votes, the rates of the majority vote and of every annotator are estimated from the votes alone.

    Example: ccmn noise estimate train.csv --labels 'label_*' --noise partial --out rates.json
    """
    with opt.all_mistakes() as check:
        file = check(opt.check_source, source, context.params)
        if noise not in opt.NOISE_TYPES:
            check(opt.reject, f"--noise must be {', '.join(opt.NOISE_TYPES)}; got {noise!r}")
        if trusted is not None and votes is not None:
            check(opt.reject, "--trusted has no effect with --votes: the rates are estimated from the votes alone")
        check(opt.check_inputs, trusted)
        check(opt.check_output, out, force)
    from ccmn.app.issues import evidence_of
    from ccmn.app.rates_files import describe_rates, rates_text
    from ccmn.app.report.tables import annotator_table
    from ccmn.data.trusted_files import read_trusted
    from ccmn.estimation.estimate import rates_of
    from ccmn.votes import infer_labels

    _, data = file.read()
    with output.draw_progress() as on_progress:
        on_progress("noise rates", 0, 1)
        verified = read_trusted(trusted, data, row_id)
        rates = rates_of(evidence_of(data, noise, verified, random_state))
    annotators = None if data.votes is None else infer_labels(data.votes, random_state=random_state).annotators
    if out is not None:
        write_text(out, rates_text(rates))
    if as_json:
        listed = {} if annotators is None else {"annotators": annotators.to_dict("records")}
        output.print_json({**describe_rates(rates), **listed})
        return
    _print_rates(rates)
    if annotators is not None:
        output.print_table(annotator_table(annotators))
    known = out or (None if noise == "both" else noise)
    opt.print_next(opt.next_command(context, "audit", source, noise=known, out=opt.unused_name("issues.csv")))


def _print_rates(rates: Any) -> None:
    """Print noise rates and the warnings about them."""
    from ccmn.app.report.tables import rate_warnings, rates_table
    from ccmn.estimation import NoiseRates

    output.print_table(rates_table(rates))
    for warning in rate_warnings(rates) if isinstance(rates, NoiseRates) else ():
        typer.echo(output.printable(f"! {warning}"))


@noise_app.command(cls=opt.Command)
def inject(
    context: typer.Context,
    source: opt.Data,
    out: Annotated[Path, typer.Option(help="File to write, .npz or .csv.", show_default=False)],
    labels: opt.Labels = None,
    rates: Annotated[Path | None, typer.Option(help="JSON file with the rates of all labels.", metavar="JSON")] = None,
    rho_pos: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Fraction of true labels to remove.", metavar="RATE")
    ] = 0.0,
    rho_neg: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Fraction of absent labels to add.", metavar="RATE")
    ] = 0.0,
    random_state: opt.RandomState = 0,
    data_dir: opt.DataDir = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Flip labels at random and write the noisy data and the noise rates.

    The rates of noisy.npz are written to noisy.rates.json. Specify them by --rates, or by --rho-pos and --rho-neg.

    Example: ccmn noise inject yeast --rho-pos 0.2 --rho-neg 0.1 --random-state 1 --out noisy.npz
    """
    rates_file = out.with_suffix(".rates.json")
    with opt.all_mistakes() as check:
        if (rates is None) == (rho_pos == rho_neg == 0):
            check(opt.reject, "Expected either --rates, or a positive --rho-pos or --rho-neg")
        file = check(opt.check_source, source, context.params)
        check(opt.check_inputs, rates)
        check(opt.check_output, out, force)
        check(opt.check_output, rates_file, force)
    from ccmn._containers import is_sparse
    from ccmn._files import atomic_write
    from ccmn._random import as_generator
    from ccmn.app.rates_files import rates_text, read_matching
    from ccmn.data.columns import read_numbers
    from ccmn.data.formats import writer_for
    from ccmn.noise import ClassConditionalNoise

    write = writer_for(out)
    data = read_numbers(source, file.roles, data_dir)
    observed = data.n * data.q if is_sparse(data.Y) else int((data.Y == data.Y).sum())  # NaN is not equal to itself
    if observed == 0:
        raise ValueError(f"{source} contains no observed labels to add noise to")
    if rates is None:
        noise: Any = ClassConditionalNoise(rho_pos, rho_neg, n_labels=data.q, label_names=data.label_names)
    else:
        noise = read_matching(rates, data.label_names, data.q)
        noise = getattr(noise, "noise", noise)  # of estimated rates
    noisy = replace(data, Y=noise.corrupt(data.Y, random_state=as_generator(random_state)), candidates=None)
    with atomic_write(rates_file) as stream:  # an error leaves both old files or none
        stream.write(rates_text(noise).encode())
        stream.flush()
        os.fsync(stream.fileno())
        write(noisy, out)
    changes: Any = noisy.Y.astype("f4") - data.Y
    values = changes.data if is_sparse(changes) else changes
    removed, added = int((values == -1).sum()), int((values == 1).sum())
    flipped = removed + added
    if as_json:
        counts = {"labels": observed, "flipped": flipped, "lost": removed, "added": added}
        output.print_json({"out": str(out), "rates": str(rates_file), **counts})
        return
    typer.echo(
        f"{flipped} of {observed} labels flipped ({flipped / observed:.1%}): {removed} removed, {added} added\n"
        f"{out}, rates in {rates_file}"
    )


@noise_app.command(cls=opt.Command)
def show(
    rates: Annotated[Path, typer.Argument(help="JSON file of noise rates.", show_default=False)],
    as_json: opt.Json = False,
) -> None:
    """Show the noise rates in a file.

    Example: ccmn noise show noisy.rates.json
    """
    from ccmn.app.rates_files import describe_rates, read_estimate

    found = read_estimate(rates)
    if as_json:
        output.print_json(describe_rates(found))
    else:
        _print_rates(found)
