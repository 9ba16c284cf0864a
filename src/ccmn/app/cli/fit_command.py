"""``ccmn fit``: train a classifier on a file or on a folder of shards, in one process or under torchrun."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from ccmn.app.cli.noise_commands import NOISE_WORDS, read_noise_option
from ccmn.app.cli.options import (
    EXIT_INTERRUPTED,
    Candidates,
    Data,
    DataDir,
    Force,
    Ignore,
    Image,
    Json,
    Labels,
    RandomState,
    RowId,
    Separator,
    Tags,
    Text,
    Trusted,
    Votes,
    check_choice,
    check_device,
    check_fraction,
    check_learning_rates,
    check_output,
    label_frame,
    print_next,
    read_labels,
    read_roles,
    read_trusted,
    read_vote_columns,
    shell_command,
    unused_name,
)
from ccmn.app.cli.output import CacheFolder, ResultCache, print_json
from ccmn.app.cli.predict_command import store_columns

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.columns import Columns
    from ccmn.data.labeled_table import ColumnRoles
    from ccmn.estimation import NoiseRates
    from ccmn.training.distributed import ProcessGroup

PROCESS_GROUP_TIMEOUT = timedelta(minutes=10)
"""A rank that waits longer than this for the others fails; torchrun can then restart all ranks."""


def _choice(text: str) -> Any:
    """Return an option with a fixed set of values."""
    return typer.Option(metavar="NAME", callback=check_choice, help=f"{text}: {{choices}} (default: {{default}}).")


ModelFile = Annotated[
    Path, typer.Option("--out", metavar="MODEL", help="File or folder for the model.", show_default=False)
]
Noise = Annotated[
    str,
    typer.Option(
        "--noise",
        metavar="NOISE",
        help="Noise of the labels: both | partial (labels only added) | missing (labels only removed) | none, or "
        "a JSON file of noise rates, known or from ccmn noise estimate.",
    ),
]
Loss = Annotated[
    str | None,
    _choice("Unbiased loss of a network; without it, a logistic regression and a forest are corrected for the noise"),
]
Surrogate = Annotated[str | None, _choice("Surrogate loss")]
Correction = Annotated[str | None, _choice("Risk correction, which keeps the estimated risk from becoming negative")]
Model = Annotated[str | None, _choice("Model")]
Threshold = Annotated[str | None, _choice("Decision threshold per label")]
LearningRates = Annotated[
    list[float] | None,
    typer.Option(
        metavar="X",
        callback=check_learning_rates,
        help="Learning rate; repeat the option to select from several (default: {default}).",
    ),
]
Epochs = Annotated[int | None, typer.Option(metavar="N", min=1, help="Maximum number of epochs (default: {default}).")]
BatchSize = Annotated[int | None, typer.Option(metavar="N", min=1, help="Rows per batch (default: {default}).")]
WeightDecay = Annotated[
    float | None, typer.Option(metavar="X", min=0.0, help="L2 regularization (default: {default}).")
]
Scale = Annotated[
    bool, typer.Option("--scale/--no-scale", help="Train on scaled features; predictions take the original ones.")
]
Validation = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Validation set for model selection (default: a part of DATA).")
]
ValidationIsClean = Annotated[
    bool, typer.Option("--validation-is-clean", help="The labels in --validation are noise-free.")
]
ValidationFraction = Annotated[
    float | None,
    typer.Option(metavar="X", callback=check_fraction, help="Fraction of DATA held out (default: {default})."),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", callback=check_device, help="auto | cpu | cuda | ... (default: {default})."),
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="FILE", help="Checkpoint to write and to resume from; deleted when MODEL is saved."
    ),
]
NumberOfLabels = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Number of labels, for a folder whose label column lists label numbers."),
]


def fit(
    context: typer.Context,
    source: Data,
    out: ModelFile,
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    noise: Noise = "both",
    text: Text = None,
    image: Image = None,
    row_id: RowId = None,
    ignore: Ignore = None,
    votes: Votes = None,
    trusted: Trusted = None,
    candidates: Candidates = False,
    loss: Loss = None,
    surrogate: Surrogate = None,
    correction: Correction = None,
    model: Model = None,
    lr: LearningRates = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    weight_decay: WeightDecay = None,
    scale: Scale = True,
    threshold: Threshold = None,
    validation: Validation = None,
    validation_is_clean: ValidationIsClean = False,
    validation_fraction: ValidationFraction = None,
    device: Device = None,
    random_state: RandomState = 0,
    checkpoint: CheckpointFile = None,
    n_labels: NumberOfLabels = None,
    data_dir: DataDir = None,
    cache: CacheFolder = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a classifier on noisy labels and save it.

    DATA may be a folder of Parquet files that does not fit in memory. With --votes, the model is trained on the
    probabilities of the true labels given the votes. Distributed training uses torchrun. Ctrl-C exits with
    code 130. Training with Adam saves the best model so far, and keeps a checkpoint to resume from.

    Examples: ccmn fit train.csv --labels 'label_*' --noise rates.json --out model.ccmn, or
    torchrun --nproc-per-node 2 -m ccmn fit shards --labels 'label_*' --noise rates.json --out model.ccmn
    """
    from ccmn.app.report.console import fit_summary
    from ccmn.estimation import NoiseRates
    from ccmn.models import CCMNClassifier, CorrectedClassifier

    check_output(out, force, folder=True)
    if validation_is_clean and validation is None:
        raise typer.BadParameter("--validation-is-clean requires --validation")
    # Options with the name of a classifier parameter are its parameters; options that are not given keep its defaults.
    is_network = loss is not None or Path(source).is_dir()
    make: Any = CCMNClassifier if is_network else CorrectedClassifier
    given = {name for name, value in context.params.items() if value is not False and value not in (None, ())}
    settings = {name: context.params[name] for name in make().get_params().keys() & given}
    if is_network:
        settings["scale"] = scale
    networks = {"validation", "checkpoint", *CCMNClassifier().get_params()} - {*CorrectedClassifier().get_params()}
    unused = [
        f"--{name.replace('_', '-')}" for name in context.params if name in networks & given - {"scale", "device"}
    ]
    if unused and not is_network:
        raise typer.BadParameter(f"{', '.join(unused)} requires --loss hamming or --loss ranking")
    if threshold is not None and is_network:
        raise typer.BadParameter("--threshold requires a fit without --loss")
    if Path(source).is_dir():
        if any((tags, text, image, row_id, ignore, votes, trusted, candidates)):
            raise typer.BadParameter("Options other than --labels that select columns or rows require a file as DATA")
        data: _TrainingData = _Shards(source, labels, n_labels)
    elif n_labels is not None:
        raise typer.BadParameter("--n-labels requires a folder of Parquet files as DATA")
    else:
        roles = read_roles(labels, tags, sep, text, image, row_id, ignore)
        results = None if cache is None else ResultCache(cache, random_state)
        data = _File(source, roles, candidates, data_dir, read_vote_columns(votes), trusted, results)
    with _process_group(device) as (group, local_device), _recorded_interrupts() as interrupts:
        if local_device is not None and is_network:
            settings["device"] = local_device
        names, q = data.columns.label_names, data.columns.n_labels
        rates = read_noise_option(noise, names, q, words=(*NOISE_WORDS, "none"))
        estimated = rates if isinstance(rates, NoiseRates) else None
        used = rates.shrunk_noise if isinstance(rates, NoiseRates) else None if rates == "none" else rates
        classifier = make(**{**settings, "noise": used}, verbose=1)
        held_out = None if validation is None else data.read_validation(validation, validation_is_clean)
        data.fit(classifier, held_out, validation_is_clean, checkpoint)
        if estimated is not None:
            classifier.rates_ = estimated
        if group.is_main:
            store_columns(classifier, data.columns)
            classifier.save(out)
    if group.is_main:
        result = {
            **{"model": str(out), "n": data.n, "d": classifier.n_features_in_, "q": data.columns.n_labels},
            "noise": classifier.noise_.to_dict(),
            "noise_is_estimated": classifier.rates_ is not None or classifier.inferred_ is not None,
            "validation": getattr(classifier, "selected_", None),
        }
        print_json(result) if as_json else typer.echo(fit_summary(result))
        if not as_json:
            command = shell_command("predict", out, "NEW", out=unused_name("predictions.csv"))
            print_next(command, "NEW: file with the rows to predict")
    if interrupts:
        if group.is_main:
            resume = "" if checkpoint is None else "; repeat the command with --force to resume from the checkpoint"
            typer.echo(f"ccmn: training was interrupted; {out} is the best model so far{resume}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED)


class _TrainingData(Protocol):
    """Training data: a file or a folder of shards."""

    columns: Columns
    n: int

    def read_validation(self, source: Path, clean: bool) -> tuple[Any, Any]: ...
    def fit(self, classifier: Any, held_out: Any, clean: bool, checkpoint: Path | None) -> None: ...


class _File:
    """Training data in one file, or a named dataset."""

    def __init__(
        self,
        source: str,
        roles: ColumnRoles,
        candidates: bool,
        data_dir: Path | None,
        votes: list[str] | None,
        trusted: Path | None,
        results: ResultCache | None,
    ) -> None:
        from ccmn.data.columns import Columns

        self.columns, self._data = Columns.from_training_data(source, roles=roles, data_dir=data_dir, votes=votes)
        self._verified = read_trusted(trusted, self._data, roles.id)
        self._candidates, self._data_dir, self.n = candidates, data_dir, self._data.n
        self._results = results

    def read_validation(self, source: Path, clean: bool) -> tuple[Any, Any]:
        """Return the features and labels of the validation set."""
        rows = self.columns.read_labeled(source, data_dir=self._data_dir)
        return rows.X, _labels(rows, self._candidates and not clean)

    def fit(self, classifier: Any, held_out: Any, clean: bool, checkpoint: Path | None) -> None:
        """Train the classifier."""
        from ccmn.models import CCMNClassifier

        data = self._data
        X, Y = data.X, _labels(data, self._candidates) if data.votes is None else data.votes
        verified = None if self._verified is None else self._verified[:2]
        rates, requested = self._stored_rates(classifier, Y, verified), classifier.noise
        if rates is not None:
            classifier.noise = rates.shrunk_noise
        if isinstance(classifier, CCMNClassifier):
            classifier.fit(
                X, Y, validation=held_out, validation_is_clean=clean, checkpoint=checkpoint, trusted=verified
            )
        else:
            classifier.fit(X, Y, trusted=verified)
        if rates is not None:
            classifier.noise, classifier.rates_ = requested, rates
        if self.columns.label_names is not None:
            classifier.label_names_ = tuple(self.columns.label_names)

    def _stored_rates(self, classifier: Any, Y: Any, verified: Any) -> NoiseRates | None:
        """Return the rates that the classifier would estimate, from the cache if it has them; None without a cache."""
        from ccmn.models.training_data import MIN_SAMPLES_FOR_ESTIMATION

        if self._results is None or not isinstance(classifier.noise, str) or self.n < MIN_SAMPLES_FOR_ESTIMATION:
            return None
        if self._data.votes is not None or not hasattr(Y, "columns"):
            return None
        return self._results.rates(self._data.X, Y, classifier.noise, verified)


def _labels(data: MultiLabelData, candidates: bool) -> Any:
    """Return a large sparse label matrix as it is and any other one as a DataFrame with label names."""
    from ccmn._containers import is_sparse
    from ccmn.models import targets

    many = is_sparse(data.Y) and data.n * data.q > targets.MIN_SPARSE_ENTRIES
    return data.Y if many and not candidates else label_frame(data, candidates)


class _Shards:
    """Training data in a folder of Parquet files."""

    def __init__(self, source: str, labels: str | None, n_labels: int | None) -> None:
        from ccmn.data.columns import Columns
        from ccmn.data.shards import ShardedData

        self._data = data = ShardedData(source, read_labels(labels), n_labels=n_labels)
        self.columns = Columns(data.d, data.q, data.feature_names, data.label_names)
        self.n = data.n

    def read_validation(self, source: Path, clean: bool) -> tuple[Any, Any]:
        """Return the features and labels of the validation set."""
        import pandas as pd

        rows, names = self.columns.read_labeled(source), self.columns.feature_names
        return pd.DataFrame(rows.X, columns=None if names is None else list(names)), label_frame(rows, False)

    def fit(self, classifier: Any, held_out: Any, clean: bool, checkpoint: Path | None) -> None:
        """Train the classifier on the stream of shards."""
        classifier.fit(self._data, validation=held_out, validation_is_clean=clean, checkpoint=checkpoint)
        # The commands select columns by name and pass arrays to the model.
        if self._data.feature_names is not None:
            del classifier.feature_names_in_


@contextmanager
def _recorded_interrupts() -> Iterator[list[int]]:
    """Record the interrupts that the training handles, in addition to the default behavior."""
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        received.append(number)
        signal.default_int_handler(number, frame)

    try:
        previous = signal.signal(signal.SIGINT, handle)
    except ValueError:  # only the main thread can set a handler, and only the main thread is interrupted
        yield received
        return
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _process_group(device: str | None) -> Iterator[tuple[ProcessGroup, str | None]]:
    """Join the processes that torchrun started and yield them with the device of this rank."""
    from ccmn.training.distributed import ProcessGroup

    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ProcessGroup(), device
        return
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available() if device in (None, "auto") else str(device).startswith("cuda")
    if cuda:
        device = _local_gpu(torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=PROCESS_GROUP_TIMEOUT)
    try:
        yield ProcessGroup.current(), device
    finally:
        dist.destroy_process_group()


def _local_gpu(count: int) -> str:
    """Return the GPU of this rank; NCCL requires one for each process of the machine."""
    rank, processes = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if processes > count:
        raise ValueError(
            f"torchrun started {processes} processes on this machine, which has {count} GPUs: "
            f"use --nproc-per-node {count} or --device cpu"
        )
    return f"cuda:{rank}"
