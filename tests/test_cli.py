"""The command line as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ccmn import __version__
from ccmn.cli import app

run = CliRunner().invoke


def test_demo_prints_a_table():
    result = run(app, ["demo", "--quick"])
    assert result.exit_code == 0
    assert "noisy, unbiased" in result.stdout
    assert result.stdout.count("0.") >= 18


def test_demo_json():
    result = run(app, ["demo", "--quick", "--json", "--seed", "2"])
    printed = json.loads(result.stdout)
    assert printed["n_train"] == 1000
    assert len(printed["results"]) == 6
    assert 0.2 < printed["wrong_labels"] < 0.4


def test_version():
    assert run(app, ["--version"]).stdout.strip() == f"ccmn {__version__}"


@pytest.mark.parametrize(
    "arguments", [["dmeo"], ["demo", "--sed", "1"], ["demo", "--seed", "-1"], ["demo", "--seed", "x"]]
)
def test_wrong_usage_is_exit_code_2(arguments):
    result = run(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "ccmn", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"ccmn {__version__}"


def test_importing_ccmn_is_light():
    """Neither torch nor pandas is loaded before it is needed."""
    code = "import ccmn, sys; print(sorted({'torch', 'pandas', 'sklearn', 'scipy', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_library_below_the_command_line_needs_four_libraries():
    """noise, losses, metrics and theory with torch, numpy, scipy, scikit-learn and safetensors alone."""
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pandas", "typer", "rich", "matplotlib", "pyarrow", "pooch"}:
            raise ImportError(f"{name} is not to be had here")
sys.meta_path.insert(0, Refuse())
import torch, ccmn, ccmn.noise, ccmn.losses, ccmn.metrics, ccmn.theory, ccmn.functional
noise = ccmn.ClassConditionalNoise(0.1, 0.2, n_labels=3)
Y = noise.corrupt(torch.ones(4, 3), random_state=0)
ccmn.RankingLoss(noise=noise)(torch.randn(4, 4), Y)
ccmn.metrics.ranking_loss(Y, torch.randn(4, 3))
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "fine"
