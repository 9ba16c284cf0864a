"""``torchrun -m ccmn fit``: equal results with one and two processes, and restarts after a kill."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch.distributed

import ccmn
from ccmn.data import MultiLabelData, write_file
from ccmn.models import load_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without torch.distributed"),
]

FIT = ["--method", "ranking", "--noise", "rates.json", "--lr", "0.05", "--random-state", "3"]

ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(Path(ccmn.__file__).parents[1]),  # the same package from another working directory
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a data file and a file of noise rates."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(430, 5)).astype(np.float32)
    Y = (X[:, :3] + rng.normal(size=(430, 3)) > 0.3).astype(np.uint8)
    write_file(MultiLabelData(X=X, Y=Y), tmp_path / "task.npz")
    rates = {"kind": "class_conditional", "rho_pos": [0.1, 0.2, 0.0], "rho_neg": [0.1, 0.0, 0.2]}
    (tmp_path / "rates.json").write_text(json.dumps(rates))
    return tmp_path


def alone(folder, *arguments):
    command = [sys.executable, "-m", "ccmn", "fit", *arguments]
    subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True, timeout=120)


def torchrun(folder, *arguments, restarts=0):
    """Start two ranks. Every restart needs its own rendezvous store; otherwise it finds addresses of killed ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", str(restarts)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test"]
    command += ["--local-addr", "127.0.0.1", "-m", "ccmn", "fit", *arguments]
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process):
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    return out


def same_curve(first, second):
    histories = [load_model(model).history_ for model in (first, second)]
    assert len(histories[0]) == len(histories[1])
    for column in histories[0]:
        np.testing.assert_allclose(histories[1][column], histories[0][column], rtol=1e-5, atol=1e-5)


def test_two_processes_match_one(folder):
    """The losses of every epoch are equal, also with a smaller last batch."""
    alone(folder, "task.npz", *FIT, "--epochs", "8", "--out", "one.ccmn")
    process = torchrun(folder, "task.npz", *FIT, "--epochs", "8", "--out", "two.ccmn", "--json")
    printed = finished(process)
    assert len(printed.strip().splitlines()) == 1  # only rank 0 prints
    same_curve(folder / "one.ccmn", folder / "two.ccmn")


def children(pid):
    """Return the ids of the child processes of a process."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children") as file:
            found += [int(child) for child in file.read().split()]
    return found


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="finds processes through /proc")


def wait_for_checkpoint(process, folder):
    deadline = time.monotonic() + 100
    while not (folder / "state").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


@needs_proc
def test_restart_after_a_kill(folder):
    arguments = ["task.npz", *FIT, "--epochs", "250"]
    process = torchrun(folder, *arguments, "--checkpoint", "state", "--out", "two.ccmn", restarts=1)
    wait_for_checkpoint(process, folder)
    os.kill(children(process.pid)[-1], signal.SIGKILL)
    finished(process)
    alone(folder, *arguments, "--out", "one.ccmn")
    same_curve(folder / "one.ccmn", folder / "two.ccmn")
    assert not (folder / "state").exists()
