"""Every recipe runs, prints the output in its docstring, and its claims hold."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[1] / "examples" / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.py") if path.stem != "with_ray")  # tests/cluster runs with_ray
PACKAGES = {"lightning", "transformers", "skorch", "cleanlab"}
FROM_NOISY_AND_TRUE = [
    "Hamming loss estimated from noisy labels, unbiased < Hamming loss estimated from noisy labels, plain",
    "Hamming loss on true labels, unbiased < Hamming loss on true labels, plain",
]
CLAIMS = {
    "migrate_from_bce": ["wrong labels, unbiased < wrong labels, BCE"],
    "own_loop": [
        "average precision estimated from noisy labels, plain < "
        "average precision estimated from noisy labels, unbiased",
        "average precision on true labels, plain < average precision on true labels, unbiased",
    ],
    "with_annotators": [
        "wrong labels, inferred < wrong labels, majority vote",
        "Hamming loss, votes < Hamming loss, majority vote",
    ],
    "with_cleanlab": [
        "error of the rates, cleanlab's joints < error of the rates, the same probabilities",
        "error of the rates, features < error of the rates, cleanlab's joints",
        "wrong labels found, cleanlab < wrong labels found, ccmn",
        "Hamming loss, rates from features < Hamming loss, rates from none",
        "Hamming loss, rates from features < Hamming loss, rates from cleanlab's joints",
    ],
    "with_lightning": FROM_NOISY_AND_TRUE,
    "with_skorch": ["Hamming loss, unbiased < Hamming loss, plain"],
    "with_transformers": FROM_NOISY_AND_TRUE,
}
"""Pairs of printed values; the first is smaller by at least 0.01."""

NUMBER = r"\d+\.\d+"
TOLERANCES = {"with_transformers": 0.1}
"""Largest difference from the documented numbers. The small BERT follows another path after a change of rounding: its
Hamming loss on true labels was .20, .21 and .27 with three equal implementations of the loss."""


def run(name: str) -> str:
    source = Path(importlib.util.find_spec("ccmn").origin).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(RECIPES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def documented_output(name: str) -> str:
    """Return the output that the docstring of a recipe shows."""
    docstring = ast.get_docstring(ast.parse((RECIPES / f"{name}.py").read_text()))
    return "\n".join(line.strip() for line in docstring.partition("It prints::")[2].strip().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_output_and_claims(name):
    package = name.removeprefix("with_")
    if package in PACKAGES and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: run pip install -r requirements/recipes.txt")
    printed, expected = run(name).strip(), documented_output(name)
    assert re.sub(NUMBER, "#", printed) == re.sub(NUMBER, "#", expected)
    numbers = [[float(number) for number in re.findall(NUMBER, text)] for text in (printed, expected)]
    assert numbers[0] == pytest.approx(numbers[1], abs=TOLERANCES.get(name, 0.03))
    values = dict(line.rsplit(": ", 1) for line in printed.splitlines())
    for claim in CLAIMS[name]:
        smaller, larger = claim.split(" < ")
        assert float(values[smaller]) + 0.01 < float(values[larger]), claim
