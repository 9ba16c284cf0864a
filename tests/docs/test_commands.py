"""Commands in the documentation: every ``ccmn`` line parses, and the console blocks run."""

import os
import re
import shlex

import numpy as np
import pytest
import typer.main
from typer.testing import CliRunner

from ccmn import PartialNoise
from ccmn.data import MultiLabelData, make_noisy_multilabel, write_file
from helpers import load_script
from pages import PAGES, ROOT, app, blocks

LONG_COMMANDS = {"demo", "review", "reproduce"}
"""These commands take minutes or wait for a browser; pages mark their blocks as not run by the tests."""

COMMANDS = set(typer.main.get_command(app).commands)

CONSOLE = [page for page in PAGES if any(block.language == "console" and block.runs for block in blocks(page))]


def command_lines():
    """Yield every line of the pages that starts with ``ccmn``, and the complete commands in their text."""
    for page in [ROOT / "README.md", *PAGES]:
        lines = re.findall(r"^(?:\$ )?(ccmn [a-z].*)$", page.read_text(), re.MULTILINE)
        lines += re.findall(r"`(ccmn \w[^`.]+\.\w+ --[^`]+)`", page.read_text())
        for line in [line for line in lines if line.split()[1] in COMMANDS]:
            yield pytest.param(line.split("  #")[0], id=f"{page.stem}: {line[:60]}")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Change to a folder with the files that the pages mention: labels in columns ``tag_*``, and texts with tags."""
    task = make_noisy_multilabel(240, 4, 3, strength=6, noise=PartialNoise([0.2, 0.3, 0.1]), random_state=0)
    names = ("tag_a", "tag_b", "tag_c")
    for name, Y in {"train": task.Y_noisy, "test": task.Y, "new": task.Y, "clean": task.Y}.items():
        write_file(MultiLabelData(X=task.X, Y=Y.astype(np.uint8), label_names=names), tmp_path / f"{name}.csv")
    load_script("examples/tickets.py").write_tickets(tmp_path, 400)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.mark.parametrize("page", CONSOLE, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_console_blocks_run(page, folder):
    ran = 0
    for block in blocks(page):
        for command in block.commands if block.runs else []:
            words = shlex.split(command)
            runs = words[0] == "ccmn" and words[1] not in LONG_COMMANDS
            assert runs, f"{page.name}: {command} cannot run here; the page must say that it is not run by the tests"
            result = CliRunner().invoke(app, words[1:], prog_name="ccmn")
            assert result.exit_code == 0, f"{command}: {result.output}\n{result.exception!r}"
            ran += 1
    assert ran
    assert os.listdir(folder)


@pytest.mark.parametrize("line", list(command_lines()))
def test_every_line_parses(line):
    words = shlex.split(line)[1:]
    command, name = typer.main.get_command(app), "ccmn"
    while hasattr(command, "commands"):
        name = words.pop(0)
        command = command.commands[name]
    command.make_context(name, words)


def test_the_audit_of_the_readme_prints_its_output(folder):
    load_script("examples/tickets.py").write_tickets(folder)
    audit, printed = [block for block in blocks(ROOT / "README.md") if block.language in ("console", "text")][:2]
    result = CliRunner().invoke(app, shlex.split(audit.commands[0])[1:], prog_name="ccmn")
    assert {line.strip() for line in printed.text.splitlines()} <= {line.strip() for line in result.output.splitlines()}
