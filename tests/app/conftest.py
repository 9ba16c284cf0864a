"""Fixtures of the command line tests: functions that run commands, and small files to run them on."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from app.review.example import make_session
from app.review.http_client import make_client, sign_in
from ccmn.data import MultiLabelData, write_file
from pages import app

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a command and check its exit code: ``run("data", "list")``, ``run("fit", code=2)``."""

    def run_command(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="ccmn")
        assert result.exit_code == code, f"exit code {result.exit_code}: {result.output}\n{result.exception!r}"
        assert "Traceback" not in result.output
        return result

    return run_command


@pytest.fixture(scope="session")
def rejected(run: Run) -> Callable[..., str]:
    """Run a command that fails (or, with ``code=2``, a usage error) and return the line it prints on stderr."""

    def run_failing(*arguments: object, code: int = 1) -> str:
        result = run(*arguments, code=code)
        assert result.stdout == ""
        assert result.stderr.startswith("ccmn: ")
        return result.stderr

    return run_failing


@pytest.fixture(scope="session")
def printed(run: Run) -> Callable[..., Any]:
    """Run a command with ``--json`` and return the printed value."""
    return lambda *arguments: json.loads(run(*arguments, "--json").stdout)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let ``ccmn review`` call a function with a client of its page and the session instead of a server."""

    def prepare(use: Callable[..., object]) -> None:
        def serve(session: Any, retraining: Any, on_start: Any, port: int, next_command: str) -> None:
            use(sign_in(make_client(session)), session)

        monkeypatch.setattr("ccmn.app.review.serve", serve)

    return prepare


@pytest.fixture
def reviewing(run: Run, served: Callable[..., None]) -> Callable[..., Result]:
    """Run ``ccmn review`` with a function that is called instead of a server."""
    return lambda use, *arguments: (served(use), run("review", *arguments))[1]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Any]:
    """Return a new review of the example data."""
    session = make_session(tmp_path / "review")
    yield session
    session.close()


@pytest.fixture(scope="session")
def task() -> MultiLabelData:
    """Return 300 rows in which each of three labels depends on one of four features."""
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
    """Working directory with the task as task.csv and task.npz."""
    write_file(task, tmp_path / "task.csv")
    write_file(task, tmp_path / "task.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def saved(task: MultiLabelData, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model fitted on the task."""
    folder = tmp_path_factory.mktemp("saved")
    write_file(task, folder / "task.npz")
    options = ("--method", "hamming", "--noise", "none", "--epochs", 60, "--lr", 0.05)
    run("fit", folder / "task.npz", *options, "--out", folder / "model.ccmn")
    return folder / "model.ccmn"
