"""Failures of files and of the machine are reported in one line that names the file."""

import errno
import os
import re
import signal
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from ccmn.data import read_file, write_file
from ccmn.models import load_model
from ccmn.training.selection import ValidationCriterion

FIT = ("fit", "task.npz", "--noise", "none", "--method", "hamming", "--lr", 0.05)


@pytest.mark.parametrize("old", [True, False], ids=["old files", "no files"])
@pytest.mark.parametrize("fails", ["new.npz", "new.rates.json"])
def test_inject_writes_both_files_or_none(run, files, monkeypatch, old, fails):
    command = ("noise", "inject", "task.npz", "--force", "--out", "new.npz", "--rho-neg")
    if old:
        run(*command, 0.1)
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    sync = os.fsync

    def fsync(descriptor):
        if f".{fails}." in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        result = run(*command, 0.5, code=1)
    assert fails in result.stderr.splitlines()[-1]
    assert "No space left" in result.stderr
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before
    run(*command, 0.5)
    assert {path.name for path in files.iterdir()} == {*before, "new.npz", "new.rates.json"}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 3.41 GiB for an array with shape (21519, 21519)"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore details."),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
    ids=["python", "numpy", "torch", "cuda", "loader"],
)
def test_not_enough_memory(rejected, files, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("ccmn.models.CCMNClassifier.fit", fail)
    line = rejected(*FIT, "--out", "model.ccmn")
    assert "not enough memory for task.npz" in line
    assert line.count("\n") == 1


def test_control_characters_in_names_do_not_reach_the_terminal(run, rejected, task, files):
    names = ["\x1b]0;title\x07", "\x1b[2J", "[/]\u202e"]
    write_file(replace(task, label_names=names), files / "[red].npz")
    for command in (("noise", "estimate", "[red].npz"), ("audit", "[red].npz"), ("data", "info", "[red].npz")):
        result = run(*command)
        assert "\x1b" not in result.output
        assert "\x07" not in result.output
        assert "\u202e" not in result.output
        assert "[/]" in result.stdout or "[red]" in result.stdout
    assert "\x1b" not in rejected("fit", "[red].npz", "--labels", "\x1b[2J", "--out", "model.ccmn")


def test_damaged_stores_are_named(rejected, files):
    (files / "store").mkdir()
    assert "store is a folder" in rejected("reproduce", "table1", "--small", "--store", "store")
    (files / "results.db").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 20)
    assert "results.db" in rejected("report", "results.db")
    assert "results.db" in rejected("reproduce", "table1", "--small", "--store", "results.db")
    (files / "empty.db").touch()
    assert "empty.db contains no results" in rejected("report", "empty.db")
    for name in ("folder-review", "damaged-review"):
        decisions = files / name / "decisions.db"
        decisions.parent.mkdir()
        decisions.mkdir() if name == "folder-review" else decisions.write_bytes(b"no database" * 100)
        assert "decisions.db" in rejected("review", "task.npz", "--out", name)


def test_interrupted_fit_saves_the_best_model_and_exits_with_130(run, files, monkeypatch):
    """The checkpoint is kept, and the same command resumes from it."""
    arguments = (*FIT, "--epochs", 1_000_000, "--checkpoint", "state", "--out", "model.ccmn")
    criterion = ValidationCriterion.__call__
    for options, epochs in (((), 20), (("--force",), 40)):
        left = iter(range(epochs))

        def interrupted(*given, left=left):
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does
            return criterion(*given)

        monkeypatch.setattr(ValidationCriterion, "__call__", interrupted)
        result = run(*arguments, *options, code=130)
        assert "interrupted; model.ccmn is the best model so far; repeat the command with --force" in result.stderr
        assert "saved to model.ccmn" in result.stdout
        assert (files / "state").exists()
    assert load_model("model.ccmn").selected_["epoch"] >= 1


def test_verified_rows_in_a_damaged_file(files, rejected, monkeypatch):
    verified = {"rows": [0, 2], "Y": np.eye(2, 3, dtype=np.uint8), "random": [True, False]}
    np.savez("trusted.npz", **verified, label_names=read_file("task.npz").label_names)
    content = (files / "trusted.npz").read_bytes()
    arguments = ("noise", "estimate", "task.npz", "--trusted", "trusted.npz")
    for damaged in (content[:60], content[:200] + bytes(8) + content[208:], b""):
        (files / "trusted.npz").write_bytes(damaged)
        assert "trusted.npz is not a complete NPZ file" in rejected(*arguments)
    with zipfile.ZipFile("trusted.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("Y.npy", "w") as member:
        np.lib.format.write_array(member, np.zeros((50_000, 10)))
    monkeypatch.setenv("CCMN_MAX_BYTES", "1000000")
    assert re.search(r"trusted.npz: .*more than the limit of 1000000", rejected(*arguments))
    (files / "trusted.csv").write_text("row,sea\n")
    assert "trusted.csv" in rejected(*arguments[:-1], "trusted.csv")
