"""Full and read-only disks and exhausted memory: one line that names the file, old files intact, and a later success.

Commands write to a small file system in memory, in a mount namespace of the child process. This requires root; without
it the size of files is limited instead. Memory is limited with ``RLIMIT_AS``. Faults of distributed runs (torchrun,
Ray) are covered by the tests of these engines, which two of the campaigns start.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from robustness.campaign import Campaign, Failure

ROOT = Path(__file__).parents[2]
_NEW_NAMESPACE, _PRIVATE, _REMOUNT, _READ_ONLY, _DETACH = 0x20000, 0x44000, 0x20, 0x1, 0x2

COMMANDS = (
    "predict model.ccmn task.csv --out OUT/new.csv",
    "evaluate model.ccmn task.csv --report OUT/new.html",
    "data convert task.npz --out OUT/new.csv",
    "data convert task.csv --labels -3 --out OUT/new.npz",
    "noise estimate task.npz --out OUT/new.json",
    "noise inject task.npz --rho-neg 0.1 --out OUT/new.npz",
    "audit task.npz --out OUT/new.csv",
    "fit task.npz --noise none --out OUT/new.ccmn",
    "fit task.npz --noise none --method hamming --epochs 2 --lr 0.05 --out OUT/new",
    "fit task.npz --noise none --method hamming --epochs 20 --lr 0.05 --checkpoint OUT/new.state --out model2.ccmn",
    "report results.db --out OUT/new.html",
    "report results.db --csv OUT/new.csv",
    "reproduce table1 --small --methods unbiased-hamming-square --store OUT/new.db",
)


@cache
def files() -> dict[str, bytes]:
    """Return the input files of the commands."""
    import tempfile

    from ccmn.data import MultiLabelData, write_file
    from robustness.malformed import _store

    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    data = MultiLabelData(
        X, (X[:, :3] > 0.3).astype(np.uint8), feature_names=list("abcd"), label_names=["sea", "sky", "sun"]
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_file(data, folder / "task.csv")
        write_file(data, folder / "task.npz")
        run(COMMANDS[7].replace("OUT/new", "model").split(), folder)
        contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {**contents, "results.db": _store("results")}


def run(arguments: list[str], folder: Path) -> tuple[int, str]:
    """Run a command in a folder; return the exit code and the last line on stderr. A traceback fails."""
    from typer.testing import CliRunner

    from ccmn.app.cli.app import app

    before = os.getcwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(app, arguments, prog_name="ccmn")
    finally:
        os.chdir(before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        trace = "".join(traceback.format_exception(result.exception, limit=-6))
        raise Failure("traceback", f"{' '.join(arguments)}: {trace}")
    return result.exit_code, (result.stderr.strip().splitlines() or [""])[-1]


class Disk:
    """Folder whose free space can be set: a file system in memory, or a limit on the size of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.real = os.getuid() == 0 and not self._libc.unshare(_NEW_NAMESPACE)
        self.real = (
            self.real and not self._libc.mount(None, b"/", None, _PRIVATE, None) and not self._mount(0, b"size=16m")
        )

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        if self.real:
            self._libc.umount2(bytes(self.folder), _DETACH)

    def _mount(self, flags: int, options: bytes) -> int:
        return int(self._libc.mount(b"tmpfs", bytes(self.folder), b"tmpfs", flags, options))

    @contextmanager
    def fault(self, free: int | None) -> Iterator[str]:
        """Leave ``free`` bytes, or make the disk read-only; yield what happens to a file."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        junk = self.folder / "junk"
        if not self.real:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (free or 0, limits[1]))
        elif free is None:
            self._mount(_REMOUNT | _READ_ONLY, b"size=16m")
        else:
            status = os.statvfs(self.folder)
            junk.write_bytes(bytes(max(0, status.f_bavail * status.f_bsize - free)))
        try:
            yield "read-only disk" if free is None and self.real else "full disk"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            if self.real:
                self._mount(_REMOUNT, b"size=16m")
            junk.unlink(missing_ok=True)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder, without the files that SQLite shares between processes."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def disk(rng: np.random.Generator, folder: Path) -> str:
    """Run a command while the disk is full or read-only, then again without the fault."""
    for name, content in files().items():
        (folder / name).write_bytes(content)
    command = COMMANDS[rng.integers(len(COMMANDS))].split()
    force = [] if command[0] == "reproduce" else ["--force"]
    with Disk(folder / "OUT") as place:
        if force and rng.random() < 0.5:
            _succeed([*command, *force], folder)
        old = snapshot(place.folder)
        free = None if rng.random() < 0.3 else int(rng.choice([0, 4096, 8192])) + 4096 * int(rng.integers(0, 8))
        with place.fault(free) as kind:
            code, line = run([*command, *force], folder)
            now = {name: content for name, content in snapshot(place.folder).items() if name != "junk"}
        if code == 0:
            return f"{kind}: enough space"
        if code != 1 or not line.startswith("ccmn: ") or "new" not in line:
            raise Failure("unclear", f"{' '.join(command)}: code {code}: {line}")
        # A store keeps the results from before the fault, and a checkpoint the last epoch that was saved.
        if "--checkpoint" in command:
            now.pop("new.state", None)
        if force and now != old:
            raise Failure("damaged or leftovers", f"{' '.join(command)}: {sorted(old)} became {sorted(now)}")
        _succeed([*command, *force], folder)
    return kind


def _succeed(command: list[str], folder: Path) -> None:
    code, line = run(command, folder)
    if code:
        raise Failure("not resumable", f"{' '.join(command)}: code {code}: {line}")


MEMORY_COMMANDS = (
    "fit large.npz --noise none --method hamming --epochs 1 --lr 0.05 --out model.ccmn",
    "noise estimate large.npz",
    "audit large.npz --out issues.csv",
    "data convert large.npz --out large.csv",
)


@cache
def large_file() -> bytes:
    """Return data whose copies and products take tens of megabytes."""
    import tempfile

    from ccmn.data import MultiLabelData, write_file

    X = np.random.default_rng(0).normal(size=(4000, 500)).astype(np.float32)
    with tempfile.TemporaryDirectory() as place:
        write_file(MultiLabelData(X, (X[:, :20] > 0).astype(np.uint8)), Path(place) / "large.npz")
        return (Path(place) / "large.npz").read_bytes()


def memory(rng: np.random.Generator, folder: Path) -> str:
    """Run a command with little memory: in this process, or in a new one that is limited from the start."""
    (folder / "large.npz").write_bytes(large_file())
    command = MEMORY_COMMANDS[rng.integers(len(MEMORY_COMMANDS))].split()
    started = rng.random() < 0.5
    code, line = _run_limited(rng, command, folder) if started else _run_with_little_left(rng, command, folder)
    kind = "memory of a new process" if started else "memory"
    if code == 0:
        return f"{kind}: enough"
    if code != 1 or not line.startswith("ccmn: ") or "not enough memory" not in line:
        raise Failure("unclear", f"{' '.join(command)}: code {code}: {line}")
    return f"{kind}: one line"


def _run_limited(rng: np.random.Generator, command: list[str], folder: Path) -> tuple[int, str]:
    """Run a command in a new process whose address space is limited, as by ``ulimit -v``."""
    # About 1.3 GB are needed to start, and about 1.5 GB for the data.
    size = int(rng.choice([rng.integers(60, 1300), rng.integers(1300, 1700)])) * 1_000_000
    done = subprocess.run(
        [sys.executable, "-m", "ccmn", *command],
        cwd=folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith("ccmn: note: ")]
    if done.returncode and len(lines) != 1:
        raise Failure("unclear", f"{' '.join(command)}, {size} bytes: code {done.returncode}: {done.stderr[-1000:]}")
    return done.returncode, lines[-1] if lines else ""


def _run_with_little_left(rng: np.random.Generator, command: list[str], folder: Path) -> tuple[int, str]:
    """Run a command in this process, which has loaded the libraries; up to 40 MB are left."""
    ctypes.CDLL(None).malloc_trim(0)  # memory that the process has freed is not at its disposal
    with open("/proc/self/statm") as stream:
        used = int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + int(rng.integers(1, 40)) * 1_000_000, limits[1]))
    try:
        return run(command, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _prepare_memory() -> None:
    files(), large_file()


def gpu_memory(rng: np.random.Generator, folder: Path) -> str:
    """Train on a GPU whose memory is limited to a few megabytes, in a process of its own; without GPU, simulate it."""
    import torch

    if not torch.cuda.is_available():
        return _simulated_gpu_memory(rng, folder)
    code = (
        "import sys, torch; torch.cuda.set_per_process_memory_fraction(2e-4); from ccmn.app.cli import main; "
        "sys.argv = ['ccmn', *sys.argv[1:]]; main()"
    )
    from ccmn.data import MultiLabelData, write_file

    X = rng.normal(size=(20_000, 500)).astype(np.float32)
    write_file(MultiLabelData(X, (X[:, :20] > 0).astype(np.uint8)), folder / "large.npz")
    options = {"noise": "none", "method": "hamming", "epochs": "2", "lr": "0.05", "device": "cuda", "out": "model.ccmn"}
    command = ["fit", "large.npz", *(word for name, value in options.items() for word in (f"--{name}", value))]
    done = subprocess.run(
        [sys.executable, "-c", code, *command], cwd=folder, capture_output=True, text=True, check=False
    )
    line = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode != 1 or "Traceback" in done.stderr or "not enough memory for large.npz" not in line:
        raise Failure("unclear", f"code {done.returncode}: {done.stderr[-1000:]}")
    return "GPU memory: one line"


def _simulated_gpu_memory(rng: np.random.Generator, folder: Path) -> str:
    """Raise the error of a full GPU in a random training step; the checkpoint and the old model are kept."""
    import torch

    for name, content in files().items():
        (folder / name).write_bytes(content)
    old, grad, steps = (folder / "model.ccmn").read_bytes(), torch.autograd.grad, iter(range(int(rng.integers(9))))

    def full(*arguments: object, **settings: object) -> object:
        if next(steps, None) is None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has no free memory.")
        return grad(*arguments, **settings)

    command = ["fit", "task.npz", "--noise", "none", "--method", "hamming", "--epochs", "20", "--lr", "0.05", "--force"]
    torch.autograd.grad = full
    try:
        code, line = run([*command, "--checkpoint", "state", "--out", "model.ccmn"], folder)
    finally:
        torch.autograd.grad = grad
    if code != 1 or not line.startswith("ccmn: not enough memory for task.npz"):
        raise Failure("unclear", f"code {code}: {line}")
    if (folder / "model.ccmn").read_bytes() != old:
        raise Failure("damaged", "the old model")
    _succeed([*command, "--checkpoint", "state", "--out", "model.ccmn"], folder)
    return "GPU memory: one line (simulated)"


def _tests(*paths: str, **environment: str) -> Callable[[np.random.Generator, Path], str]:
    """Return a case that runs tests which kill processes of a distributed run."""

    def case(rng: np.random.Generator, folder: Path) -> str:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-k",
            "kill or lost_node",
            *paths,
        ]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Failure("failed", done.stdout[-2000:])
        return done.stdout.strip().splitlines()[-1]

    return case


CAMPAIGNS = (
    Campaign("faults", disk, 80, seconds=120, prepare=files),
    Campaign("memory", memory, 20, seconds=120, prepare=_prepare_memory, min_minutes=5),
    Campaign("gpu_memory", gpu_memory, 10, seconds=120, prepare=files),
    Campaign("torchrun", _tests("tests/app/cli/test_distributed_fit.py"), 1, seconds=600, min_minutes=10),
    Campaign("ray", _tests("tests/cluster", CCMN_CLUSTER="1"), 1, seconds=900, min_minutes=10),
)
