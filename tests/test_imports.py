"""What importing the package takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bare import run_bare


def test_importing_ccmn_is_light():
    """Neither torch nor pandas is loaded before it is needed."""
    code = "import ccmn, sys; print(sorted({'torch', 'pandas', 'sklearn', 'scipy', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_library_below_the_command_line_needs_four_libraries():
    """noise, losses, metrics and theory with torch, numpy, scipy, scikit-learn and safetensors alone."""
    code = """
import torch, ccmn, ccmn.noise, ccmn.losses, ccmn.metrics, ccmn.theory, ccmn.functional
noise = ccmn.ClassConditionalNoise(0.1, 0.2, n_labels=3)
Y = noise.corrupt(torch.ones(4, 3), random_state=0)
ccmn.RankingLoss(noise=noise)(torch.randn(4, 4), Y)
ccmn.metrics.ranking_loss(Y, torch.randn(4, 3))
print("fine")
"""
    assert run_bare(code) == "fine"


@pytest.mark.parametrize("package", ["losses", "noise", "metrics"])
def test_mathematics_does_not_load_the_data_package(package):
    code = f"import ccmn.{package}, sys; print([name for name in sys.modules if name.startswith('ccmn.data')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
