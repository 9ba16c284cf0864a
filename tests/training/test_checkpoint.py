"""Checkpoints: a process that is killed while writing leaves the previous file, and the fit resumes from it."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
import torch

from ccmn.losses import HammingLoss
from ccmn.training import KeepLast, Objective, Rows, StackedAdam, StackedLinear, train
from ccmn.training.batches import Features
from ccmn.training.checkpoint import Checkpoint

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
