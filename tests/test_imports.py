"""Libraries that imports load."""

import subprocess
import sys

import pytest

import ccmn
from helpers import run_bare

HEAVY = {"torch", "pandas", "sklearn", "scipy"}


def loaded_after(code: str) -> set[str]:
    """Return the names of the modules that are loaded after ``code`` in a new process."""
    code = f"{code}\nimport sys; print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_ccmn_loads_no_large_library():
    assert not (HEAVY | {"typer"}) & loaded_after("import ccmn; dir(ccmn)")


def test_help_loads_no_large_library():
    code = (
        "import sys; from ccmn.app.cli import main; sys.argv = ['ccmn', '--help']\ntry: main()\nexcept SystemExit: pass"
    )
    assert not (HEAVY | {"numpy", "rich.progress"}) & loaded_after(code)


def test_reading_data_does_not_load_torch():
    assert "torch" not in loaded_after("import ccmn.data; import ccmn.data.columns")


def test_every_public_name_is_an_attribute():
    assert set(ccmn.__all__) == set(dir(ccmn))
    for name in ccmn.__all__:
        assert getattr(ccmn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ccmn.nothing


def test_library_needs_only_the_base_libraries_and_no_triton_on_a_cpu():
    code = """
import sys, torch, ccmn, ccmn.noise, ccmn.losses, ccmn.metrics, ccmn.paper.theory
noise = ccmn.ClassConditionalNoise(0.1, 0.2, n_labels=3)
Y = noise.corrupt(torch.ones(4, 3), random_state=0)
ccmn.RankingLoss(noise=noise)(torch.randn(4, 4, requires_grad=True), Y).backward()
ccmn.metrics.ranking_loss(Y, torch.randn(4, 3))
print([name for name in sys.modules if name.startswith(("triton", "ccmn.losses._fast.cuda_pairs"))])
"""
    assert run_bare(code) == "[]"
