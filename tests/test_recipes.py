"""Every recipe runs as it stands, prints what its head says, and what it claims is so."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[1] / "examples" / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.py"))
NEEDS = {
    "with_lightning": "lightning",
    "with_transformers": "transformers",
    "with_skorch": "skorch",
    "with_cleanlab": "cleanlab",
}
CLAIMS = {
    "migrate_from_bce": ["wrong labels, unbiased < wrong labels, BCE"],
    "own_loop": [
        "average precision, plain < average precision, unbiased",
        "ranking loss, unbiased < ranking loss, plain",
    ],
    "with_annotators": [
        "Hamming loss, majority, unbiased < Hamming loss, majority at its word",
        "Hamming loss, mean vote, unbiased < Hamming loss, majority at its word",
    ],
    "with_cleanlab": [
        "error of the rates, the same probabilities < error of the rates, cleanlab's joints",
        "error of the rates, features < error of the rates, cleanlab's joints",
        "wrong labels found, cleanlab < wrong labels found, ccmn",
        "Hamming loss, rates from features < Hamming loss, rates from none",
        "Hamming loss, rates from features < Hamming loss, rates from cleanlab's joints",
    ],
    "with_lightning": ["Hamming loss, unbiased < Hamming loss, plain"],
    "with_skorch": ["Hamming loss, unbiased < Hamming loss, plain"],
    "with_transformers": ["Hamming loss, unbiased < Hamming loss, plain"],
}
"""Printed values, the lesser first: apart by a hundredth at least."""

FIGURE = r"\d+\.\d+"


def run(name: str) -> str:
    source = Path(importlib.util.find_spec("ccmn").origin).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(RECIPES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def promised(name: str) -> str:
    """What the head of a recipe says that it prints."""
    head = ast.get_docstring(ast.parse((RECIPES / f"{name}.py").read_text()))
    return "\n".join(line.strip() for line in head.partition("t prints::")[2].strip().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_prints_what_it_promises_and_the_claims_hold(name):
    package = NEEDS.get(name)
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'ccmn[recipes]', or make test-recipes")
    printed, expected = run(name).strip(), promised(name)
    assert re.sub(FIGURE, "#", printed) == re.sub(FIGURE, "#", expected)
    figures = [[float(figure) for figure in re.findall(FIGURE, text)] for text in (printed, expected)]
    assert figures[0] == pytest.approx(figures[1], abs=0.03)
    values = dict(line.rsplit(": ", 1) for line in printed.splitlines())
    for claim in CLAIMS[name]:
        lesser, greater = claim.split(" < ")
        assert float(values[lesser]) + 0.01 < float(values[greater]), claim


def test_every_recipe_has_a_claim():
    assert CLAIMS.keys() == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_begins_as_a_page_of_the_gallery(name):
    """A title with its rule, and what it prints."""
    title, rule, *_ = ast.get_docstring(ast.parse((RECIPES / f"{name}.py").read_text())).splitlines()
    assert rule == "=" * len(title)
    assert promised(name)
