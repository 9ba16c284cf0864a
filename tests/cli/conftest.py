"""What the tests of the command line share: a way to type commands, and small files to type them on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from ccmn.cli import app
from ccmn.data import MultiLabelData, write_csv, write_npz

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def run() -> Run:
    """Type a command, and expect its exit code: ``run("data", "list")``, ``run("fit", code=2)``."""

    def typed(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="ccmn")
        assert result.exit_code == code, f"exit code {result.exit_code}: {result.output}\n{result.exception!r}"
        assert "Traceback" not in result.output
        return result

    return typed


@pytest.fixture(scope="session")
def refused(run: Run) -> Callable[..., str]:
    """Type a command that cannot be done (or, ``code=2``, is not one): the one line it says, on stderr only."""

    def typed(*arguments: object, code: int = 1) -> str:
        result = run(*arguments, code=code)
        assert result.stdout == ""
        assert result.stderr.startswith("ccmn: ")
        return result.stderr

    return typed


@pytest.fixture(scope="session")
def printed(run: Run) -> Callable[..., Any]:
    """Type a command with ``--json``: what it prints."""
    return lambda *arguments: json.loads(run(*arguments, "--json").stdout)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the paper's data sets."""
    folder = os.environ.get("CCMN_DATA")
    if not folder:
        pytest.skip("the real data sets are needed: set CCMN_DATA to their folder")
    return Path(folder)


@pytest.fixture(scope="session")
def task() -> MultiLabelData:
    """300 rows in which each of three labels depends on one of four features."""
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    return MultiLabelData(
        X=X,
        Y=(X[:, :3] > 0.3).astype(np.uint8),
        feature_names=["length", "width", "depth", "age"],
        label_names=["sea", "sky", "sun"],
        name="task",
    )


@pytest.fixture
def files(task: MultiLabelData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the task as task.csv and task.npz."""
    write_csv(task, tmp_path / "task.csv")
    write_npz(task, tmp_path / "task.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def saved(task: MultiLabelData, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model fitted on the task."""
    folder = tmp_path_factory.mktemp("saved")
    write_npz(task, folder / "task.npz")
    run("fit", folder / "task.npz", "--noise", "none", "--epochs", 15, "--lr", 0.05, "--out", folder / "model.ccmn")
    return folder / "model.ccmn"


@pytest.fixture(scope="session")
def unnamed(task: MultiLabelData) -> MultiLabelData:
    """The task without names."""
    return replace(task, feature_names=None, label_names=None)
