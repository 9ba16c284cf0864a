"""Checkpoints: a process that is killed while writing leaves the previous file, and the fit resumes from it."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ccmn.losses import HammingLoss
from ccmn.training.batches import Features, Rows
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.loop import Objective, train
from ccmn.training.networks import StackedLinear, UserNetwork
from ccmn.training.optimizer import StackedAdam
from ccmn.training.selection import KeepBest, KeepLast

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = torch.from_numpy((X[:, :2] > 0).astype(np.float32))


def fit(checkpoint=None, epochs=6):
    """Return weights and losses of a small training."""
    network = StackedLinear(3, 2, [[0]])
    optimizer = StackedAdam(network.parameters, torch.full((1, 1), 0.1), torch.zeros(1, 1))
    rows = Rows([np.arange(40)], 10, [0])
    objective = Objective.of(HammingLoss("logistic"))
    result = train(
        network, objective, Features(X), Y, rows, optimizer, KeepLast(), epochs=epochs, checkpoint=checkpoint
    )
    return network.parameters[0].values.detach().clone(), torch.stack(result.losses)


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("number", [1, 3])
def test_killed_while_writing(tmp_path, monkeypatch, step, number):
    """The process is killed before the file is complete or renamed, with and without a previous file."""
    checkpoint, calls, real = Checkpoint(tmp_path / "state", "a fit", every=1), [], getattr(os, step)

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) == number:
            raise SystemExit("killed")
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        with pytest.raises(SystemExit):
            fit(checkpoint)
    assert (tmp_path / "state").exists() == (number > 1)
    (tmp_path / ".state.0123abcd").write_bytes(b"half")
    for ours, uninterrupted in zip(fit(checkpoint), fit()):
        assert torch.equal(ours, uninterrupted)
    checkpoint.remove()
    assert not any(tmp_path.iterdir())


def test_damaged_or_foreign_file_is_rejected(tmp_path):
    checkpoint = Checkpoint(tmp_path / "state", "a fit", every=1)
    fit(checkpoint, epochs=1)
    with pytest.raises(ValueError, match="a different fit"):
        fit(Checkpoint(tmp_path / "state", "another", every=1))
    content = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"is damaged.*delete it"):
        fit(checkpoint)


def test_only_rank_0_writes(tmp_path):
    fit(Checkpoint(tmp_path / "state", "a fit", every=1, is_main=False), epochs=2)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_full_or_read_only_disk_names_the_file_and_keeps_the_previous_one(tmp_path, monkeypatch, number):
    checkpoint = Checkpoint(tmp_path / "state", "a fit", every=1)
    fit(checkpoint, epochs=1)
    before = (tmp_path / "state").read_bytes()

    def fails(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match=f"{os.strerror(number)}.*state"):
        fit(checkpoint)
    assert (tmp_path / "state").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


class Dropped(torch.nn.Module):
    """Network with dropout and a running mean that is a new tensor in every step."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(n_features, n_outputs), torch.nn.Dropout(0.5)
        self.register_buffer("mean", torch.zeros(n_features))

    def forward(self, features):
        if self.training:
            self.mean = 0.9 * self.mean + features.mean(0).detach()
        return self.linear(self.dropout(features - self.mean))


def fit_module(checkpoint=None, epochs=6, selection=None, n_outputs=2):
    """Return the network and the number of epochs of a small training with dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = UserNetwork(Dropped(3, n_outputs))
        optimizer = StackedAdam(network.parameters, torch.full((1, 1), 0.1), torch.zeros(1, 1))
        objective, rows = Objective.of(HammingLoss("logistic")), Rows([np.arange(40)], 10, [0])
        selection = KeepLast() if selection is None else selection
        given = (objective, Features(X), Y, rows, optimizer, selection)
        result = train(network, *given, epochs=epochs, checkpoint=checkpoint)
    return network, len(result.losses)


def test_dropout_and_replaced_buffers_resume(tmp_path):
    fit_module(Checkpoint(tmp_path / "state", "a fit", every=2), epochs=4)
    resumed, _ = fit_module(Checkpoint(tmp_path / "state", "a fit", every=2))
    uninterrupted, _ = fit_module()
    for name, value in uninterrupted.module.state_dict().items():
        assert torch.equal(resumed.module.state_dict()[name], value), name


def test_buffers_of_the_best_epoch_are_loaded():
    """The buffers belong to the same epoch as the weights, also if the module replaces them."""
    values = iter([3.0, 1.0, 2.0, 2.0])
    best, _ = fit_module(epochs=4, selection=KeepBest(lambda network: torch.full((1, 1), next(values))))
    expected, _ = fit_module(epochs=2)
    assert torch.equal(best.module.mean, expected.module.mean)
    assert torch.equal(best.module.linear.weight, expected.module.linear.weight)


def test_resumed_fit_stops_where_the_uninterrupted_one_stopped(tmp_path):
    """A process is killed after the last epoch before its patience ended the training."""

    def selection():
        return KeepBest(lambda network: torch.ones(1, 1), patience=3)

    assert fit_module(selection=selection())[1] == 4
    checkpoint = Checkpoint(tmp_path / "state", "a fit", every=1)
    fit_module(checkpoint, epochs=4, selection=selection())
    assert fit_module(checkpoint, selection=selection())[1] == 4


def test_checkpoint_of_another_network_is_rejected(tmp_path):
    """Functions that create networks count by their name only."""
    checkpoint = Checkpoint(tmp_path / "state", "a fit", every=1)
    fit_module(checkpoint, epochs=1)
    with pytest.raises(ValueError, match="a different network"):
        fit_module(checkpoint, n_outputs=5)


@pytest.mark.parametrize("missing", ["steps", "losses", "first.0"])
def test_incomplete_checkpoint_is_rejected(tmp_path, missing):
    path = tmp_path / "state"
    fit(Checkpoint(path, "a fit", every=1))
    with safe_open(path, "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys() if name != missing}, file.metadata()  # noqa: SIM118
    save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match=r"state is damaged .*delete it"):
        fit(Checkpoint(path, "a fit", every=1))


@pytest.mark.parametrize("epoch", ["", "-1", "4", "1_0", "9" * 400])
def test_wrong_epoch_is_rejected(tmp_path, epoch):
    path = tmp_path / "state"
    fit(Checkpoint(path, "a fit", every=1))
    with safe_open(path, "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    assert metadata["epoch"] == "5"
    save_file(tensors, path, {**metadata, "epoch": epoch})
    with pytest.raises(ValueError, match=r"state is damaged \(expected at least epoch 5.*delete it"):
        fit(Checkpoint(path, "a fit", every=1))


@pytest.mark.parametrize("best", [-2, 6, 2**62])
def test_wrong_best_epoch_is_rejected(tmp_path, best):
    path, selection = tmp_path / "state", {"selection.best_epoch": torch.full((1, 1), best)}
    fit(Checkpoint(path, "a fit", every=1))
    with safe_open(path, "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    save_file(tensors | selection, path, metadata)
    with pytest.raises(ValueError, match=r"state is damaged \(expected a best epoch below 6.*delete it"):
        fit(Checkpoint(path, "a fit", every=1))
