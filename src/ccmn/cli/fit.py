"""``ccmn fit``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.cli.models import remember
from ccmn.cli.options import (
    Candidates,
    Data,
    DataDir,
    Force,
    Json,
    Labels,
    Text,
    check_choice,
    check_device,
    check_free,
    given_labels,
    read_labels,
)
from ccmn.cli.output import print_json
from ccmn.cli.rates import rates_for, read_rates

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.models import CCMNClassifier
    from ccmn.noise import NoiseModel


def fit(
    source: Data,
    out: Annotated[Path, typer.Option(help="Where to save the model.", metavar="MODEL", show_default=False)],
    labels: Labels = None,
    noise: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How labels go wrong: estimate | partial (labels only added) | missing (only lost) | none, or a file "
            "of known rates (.json).",
        ),
    ] = "estimate",
    text: Text = None,
    candidates: Candidates = False,
    loss: Annotated[
        str | None, typer.Option(metavar="NAME", callback=check_choice, help="{choices} (default: {default})")
    ] = None,
    surrogate: Annotated[
        str | None, typer.Option(metavar="NAME", callback=check_choice, help="{choices} (default: {default})")
    ] = None,
    correction: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=check_choice, help="Keep risks above 0: {choices} (default: {default})"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", callback=check_choice, help="{choices} (default: {default})")
    ] = None,
    lr: Annotated[
        list[float] | None,
        typer.Option(
            metavar="X", help="Learning rate; repeat it to try several, the best is kept (default: {default})"
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", min=1, help="(default: {default})")] = None,
    batch_size: Annotated[int | None, typer.Option(metavar="N", min=1, help="(default: {default})")] = None,
    weight_decay: Annotated[float | None, typer.Option(metavar="X", min=0.0, help="l2 (default: {default})")] = None,
    solver: Annotated[
        str | None, typer.Option(metavar="NAME", callback=check_choice, help="{choices} (default: {default})")
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=check_choice, help="The cut of every label: {choices} (default: {default})"
        ),
    ] = None,
    patience: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after so many epochs without gain (default: {default})")
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Held-out data to choose by; else a part of DATA is held out."),
    ] = None,
    validation_is_clean: Annotated[
        bool, typer.Option("--validation-is-clean", help="The labels in --validation have no noise.")
    ] = False,
    validation_fraction: Annotated[
        float | None, typer.Option(metavar="X", min=0.0, max=1.0, help="The part of DATA held out (default: {default})")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=check_device, help="auto | cpu | cuda | ... (default: {default})"),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed gives the same model.")] = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write progress here, and go on from it after a stop.")
    ] = None,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a classifier on noisy labels and save it.

    Example: ccmn fit train.csv --labels 'label_*' --noise rates.json --out model.ccmn
    """
    from ccmn.data.columns import Columns
    from ccmn.models import CCMNClassifier
    from ccmn.report.fits import fit_summary

    check_free(out, force)
    if validation_is_clean and validation is None:
        raise typer.BadParameter("--validation-is-clean speaks of --validation FILE, which is not given")
    given = {
        "loss": loss,
        "surrogate": surrogate,
        "correction": correction,
        "model": model,
        "lr": tuple(lr) if lr else None,
        "epochs": epochs,
        "batch_size": batch_size,
        "weight_decay": weight_decay,
        "solver": solver,
        "threshold": threshold,
        "patience": patience,
        "validation_fraction": validation_fraction,
        "device": device,
    }
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    columns, data = Columns.of_training_data(source, read_labels(labels), text, data_dir=data_dir)
    classifier = CCMNClassifier(noise=_noise(noise, data), random_state=seed, verbose=1, **settings)
    held_out = None
    if validation is not None:
        rows = columns.read_labelled(validation, data_dir=data_dir)
        held_out = rows.X, given_labels(rows, candidates and not validation_is_clean)
    classifier.fit(
        data.X,
        given_labels(data, candidates),
        validation=held_out,
        validation_is_clean=validation_is_clean,
        checkpoint=checkpoint,
    )
    remember(classifier, columns)
    classifier.save(out)
    result = {"model": str(out), "n": data.n, "d": data.d, "q": data.q, **_outcome(classifier)}
    print_json(result) if as_json else typer.echo(fit_summary(result))


def _noise(how: str, data: MultiLabelData) -> str | NoiseModel | None:
    """The estimator's ``noise``: a word, or the rates in a file, in the order of the labels."""
    if how in ("estimate", "partial", "missing"):
        return how
    if how == "none":
        return None
    if not how.endswith(".json") and not Path(how).exists():
        raise typer.BadParameter(f"--noise is estimate, partial, missing, none or a file of rates (.json); got {how!r}")
    return rates_for(read_rates(Path(how)), data.label_names, data.q)


def _outcome(classifier: CCMNClassifier) -> dict[str, Any]:
    """The noise that was corrected for, and the figures of the choice that was kept."""
    rows = classifier.history_.to_dict("records")
    criterion = list(rows[0])[-1]
    chosen = min(rows, key=lambda row: row[criterion] if row[criterion] == row[criterion] else math.inf)
    return {
        "noise": classifier.noise_.to_dict(),
        "noise_is_estimated": classifier.rates_ is not None,
        "validation": {str(key): float(value) for key, value in chosen.items()},
    }
