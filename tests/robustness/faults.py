"""Full and read-only disks and unusual terminals: one line of error, old files intact, a later success.

Commands write to a small file system in memory, in a mount namespace of the child process. This requires root; without
it the size of files is limited instead.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from robustness.campaign import Campaign, Printed, check_printed, command, expect
from robustness.malformed import results_store
from robustness.processes import task

_NEW_NAMESPACE, _PRIVATE, _REMOUNT, _READ_ONLY, _DETACH = 0x20000, 0x44000, 0x20, 0x1, 0x2
FIT = "fit task.csv --labels -3 --noise none"
COMMANDS = (
    "predict model.ccmn task.csv --out OUT/new.csv",
    "evaluate model.ccmn task.csv --report OUT/new.html",
    "data convert task.csv --labels -3 --out OUT/new.npz",
    "noise estimate task.csv --labels -3 --out OUT/new.json",
    "noise inject task.csv --labels -3 --rho-neg 0.1 --out OUT/new.npz",
    "audit task.csv --labels -3 --report OUT/new.html",
    f"{FIT} --out OUT/new.ccmn",
    f"{FIT} --method hamming --epochs 20 --lr 0.05 --checkpoint OUT/new.state --out model2.ccmn",
    "report results.db --out OUT/new.html",
    "report results.db --csv OUT/new.csv",
    "reproduce table1 --small --methods unbiased-hamming-square --store OUT/new.db",
)


@cache
def files() -> dict[str, bytes]:
    """Return the input files of the commands."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "task.csv").write_bytes(task())
        expect(command(Path(place), f"{FIT} --out model.ccmn").code == 0, "failed", FIT)
        contents = {path.name: path.read_bytes() for path in Path(place).iterdir()}
    return {**contents, "results.db": results_store()}


def write_files(folder: Path) -> None:
    for name, content in files().items():
        (folder / name).write_bytes(content)


class Disk:
    """Folder whose free space can be set: a file system in memory, or a limit on the size of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.real = os.getuid() == 0 and not self._libc.unshare(_NEW_NAMESPACE)
        self.real = self.real and not self._libc.mount(None, b"/", None, _PRIVATE, None) and not self._mount(0)

    def __enter__(self) -> "Disk":
        return self

    def __exit__(self, *_: object) -> None:
        if self.real:
            self._libc.umount2(bytes(self.folder), _DETACH)

    def _mount(self, flags: int) -> int:
        return int(self._libc.mount(b"tmpfs", bytes(self.folder), b"tmpfs", flags, b"size=16m"))

    @contextmanager
    def fault(self, free: int | None) -> Iterator[str]:
        """Leave ``free`` bytes, or make the disk read-only; yield what happens to a file."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        junk = self.folder / "junk"
        if not self.real:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (free or 0, limits[1]))
        elif free is None:
            self._mount(_REMOUNT | _READ_ONLY)
        else:
            status = os.statvfs(self.folder)
            junk.write_bytes(bytes(max(0, status.f_bavail * status.f_bsize - free)))
        try:
            yield "read-only disk" if free is None and self.real else "full disk"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            if self.real:
                self._mount(_REMOUNT)
            junk.unlink(missing_ok=True)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a folder, without the files that SQLite shares between processes."""
    paths = (path for path in folder.iterdir() if path.name != "junk" and not path.name.endswith(("-wal", "-shm")))
    return {path.name: path.read_bytes() for path in paths}


def disk(rng: np.random.Generator, folder: Path) -> str:
    """Run a command while the disk is full or read-only, then again without the fault."""
    write_files(folder)
    line = COMMANDS[rng.integers(len(COMMANDS))]
    stores = line.startswith("reproduce")
    line = line if stores else f"{line} --force"
    with Disk(folder / "OUT") as place:
        if not stores and rng.random() < 0.5:
            _succeed(line, folder)
        old = snapshot(place.folder)
        free = None if rng.random() < 0.3 else 4096 * int(rng.integers(0, 11))
        with place.fault(free) as kind:
            found = command(folder, line)
            now = snapshot(place.folder)
        if found.code == 0:
            return f"{kind}: enough space"
        expect(found.code == 1 and "new" in found.error, "unclear", f"{line}: {found}")
        # A store keeps the results from before the fault, and a checkpoint the last epoch that was saved.
        if "--checkpoint" in line:
            now.pop("new.state", None)
        expect(stores or now == old, "damaged or leftovers", f"{line}: {sorted(old)} became {sorted(now)}")
        _succeed(line, folder)
    return kind


def _succeed(line: str, folder: Path) -> None:
    found = command(folder, line)
    expect(found.code == 0, "not resumable", f"{line}: {found}")


def process(folder: Path, line: str, closed: bool = False, **environment: str) -> tuple:
    """Run a command in a new process: with a closed output, or other variables."""
    started = subprocess.Popen(
        [sys.executable, "-m", "ccmn", *line.split()],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    if closed:
        started.stdout.close()
        started.stdout = None
    out, err = started.communicate()
    if closed and not err:  # a broken pipe may end a command without a message
        return Printed(started.returncode, "", "")
    return check_printed(started.returncode, (out or b"").decode(errors="replace"), err.decode(errors="replace"), line)


READ = ("data list", "predict model.ccmn task.csv", "audit task.csv --labels -3", "report results.db", "--help")


def terminal(rng: np.random.Generator, folder: Path) -> str:
    """Run a command with an ASCII terminal, 20 columns or a broken pipe, or with its input as output."""
    write_files(folder)
    line = READ[rng.integers(len(READ))]
    kind = str(rng.choice(["LANG=C", "COLUMNS=20", "broken pipe", "output = input"]))
    if kind == "output = input":
        line = str(rng.choice(["predict model.ccmn task.csv --out task.csv", f"{FIT} --out task.csv"]))
        code, _, _ = process(folder, line)
        expect(code == 1 and (folder / "task.csv").read_bytes() == task(), "damaged", f"{line}: code {code}")
        return kind
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}
    variables = {"LANG=C": ascii_only, "COLUMNS=20": {"COLUMNS": "20"}}.get(kind, {})
    code, out, error = process(folder, line, closed=kind == "broken pipe", **variables)
    expect(code == 0 or kind == "broken pipe", "failed", f"{kind}: {line}: code {code}: {error}")
    expect(kind != "LANG=C" or out.isascii(), "not ASCII", f"{line}: {out[:300]}")
    return f"{kind}: {'success' if code == 0 else 'one line'}"


CAMPAIGNS = (
    Campaign("faults", disk, 100, seconds=120, prepare=files),
    Campaign("terminals", terminal, 100, seconds=120, prepare=files),
)
