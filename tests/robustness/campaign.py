"""Run robustness campaigns: many seeded cases, each in a child process, with a count per outcome.

    make test-all MINUTES=10
    python tests/robustness/campaign.py --campaign malformed --cases 10000 --seed 1 --log /tmp/log

A campaign is a function that checks one case and returns its outcome, a word such as "accepted" or "rejected". A case
that raises an exception, ends its process, uses too much memory or takes too long fails. Every case has its own random
generator, so that ``--case 17`` repeats a single one. With ``--log``, a run that is started again continues.
"""

import argparse
import faulthandler
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

Case = Callable[[np.random.Generator, Path], str]
"""Check one case in an empty folder; return the outcome, or raise ``Failure`` or any other exception."""

MAX_DELAY = 10
"""A case of a process that waits for a busy processor may take this many times longer."""
INTERRUPTED = 130
"""Exit code of an interrupted command."""
MAX_SHOWN = 20
"""Number of failures that are printed per campaign."""


class Failure(Exception):  # noqa: N818
    """Outcome that must not occur, such as "misread", and what was seen."""

    def __init__(self, outcome: str, seen: object = "") -> None:
        super().__init__(f"{outcome}: {seen}")
        self.outcome = outcome


def expect(condition: bool, outcome: str, seen: object = "") -> None:
    """Fail with an outcome unless the condition holds."""
    if not condition:
        raise Failure(outcome, seen)


class Printed(NamedTuple):
    """Exit code of a command, what it printed on stdout, and its error without notes; a success has no error."""

    code: int
    out: str
    error: str


def command(folder: Path, line: str) -> Printed:
    """Run a command in a folder; a traceback, or an error that is not a single line, fails."""
    from typer.testing import CliRunner

    from ccmn.app.cli.app import app

    before = os.getcwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(app, shlex.split(line), prog_name="ccmn")
    finally:
        os.chdir(before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return check_printed(result.exit_code, result.stdout, result.stderr, line)


def check_printed(code: int, out: str, err: str, line: str) -> Printed:
    """Return what a command printed; a traceback, or an error that is not a single line, fails."""
    expect("Traceback" not in err, "traceback", f"{line}: {err[-1500:]}")
    lines = [line for line in err.splitlines() if line.startswith("ccmn: ") and not line.startswith("ccmn: note: ")]
    allowed = {0: (0,), INTERRUPTED: (0, 1)}.get(code, (1,))
    expect(len(lines) in allowed, "not one line", f"{line}: code {code}: {err[-1500:]}")
    return Printed(code, out, lines[0] if lines else "")


@dataclass(frozen=True)
class Campaign:
    """Cases of one kind, and how they are run."""

    name: str
    case: Case
    cases: int
    """Number of cases of a long run."""
    seconds: float = 10.0
    """A case that takes longer fails."""
    max_bytes: int = 1 << 30
    """A case during which the process grows by more fails."""
    batch: int = 1
    """Number of cases per child process."""
    min_minutes: float = 0
    """The campaign is left out if less time is given."""
    prepare: Callable[[], object] = bool
    """Called once before child processes are started; they inherit what it imports and caches."""


@dataclass
class Result:
    """Outcomes of a campaign."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    """Number of the case, outcome and description."""

    def add(self, case: int, outcome: str, seen: str) -> None:
        self.outcomes[outcome] += 1
        if seen:
            self.failures.append((case, outcome, seen))


def run(
    campaign: Campaign, cases: int, seed: int, seconds: float = float("inf"), first: int = 0, log: Path | None = None
) -> Result:
    """Run cases until all are done or the time is over; at least one batch is run."""
    campaign.prepare()
    result, start, number = Result(), time.monotonic(), first
    if log is not None and log.exists():
        for line in log.read_text().splitlines():
            result.add(*json.loads(line)[:3])
            number = json.loads(line)[0] + 1
    while number < first + cases and (number == first or time.monotonic() - start < seconds):
        batch = range(number, min(number + campaign.batch, first + cases))
        for found in _run_batch(campaign, batch, seed):
            number = found[0] + 1
            result.add(*found)
            if log is not None:
                with log.open("a") as stream:
                    stream.write(json.dumps(found) + "\n")
    return result


def _run_batch(campaign: Campaign, batch: range, seed: int) -> Iterator[tuple[int, str, str]]:
    """Run cases in a child process; yield number, outcome and, for a failure, a description."""
    receiver, sender = get_context("fork").Pipe(duplex=False)
    with tempfile.TemporaryFile("w+") as stacks:
        child = get_context("fork").Process(target=_child, args=(campaign, batch, seed, sender, receiver, stacks))
        child.start()
        sender.close()
        try:
            for number in batch:
                if not _arrives(receiver, child.pid, campaign.seconds):
                    yield number, "hang", f"no result after {campaign.seconds} s:\n{_stacks(child.pid, stacks)}"
                    return
                try:
                    yield receiver.recv()
                except EOFError:
                    child.join()
                    yield number, "crash", f"the process ended with code {child.exitcode}"
                    return
        finally:
            receiver.close()
            if child.is_alive():
                os.killpg(child.pid, signal.SIGKILL)  # also processes that the case has started
            child.join()


def _arrives(receiver: Connection, pid: int, seconds: float) -> bool:
    """Return whether a result arrives in time. Time in which the process waits for a busy processor does not count."""
    start, queued = time.monotonic(), _queued_seconds(pid)
    while not receiver.poll(min(1.0, seconds)):
        waited = time.monotonic() - start
        if waited - (_queued_seconds(pid) - queued) > seconds or waited > MAX_DELAY * seconds:
            return False
    return True


def _queued_seconds(pid: int) -> float:
    """Return how long a process was ready to run but waited for a processor; 0 if the system does not tell."""
    try:
        tasks = [task.read_text().split() for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except OSError:  # a thread has ended
        return 0.0
    return max((int(task[1]) for task in tasks), default=0) / 1e9


def _stacks(pid: int, file: IO[str]) -> str:
    """Return the stacks of all threads of a child process."""
    os.kill(pid, signal.SIGUSR1)
    time.sleep(1)
    file.seek(0)
    return file.read()


def _child(campaign, batch, seed, sender, receiver, stacks) -> None:
    receiver.close()
    faulthandler.register(signal.SIGUSR1, stacks)
    os.setpgid(0, 0)
    warnings.simplefilter("ignore")
    with open(os.devnull, "r+b") as null:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)
    for number in batch:
        sender.send((number, *_run_case(campaign, number, seed)))


def _run_case(campaign: Campaign, number: int, seed: int) -> tuple[str, str]:
    """Return the outcome of a case and, for a failure, a description."""
    before = _peak_bytes()
    with tempfile.TemporaryDirectory(prefix="ccmn-") as folder:
        try:
            outcome = campaign.case(np.random.default_rng([seed, number]), Path(folder))
        except Failure as failure:
            return failure.outcome, str(failure)
        except BaseException:
            return "traceback", traceback.format_exc(limit=-6)
    if _peak_bytes() - before > campaign.max_bytes:
        return "memory", f"{_peak_bytes() - before} bytes more"
    return outcome, ""


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def campaigns() -> dict[str, Campaign]:
    """Return all campaigns by name."""
    from robustness import faults, fits, malformed, processes

    modules = (malformed, processes, faults, fits)
    return {campaign.name: campaign for module in modules for campaign in module.CAMPAIGNS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = campaigns()
    parser.add_argument("--campaign", choices=known, action="append", help="campaign to run (default: all)")
    parser.add_argument("--minutes", type=float, help="time for all campaigns together")
    parser.add_argument("--cases", type=int, help="number of cases (default: that of a long run)")
    parser.add_argument("--case", type=int, help="run a single case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="folder for the outcomes; a run that is started again continues")
    options = parser.parse_args()
    chosen = [known[name] for name in options.campaign or known]
    if options.minutes and not options.campaign:
        chosen = [campaign for campaign in chosen if campaign.min_minutes <= options.minutes]
    seconds = 60 * options.minutes / len(chosen) if options.minutes else float("inf")
    version = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    failed = False
    if options.log:
        options.log.mkdir(parents=True, exist_ok=True)
    for campaign in chosen:
        cases = 1 if options.case is not None else options.cases or campaign.cases
        log = options.log and options.log / f"{campaign.name}-{options.seed}.jsonl"
        result = run(campaign, cases, options.seed, seconds, options.case or 0, log)
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(result.outcomes.items()))
        print(f"{campaign.name} ({version.stdout.strip()}): {result.outcomes.total()} cases: {counts}", flush=True)
        for number, outcome, seen in result.failures[:MAX_SHOWN]:
            print(f"  case {number} (--seed {options.seed}) {outcome}: {seen}", flush=True)
        failed |= bool(result.failures)
    sys.exit(failed)


if __name__ == "__main__":
    # The campaigns import this module by its name: the script must use the same classes.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from robustness import campaign

    campaign.main()
