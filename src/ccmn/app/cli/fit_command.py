"""``ccmn fit``: train a classifier on a file or on a folder of shards, in one process or under torchrun."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.app.cli.noise_commands import check_noise, read_noise_option
from ccmn.app.cli.options import (
    EXIT_INTERRUPTED,
    NOISE_TYPES,
    Candidates,
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
    Source,
    Tags,
    Text,
    Trusted,
    Votes,
    all_mistakes,
    check_device,
    check_inputs,
    check_learning_rates,
    check_output,
    check_source,
    label_frame,
    print_next,
    read_labels,
    shell_command,
    unused_name,
)
from ccmn.app.cli.output import print_json
from ccmn.app.cli.predict_command import store_columns

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.columns import Columns
    from ccmn.training.distributed import ProcessGroup

PROCESS_GROUP_TIMEOUT = timedelta(minutes=10)
"""A rank that waits longer than this for the others fails; torchrun can then restart all ranks."""
METHODS = ("corrected", "hamming", "ranking")
NETWORK_OPTIONS = ("lr", "epochs", "device", "validation", "checkpoint")
"""Options of the methods that train a network."""

ModelFile = Annotated[Path, typer.Option("--out", metavar="MODEL", help="File for the model.", show_default=False)]
Method = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="corrected: logistic regression and random forest with corrected probabilities, for up to about 1,000 "
        "labels. hamming, ranking: a linear model that minimizes the unbiased Hamming or ranking loss of the paper.",
    ),
]
LearningRates = Annotated[
    list[float] | None,
    typer.Option(
        metavar="X", callback=check_learning_rates, help="Learning rate; repeat the option to select from several."
    ),
]
Epochs = Annotated[int | None, typer.Option(metavar="N", min=1, help="Maximum number of epochs.")]
Validation = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Validation set for model selection (default: a part of DATA).")
]
Device = Annotated[str | None, typer.Option(metavar="NAME", callback=check_device, help="auto | cpu | cuda | cuda:N.")]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="FILE", help="Checkpoint to write and to resume from; deleted when MODEL is saved."
    ),
]


def fit(
    context: typer.Context,
    source: Data,
    out: ModelFile,
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    text: Text = None,
    image: Image = None,
    row_id: RowId = None,
    ignore: Ignore = None,
    votes: Votes = None,
    items: Items = None,
    trusted: Trusted = None,
    candidates: Candidates = False,
    noise: Noise = "both",
    method: Method = "corrected",
    lr: LearningRates = None,
    epochs: Epochs = None,
    validation: Validation = None,
    device: Device = None,
    checkpoint: CheckpointFile = None,
    random_state: RandomState = 0,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a classifier on noisy labels and save it.

    Without declared errors, --noise both estimates how many labels are missing and how many were added by mistake;
    --noise none trains without correction. DATA may be a folder of Parquet files that does not fit in memory. With
    --votes, the model is trained on the probabilities of the true labels given the votes. Distributed training uses
    torchrun. Ctrl-C exits with code 130; the methods hamming and ranking then save the best model so far.

    Examples: ccmn fit train.csv --labels 'label_*' --noise rates.json --out model.ccmn, or
    torchrun --nproc-per-node 2 -m ccmn fit shards --method ranking --labels 'label_*' --out model.ccmn
    """
    network = {name: context.params[name] for name in NETWORK_OPTIONS if context.params[name] not in (None, (), [])}
    with all_mistakes() as check:
        file = check(check_source, source, labels, tags, sep, text, image, row_id, ignore, votes, items, data_dir)
        check(check_noise, noise, words=(*NOISE_TYPES, "none"))
        check(_check_method, method, network, any(Path(source).glob("*.parquet")))
        check(check_inputs, trusted, validation)
        check(check_output, out, force, folder=True)
    from ccmn.app.classifiers import make_classifier
    from ccmn.app.report.console import fit_summary
    from ccmn.estimation import NoiseRates

    data: _File | _Shards
    if Path(source).is_dir():
        if any((tags, text, image, row_id, ignore, votes, trusted, candidates)):
            raise typer.BadParameter("Options other than --labels that select columns or rows require a file as DATA")
        data = _Shards(source, labels)
    else:
        data = _File(file, candidates, trusted)
    with _process_group(device) as (group, local_device), _recorded_interrupts() as interrupts:
        columns = data.columns
        rates = read_noise_option(noise, columns.label_names, columns.n_labels, words=(*NOISE_TYPES, "none"))
        settings = {name: value for name, value in network.items() if name in ("lr", "epochs")}
        if local_device is not None:
            settings["device"] = local_device
        classifier = make_classifier(method, rates, random_state, verbose=1, **settings)
        held_out = None if validation is None else data.read_validation(validation)
        data.fit(classifier, held_out, checkpoint)
        if isinstance(rates, NoiseRates):
            classifier.rates_ = rates
        if group.is_main:
            store_columns(classifier, columns)
            classifier.save(out)
    if group.is_main:
        result = {
            **{"model": str(out), "n": data.n, "d": classifier.n_features_in_, "q": columns.n_labels},
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


def _check_method(method: str, network: dict[str, Any], shards: bool) -> None:
    """Reject an unknown method, and options that it does not have."""
    if method not in METHODS:
        raise typer.BadParameter(f"--method must be {', '.join(METHODS)}; got {method!r}")
    if method == "corrected" and (network or shards):
        unused = ", ".join(f"--{name}" for name in network) or "A folder of Parquet files"
        raise typer.BadParameter(f"{unused} requires --method hamming or --method ranking")


class _File:
    """Training data in one file, or a named dataset."""

    def __init__(self, source: Source, candidates: bool, trusted: Path | None) -> None:
        from ccmn.data.trusted_files import read_trusted

        self.columns, self._data = source.read()
        source.require_features(self._data)
        self._verified = read_trusted(trusted, self._data, source.roles.id)
        self._candidates, self._data_dir, self.n = candidates, source.data_dir, self._data.n

    def read_validation(self, source: Path) -> tuple[Any, Any]:
        """Return the features and labels of the validation set."""
        rows = self.columns.read_labeled(source, data_dir=self._data_dir)
        return rows.X, _labels(rows, self._candidates)

    def fit(self, classifier: Any, held_out: Any, checkpoint: Path | None) -> None:
        """Train the classifier."""
        data = self._data
        Y = _labels(data, self._candidates) if data.votes is None else data.votes
        verified = None if self._verified is None else self._verified[:2]
        given = {"validation": held_out, "checkpoint": checkpoint, "trusted": verified}
        classifier.fit(data.X, Y, **{name: value for name, value in given.items() if value is not None})
        if self.columns.label_names is not None:
            classifier.label_names_ = tuple(self.columns.label_names)


def _labels(data: MultiLabelData, candidates: bool) -> Any:
    """Return a large sparse label matrix as it is and any other one as a DataFrame with label names."""
    from ccmn._containers import is_sparse
    from ccmn.models import targets

    many = is_sparse(data.Y) and data.n * data.q > targets.MIN_SPARSE_ENTRIES
    return data.Y if many and not candidates else label_frame(data, candidates)


class _Shards:
    """Training data in a folder of Parquet files."""

    def __init__(self, source: str, labels: str | None) -> None:
        from ccmn.data.columns import Columns
        from ccmn.data.shards import ShardedData

        self._data = data = ShardedData(source, read_labels(labels))
        self.columns: Columns = Columns(data.d, data.q, data.feature_names, data.label_names)
        self.n = data.n

    def read_validation(self, source: Path) -> tuple[Any, Any]:
        """Return the features and labels of the validation set."""
        import pandas as pd

        rows, names = self.columns.read_labeled(source), self.columns.feature_names
        return pd.DataFrame(rows.X, columns=None if names is None else list(names)), label_frame(rows, False)

    def fit(self, classifier: Any, held_out: Any, checkpoint: Path | None) -> None:
        """Train the classifier on the stream of shards."""
        classifier.fit(self._data, validation=held_out, checkpoint=checkpoint)
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
