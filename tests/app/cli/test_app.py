"""Command line as a whole: help, version, options, exit codes."""

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ccmn
from ccmn import __version__
from ccmn.data import write_file
from pages import commands


def test_version(run):
    assert run("--version").stdout.strip() == f"ccmn {__version__}"


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_has_an_example_in_its_help(run, command):
    help_text = " ".join(run(*command.split(), "--help").stdout.split())
    assert f"ccmn {command}" in help_text.split("Example", 1)[1]


@pytest.mark.parametrize("arguments", [(), ("data",), ("noise",)])
def test_no_arguments_print_help_with_exit_code_2(run, arguments):
    assert "Usage: ccmn" in run(*arguments, code=2).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmeo"], "No such command 'dmeo'. Did you mean 'demo'? See: ccmn --help"),
        (["demo", "--random-state", "-1"], "--random-state"),
        (["demo", "--seed", "x"], "--seed does not exist: use --random-state"),
        (["noise", "estimate", "a.csv", "--noise-type", "partial"], "use --noise both, partial or missing"),
        (["fit", "a.csv", "--out", "m", "--solver=adam"], "--solver does not exist: use the parameters of ccmn.CCMN"),
        (["fit", "a.csv", "--out", "m", "--loss", "ranking"], "use --method corrected, hamming or ranking"),
        (["fit", "a.csv", "--out", "m", "--device", "abacus"], "Expected auto, cpu, cuda or cuda:N; got 'abacus'"),
        (["fit", "a.csv", "--out", "m", "--lr", "-1"], "Invalid value for '--lr'"),
        (["fit", "task.npz", "--out", "m", "--method", "tree"], "--method must be corrected, hamming, ranking; got"),
        (["fit", "task.npz", "--out", "m", "--epochs", "3"], "--epochs requires --method hamming or --method ranking"),
        (["fit", "task.npz", "--out", "m", "--labels", ""], "--labels is empty"),
        (["fit", "task.npz", "--out", "m", "--noise", "estimate"], "--noise must be both, partial, missing, none"),
        (["data", "inf"], "No such command 'inf'. Did you mean 'info'? See: ccmn data --help"),
        (["noise", "show"], "See: ccmn noise show --help"),
    ],
)
def test_usage_errors_are_one_line_with_exit_code_2(rejected, files, arguments, message):
    line = rejected(*arguments, code=2)
    assert message in line
    assert line.count("\n") == 1


def test_rates_that_the_data_do_not_identify_are_reported_with_options(run, task, files):
    rng = np.random.default_rng(0)
    Y = task.X[:, :3] * 0.3 + rng.normal(size=task.Y.shape) > 0.3  # hardly depends on the features
    write_file(replace(task, Y=Y.astype(np.uint8), label_names=None), "weak.npz")
    result = run("noise", "estimate", "weak.npz")
    assert "! 0, 2: The features do not predict this label" in result.stdout  # one line per warning
    assert "--noise partial or missing" in result.stderr
    assert "--trusted FILE" in result.stderr
    assert "noise_type=" not in result.stderr


def test_all_mistakes_of_a_call_are_reported_together(run, files):
    result = run("fit", "task.csv", "--labels", "sae", "--text", "txt", "--noise", "bth", "--out", "none/m", code=2)
    lines = result.stderr.splitlines()
    expected = (
        "no column 'txt' (--text)",
        "no label column 'sae'; did you mean 'sea'?",
        "got 'bth'",
        "folder none does",
    )
    assert [part in line for part, line in zip(expected, lines, strict=True)] == [True] * 4
    assert all(line.startswith("ccmn: ") for line in lines)
    assert run("predict", "m.ccmn", "none.csv", code=1).stderr.count("\n") == 2


@pytest.mark.parametrize(
    "command",
    [
        "fit none.csv --labels a --out m",
        "predict none.ccmn task.csv",
        "audit task.csv --labels sea --trusted none.csv",
        "review task.csv --labels sea --text words",
        "votes task.csv --votes a,b,c",
    ],
)
def test_mistakes_are_reported_before_large_libraries_are_imported(files, command):
    code = f"""
import sys, time
sys.argv = ["ccmn", *{command.split()!r}]
from ccmn.app.cli import main
try:
    main()
except SystemExit as stop:
    print(stop.code, sorted({{"torch", "pandas", "sklearn"}} & set(sys.modules)), time.process_time())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    status, loaded, seconds = done.stdout.split(" ", 1)[0], done.stdout.split("[")[1], float(done.stdout.split()[-1])
    assert status in ("1", "2")
    assert loaded.startswith("]")
    assert seconds < 2  # 0.5 on an idle machine
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("name", "command"), [("typer", ["--help"]), ("uvicorn", ["review", "task.npz"])])
def test_without_the_extra_the_command_says_what_to_install(files, name, command):
    code = f"""
import sys
sys.modules[{name!r}] = None
sys.argv = ["ccmn", *{command!r}]
from ccmn.app.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'pip install "ccmn[app]"' in done.stderr
    assert done.stderr.count("\n") == 1


def test_exit_code_of_the_real_command(tmp_path):
    command = [sys.executable, "-m", "ccmn", "noise", "show", str(tmp_path / "none.json")]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == f"ccmn: there is no file {tmp_path / 'none.json'}\n"


@pytest.mark.slow  # starts processes
@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals require POSIX")
@pytest.mark.parametrize(
    ("command", "phases"),
    [
        (("fit", "--out", "model.ccmn"), ["model of the noisy labels", "thresholds"]),
        (("noise", "estimate"), ["noise rates"]),
        (("audit", "--noise", "both"), ["noise rates", "out-of-fold probabilities"]),
    ],
)
def test_terminals_show_the_phases_of_a_command(files, command, phases):
    """Each phase is shown in its order; without a terminal, nothing is."""
    words = [*command, "task.npz"]
    arguments = [sys.executable, "-m", "ccmn", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(ccmn.__file__).parents[1]), "TERM": "xterm", "COLUMNS": "100"}
    leader, follower = os.openpty()
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = bytearray()
        with contextlib.suppress(OSError):  # the end of the process
            while part := os.read(leader, 1 << 16):
                shown += part
    os.close(leader)
    assert process.returncode == 0
    places = [shown.find(phase.encode()) for phase in phases]
    assert -1 not in places
    assert places == sorted(places)
    quiet = subprocess.run(
        [*arguments, *(["--force"] if "--out" in words else [])], capture_output=True, env=environment
    )
    assert not any(phase.encode() in quiet.stderr for phase in phases)
