"""Simulate power cuts: writes that were not synchronized to disk are lost, also those of SQLite.

strace records the system calls of a process that writes a file, a folder and a store. Each case replays them up to a
random call. Contents and names that were synchronized are kept, and a random part of the others: any subset of the
writes to a file, and the first of the operations on names, as in a journaling file system. The result is what a machine
may find after a power cut. It must contain everything that had been reported.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from robustness.campaign import Campaign, Failure

CALLS = "openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,rmdir"
WORK = """
import os, sys
from ccmn._files import atomic_write, write_folder
from ccmn.paper.result_store import Cell, Result, ResultStore

def report(text):
    os.write(2, f"REPORT {text}".encode())

os.chdir(sys.argv[1])
report("start")
store = ResultStore("results.db")
for i in range(5):
    with atomic_write("file.txt") as stream:
        stream.write(b"%d" % i * 5000)
    report(f"file {i}")
    write_folder("folder", {"a": b"%d" % i * 3000, "b": b"%d" % i})
    report(f"folder {i}")
    store.append([Result(Cell("table1", "literal", "yeast", "ridge", i, 100), {"values": {}})])
    report(f"store {i}")
os._exit(0)
"""
_LINE = re.compile(r"(?:\[pid\s+\d+\] |\d+\s+)?(\w+)\((.*)\)\s+= (-?\d+)")
_HEX = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_OPEN = re.compile(r"^(\d+)<([^>]*)>")


@dataclass
class Node:
    """File: its content in memory, the content on disk, and the changes in between."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Position and bytes of a write, or size and None of a truncation, since the last synchronization."""

    def change(self, at: int, data: bytes | None) -> None:
        _apply(self.content, at, data)
        self.changes.append((at, data))

    def sync(self) -> None:
        self.durable, self.changes = bytes(self.content), []

    def after_cut(self, rng: np.random.Generator) -> bytes:
        content = bytearray(self.durable)
        for at, data in self.changes:
            if rng.random() < 0.5:
                _apply(content, at, data)
        return bytes(content)


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        content[at:] = bytes(max(0, at - len(content)))
    else:
        content.extend(bytes(max(0, at - len(content))))
        content[at : at + len(data)] = data


class Disk:
    """Files by name, in memory and on disk; operations on names reach the disk in their order."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[tuple[str, str, str]] = []
        self.nodes: dict[str, Node] = {}

    def do(self, kind: str, first: str, second: str = "") -> None:
        if kind == "create" and first not in self.names:
            self.nodes[first] = Node()
        elif kind == "create":
            return
        self.pending.append((kind, first, second))
        self._rename(self.names, kind, first, second)

    def _rename(self, names: dict[str, Node], kind: str, first: str, second: str) -> None:
        if kind == "create":
            names[first] = self.nodes[first]
            return
        moved = {path: names.pop(path) for path in list(names) if f"{path}/".startswith(f"{first}/")}
        if kind == "unlink":
            return
        old = {path: names.pop(path) for path in list(names) if f"{path}/".startswith(f"{second}/")}
        names.update({second + path.removeprefix(first): node for path, node in moved.items()})
        if kind == "exchange":
            names.update({first + path.removeprefix(second): node for path, node in old.items()})

    def sync_names(self, count: int | None = None) -> None:
        for operation in self.pending[:count]:
            self._rename(self.durable, *operation)
        del self.pending[:count]

    def sync_file(self, path: str) -> None:
        """Synchronize a file; its own name, and all operations before it, reach the disk with it."""
        self.names[path].sync()
        created = [number for number, (kind, first, _) in enumerate(self.pending) if (kind, first) == ("create", path)]
        if created:
            self.sync_names(created[-1] + 1)


def replay(calls: list[tuple[str, list[str], bytes, int]], disk: Disk) -> list[str]:
    """Apply system calls; return what was reported."""
    reported, offsets = [], {}
    for name, paths, data, number in calls:
        path = paths[0] if paths else ""
        if name == "write" and data.startswith(b"REPORT "):
            reported.append(data.removeprefix(b"REPORT ").decode())
        elif name == "open":
            disk.do("create", path)
            offsets[path] = 0
        elif name in ("write", "pwrite64") and path in disk.names:
            at = offsets.get(path, 0) if name == "write" else number
            disk.names[path].change(at, data)
            offsets[path] = at + len(data)
        elif name == "ftruncate" and path in disk.names:
            disk.names[path].change(number, None)
        elif name == "fsync":
            disk.sync_file(path) if path in disk.names else disk.sync_names()
        elif name in ("rename", "exchange", "unlink"):
            disk.do(name, *paths)
    return reported


def parse(text: str, folder: str) -> Iterator[tuple[str, list[str], bytes, int]]:
    """Yield the successful calls on files below a folder: name, paths, data, and position or size."""
    for line in text.splitlines():
        found = _LINE.match(line)
        if not found or int(found[3]) < 0:
            continue
        name, arguments = found[1], found[2]
        quoted = [bytes.fromhex(part.replace("\\x", "")) for part in _HEX.findall(arguments)]
        opened = _OPEN.match(arguments)
        paths = [opened[2]] if opened else [os.path.join(folder, part.decode("utf-8", "replace")) for part in quoted]
        inside = [os.path.relpath(path, folder) for path in paths if path == folder or path.startswith(folder + "/")]
        if name == "write" and quoted and quoted[0].startswith(b"REPORT "):
            yield "write", [], quoted[0], 0
        elif not inside or inside[0].endswith("-shm"):
            continue
        elif name == "openat":
            if "O_CREAT" in arguments:
                yield "open", inside, b"", 0
        elif name in ("write", "pwrite64", "ftruncate"):
            last = arguments.rpartition(",")[2]
            yield name, inside, quoted[0] if quoted else b"", int(last) if name != "write" else 0
        elif name in ("fsync", "fdatasync"):
            yield "fsync", inside, b"", 0
        elif name.startswith("rename"):
            yield "exchange" if "RENAME_EXCHANGE" in arguments else "rename", inside, b"", 0
        elif name in ("unlink", "unlinkat", "rmdir"):
            yield "unlink", inside, b"", 0


@cache
def recorded() -> list[tuple[str, list[str], bytes, int]]:
    """Return the calls of a process that writes; empty if strace is not installed or not permitted."""
    if shutil.which("strace") is None:
        return []
    with tempfile.TemporaryDirectory() as place:
        folder, log = Path(place).resolve() / "work", Path(place) / "log"
        folder.mkdir()
        command = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-e", f"trace={CALLS}", "-o", str(log)]
        # -xx prints paths of descriptors in hexadecimal, too; they are decoded here.
        done = subprocess.run([*command, sys.executable, "-c", WORK, str(folder)], check=False, capture_output=True)
        if done.returncode:
            return []
        text = re.sub(r"<((?:\\x[0-9a-f]{2})+)>", lambda m: f"<{_decode(m[1])}>", log.read_text())
        calls = list(parse(text, str(folder)))
    start = next(number for number, call in enumerate(calls) if call[2] == b"REPORT start")
    return calls[start:]


def _decode(text: str) -> str:
    return bytes.fromhex(text.replace("\\x", "")).decode("utf-8", "replace")


def check(rng: np.random.Generator, folder: Path) -> str:
    """Cut the power after a random call and check what is on disk."""
    from ccmn.paper.result_store import ResultStore

    calls = recorded()
    if not calls:
        return "strace is not available"
    disk = Disk()
    reported = replay(calls[: rng.integers(1, len(calls) + 1)], disk)
    disk.sync_names(int(rng.integers(len(disk.pending) + 1)))
    for path, node in disk.durable.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(node.after_cut(rng))
    _check_files(folder, reported)
    with ResultStore(folder / "results.db") as store:
        found = [result.cell.repeat for result in store.results()]
    if found != list(range(len(found))) or len(found) <= _last(reported, "store"):
        raise Failure("lost", f"results {found} after {reported[-1:]}")
    return "kept"


def _last(reported: list[str], kind: str) -> int:
    """Return the number of the last report of a kind."""
    return max((int(line.split()[1]) for line in reported if line.startswith(f"{kind} ")), default=-1)


def _check_files(folder: Path, reported: list[str]) -> None:
    """Check that the file and the folder are complete and not older than reported."""
    if (folder / "file.txt").exists():
        content = (folder / "file.txt").read_bytes()
        if len(content) != 5000 or content != content[:1] * 5000 or int(content[:1]) < _last(reported, "file"):
            raise Failure("damaged", f"file.txt after {reported[-1:]}: {content[:10]!r}, {len(content)} bytes")
    elif _last(reported, "file") >= 0:
        raise Failure("lost", f"file.txt after {reported[-1:]}")
    parts = {name: (folder / "folder" / name).read_bytes() for name in "ab" if (folder / "folder" / name).exists()}
    if parts and (len(parts) < 2 or parts["a"] != parts["b"] * 3000 or int(parts["b"]) < _last(reported, "folder")):
        raise Failure("damaged", f"folder after {reported[-1:]}: {parts.get('b')!r}")
    if not parts and _last(reported, "folder") >= 0:
        raise Failure("lost", f"folder after {reported[-1:]}")


def prepare() -> None:
    """Record the calls, and import what the cases need."""
    import ccmn.paper.result_store  # noqa: F401

    recorded()


CAMPAIGNS = (Campaign("power_cuts", check, 1000, batch=50, prepare=prepare),)
