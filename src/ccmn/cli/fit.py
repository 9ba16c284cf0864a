"""``ccmn fit``: train a classifier and save it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

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
from ccmn.cli.rates import WORDS, check_is_file, rates_for, read_rates
from ccmn.cli.together import taking_part

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.columns import Columns
    from ccmn.models import CCMNClassifier
    from ccmn.noise import NoiseModel


def fit(
    source: Data,
    out: Annotated[Path, typer.Option(help="File or folder for the model.", metavar="MODEL", show_default=False)],
    labels: Labels = None,
    noise: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="Noise type: estimate | partial (labels only added) | missing (labels only removed) | none, or a "
            "JSON file of known noise rates.",
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
        typer.Option(
            metavar="NAME", callback=check_choice, help="Correction of negative risks: {choices} (default: {default})"
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", callback=check_choice, help="{choices} (default: {default})")
    ] = None,
    lr: Annotated[
        list[float] | None,
        typer.Option(metavar="X", help="Learning rate; repeat the option to select from several (default: {default})"),
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
            metavar="NAME", callback=check_choice, help="Decision threshold per label: {choices} (default: {default})"
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Stop after N epochs without improvement (default: {default})"),
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Validation set for model selection (default: a part of DATA)."),
    ] = None,
    validation_is_clean: Annotated[
        bool, typer.Option("--validation-is-clean", help="The labels in --validation are noise-free.")
    ] = False,
    validation_fraction: Annotated[
        float | None, typer.Option(metavar="X", min=0.0, max=1.0, help="Fraction of DATA held out (default: {default})")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=check_device, help="auto | cpu | cuda | ... (default: {default})"),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Random seed.")] = 0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Checkpoint to write to and to resume from; deleted when MODEL is saved."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory limit for a folder of shards (default: 500MB).")
    ] = None,
    n_labels: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of labels, for a folder whose label column lists label numbers."),
    ] = None,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a classifier on noisy labels and save it.

    DATA may be a folder of Parquet files that does not fit in memory. Distributed training uses torchrun.

    Examples: ccmn fit train.csv --labels 'label_*' --noise rates.json --out model.ccmn, or
    torchrun --nproc-per-node 2 -m ccmn fit shards --labels 'label_*' --noise rates.json --out model.ccmn
    """
    from ccmn.models import CCMNClassifier
    from ccmn.report.console import fit_summary

    check_free(out, force, folder=True)
    if validation_is_clean and validation is None:
        raise typer.BadParameter("--validation-is-clean requires --validation")
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
    if Path(source).is_dir():
        if text is not None or candidates:
            raise typer.BadParameter("--text and --candidates require a file as DATA; got a folder")
        data: _Training = _Shards(source, labels, n_labels, memory)
    elif memory is not None or n_labels is not None:
        raise typer.BadParameter("--memory and --n-labels require a folder of Parquet files as DATA")
    else:
        data = _File(source, labels, text, candidates, data_dir)
    with taking_part(device) as (ranks, own_device):
        if own_device is not None:
            settings["device"] = own_device
        rates = _noise(noise, data.columns)
        classifier = CCMNClassifier(noise=rates, random_state=seed, verbose=1, **settings)
        held_out = None if validation is None else data.held_out(validation, validation_is_clean)
        data.fit(classifier, held_out, validation_is_clean, checkpoint)
        if ranks.writes:
            remember(classifier, data.columns)
            classifier.save(out)
    if ranks.writes:
        size = {"n": data.n, "d": classifier.n_features_in_, "q": data.columns.n_labels}
        result = {"model": str(out), **size, **_outcome(classifier)}
        print_json(result) if as_json else typer.echo(fit_summary(result))


class _Training(Protocol):
    """Training data: a file or a folder of shards."""

    columns: Columns
    n: int

    def held_out(self, source: Path, clean: bool) -> tuple[Any, Any]: ...
    def fit(self, classifier: CCMNClassifier, held_out: Any, clean: bool, checkpoint: Path | None) -> None: ...


class _File:
    def __init__(
        self, source: str, labels: str | None, text: str | None, candidates: bool, data_dir: Path | None
    ) -> None:
        from ccmn.data.columns import Columns

        self.columns, self._data = Columns.from_training_data(source, read_labels(labels), text, data_dir=data_dir)
        self._candidates, self._data_dir, self.n = candidates, data_dir, self._data.n

    def held_out(self, source: Path, clean: bool) -> tuple[Any, Any]:
        rows = self.columns.read_labeled(source, data_dir=self._data_dir)
        return rows.X, _labels(rows, self._candidates and not clean)

    def fit(self, classifier: CCMNClassifier, held_out: Any, clean: bool, checkpoint: Path | None) -> None:
        X, Y = self._data.X, _labels(self._data, self._candidates)
        classifier.fit(X, Y, validation=held_out, validation_is_clean=clean, checkpoint=checkpoint)
        if self.columns.label_names is not None:
            classifier.label_names_ = tuple(self.columns.label_names)


def _labels(data: MultiLabelData, candidates: bool) -> Any:
    """Return a large sparse label matrix as it is and any other one as a DataFrame with label names."""
    from ccmn._containers import is_sparse
    from ccmn.models import training_data as targets

    many = is_sparse(data.Y) and data.n * data.q > targets.FEWEST_SPARSE
    return data.Y if many and not candidates else given_labels(data, candidates)


class _Shards:
    def __init__(self, source: str, labels: str | None, n_labels: int | None, memory: str | None) -> None:
        from ccmn.data.columns import Columns
        from ccmn.data.shards import ShardedData

        self._data = data = ShardedData(source, read_labels(labels), n_labels=n_labels)
        self.columns = Columns(data.d, data.q, data.feature_names, data.label_names)
        self._memory, self.n = memory or "500MB", data.n

    def held_out(self, source: Path, clean: bool) -> tuple[Any, Any]:
        import pandas as pd

        rows = self.columns.read_labeled(source)
        return pd.DataFrame(rows.X, columns=_list(self.columns.feature_names)), given_labels(rows, False)

    def fit(self, classifier: CCMNClassifier, held_out: Any, clean: bool, checkpoint: Path | None) -> None:
        classifier.fit_stream(
            self._data, memory=self._memory, validation=held_out, validation_is_clean=clean, checkpoint=checkpoint
        )
        # The commands select columns by name and pass arrays to the model.
        if self._data.feature_names is not None:
            del classifier.feature_names_in_


def _list(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


def _noise(how: str, columns: Columns) -> str | NoiseModel | None:
    """Return the ``noise`` parameter: a noise type, or the rates of a file in the order of the labels."""
    if how in WORDS:
        return how
    if how == "none":
        return None
    check_is_file(how, (*WORDS, "none"))
    return rates_for(read_rates(Path(how)), columns.label_names, columns.n_labels)


def _outcome(classifier: CCMNClassifier) -> dict[str, Any]:
    """Return the noise model used for training and the configuration selected on the validation set."""
    return {
        "noise": classifier.noise_.to_dict(),
        "noise_is_estimated": classifier.rates_ is not None,
        "validation": classifier.selected_,
    }
