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

from ccmn.app.cli import options as opt
from ccmn.app.cli.output import print_json
from ccmn.app.cli.predict_command import store_columns

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.columns import Columns
    from ccmn.training.batches import ProcessGroup

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
    typer.Option(metavar="X", min=1e-12, max=1e6, help="Learning rate; repeat the option to select from several."),
]
Epochs = Annotated[int | None, typer.Option(metavar="N", min=1, help="Maximum number of epochs.")]
Validation = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Validation set for model selection (default: a part of DATA).")
]
Device = Annotated[
    str | None, typer.Option(metavar="NAME", callback=opt.check_device, help="auto | cpu | cuda | cuda:N.")
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="FILE", help="Checkpoint to write and to resume from; deleted when MODEL is saved."
    ),
]


def fit(
    context: typer.Context,
    source: opt.Data,
    out: ModelFile,
    labels: opt.Labels = None,
    tags: opt.Tags = None,
    sep: opt.Separator = ";",
    text: opt.Text = None,
    image: opt.Image = None,
    row_id: opt.RowId = None,
    ignore: opt.Ignore = None,
    votes: opt.Votes = None,
    items: opt.Items = None,
    trusted: opt.Trusted = None,
    noise: opt.Noise = "both",
    method: Method = "corrected",
    lr: LearningRates = None,
    epochs: Epochs = None,
    validation: Validation = None,
    device: Device = None,
    checkpoint: CheckpointFile = None,
    random_state: opt.RandomState = 0,
    data_dir: opt.DataDir = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
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
    words, sharded = (*opt.NOISE_TYPES, "none"), Path(source).is_dir()
    with opt.all_mistakes() as check:
        file = check(opt.check_source, source, context.params)
        check(opt.check_noise, noise, words)
        check(_check_method, method, network, any(Path(source).glob("*.parquet")))
        if sharded and any((tags, text, image, row_id, ignore, votes, trusted)):
            check(opt.reject, "Options other than --labels that select columns or rows require a file as DATA")
        check(opt.check_inputs, trusted, validation)
        check(opt.check_output, out, force, folder=True)
    from ccmn.app.report.tables import fit_summary
    from ccmn.models import CCMNClassifier, CorrectedClassifier

    data, columns, X, Y, given = _read_shards(file) if sharded else _read_file(file, trusted)
    if validation is not None:
        rows = columns.read_labeled(validation, data_dir=data_dir)
        given["validation"] = (_named_features(rows.X, columns) if sharded else rows.X, _labels(rows))
    with _process_group(device) as (group, local_device), _recorded_interrupts() as interrupts:
        rates = None if noise == "none" else opt.read_noise(noise, data)
        settings = {name: value for name, value in network.items() if name in ("lr", "epochs")}
        if local_device is not None:
            settings["device"] = local_device
        classifier: Any
        if method == "corrected":
            classifier = CorrectedClassifier(None, rates, random_state=random_state, verbose=1)
        else:
            classifier = CCMNClassifier(rates, loss=method, random_state=random_state, verbose=1, **settings)
            given["checkpoint"] = checkpoint
        classifier.fit(X, Y, **given)
        if columns.label_names is not None:
            classifier.label_names_ = tuple(columns.label_names)
        if sharded and columns.feature_names is not None:
            del classifier.feature_names_in_  # the commands select columns by name and pass arrays to the model
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
        if as_json:
            print_json(result)
        else:
            typer.echo(fit_summary(result))
            command = opt.shell_command("predict", out, "NEW", out=opt.unused_name("predictions.csv"))
            opt.print_next(command, "NEW: file with the rows to predict")
    if interrupts:
        if group.is_main:
            resume = "" if checkpoint is None else "; repeat the command with --force to resume from the checkpoint"
            typer.echo(f"ccmn: training was interrupted; {out} is the best model so far{resume}", err=True)
        raise typer.Exit(opt.EXIT_INTERRUPTED)


def _check_method(method: str, network: dict[str, Any], shards: bool) -> None:
    """Reject an unknown method, and options that it does not have."""
    if method not in METHODS:
        raise typer.BadParameter(f"--method must be {', '.join(METHODS)}; got {method!r}")
    if method == "corrected" and (network or shards):
        unused = ", ".join(f"--{name}" for name in network) or "A folder of Parquet files"
        raise typer.BadParameter(f"{unused} requires --method hamming or --method ranking")


def _read_file(source: opt.Source, trusted: Path | None) -> tuple[Any, Columns, Any, Any, dict[str, Any]]:
    """Return the data in a file or named dataset, their columns, features, labels, and arguments of fit."""
    from ccmn.data.trusted_files import read_trusted

    columns, data = source.read()
    source.require_features(data)
    verified = read_trusted(trusted, data, source.roles.id)
    given = {} if verified is None else {"trusted": verified[:2]}
    return data, columns, data.X, _labels(data) if data.votes is None else data.votes, given


def _labels(data: MultiLabelData) -> Any:
    """Return a large sparse label matrix as it is and any other one as a DataFrame with label names."""
    from ccmn._containers import is_sparse
    from ccmn.app.issues import named_labels
    from ccmn.models import targets

    return data.Y if is_sparse(data.Y) and data.n * data.q > targets.MIN_SPARSE_ENTRIES else named_labels(data)


def _read_shards(source: opt.Source) -> tuple[Any, Columns, Any, Any, dict[str, Any]]:
    """Return the data in a folder of Parquet files, as :func:`_read_file` does."""
    from ccmn.data.columns import Columns
    from ccmn.data.shards import ShardedData

    data = ShardedData(source.path, source.roles.labels)
    return data, Columns(data.d, data.q, data.feature_names, data.label_names), data, None, {}


def _named_features(X: Any, columns: Columns) -> Any:
    """Return features with their names, as those of shards."""
    import pandas as pd

    return pd.DataFrame(X, columns=None if columns.feature_names is None else list(columns.feature_names))


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
    from ccmn.training.batches import ProcessGroup

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
