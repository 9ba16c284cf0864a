"""docs/paper.md: every equation has a function and a test that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ")]
    for line in (ROOT / "docs" / "paper.md").read_text().split("## The paper in 12 lines")[0].splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| paper"))
]
EQUATIONS = [*(f"Eq. ({k})" for k in range(1, 16)), *(f"Theorem {k}" for k in range(1, 6))]
LEMMAS = [str(k) for k in range(1, 8)]


def source(path):
    file = ROOT / path if path.startswith(("tests/", "examples/")) else ROOT / "src" / "ccmn" / path
    assert file.is_file(), path
    return file.read_text()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_functions_and_tests_exist(row):
    functions, tests = row[2], row[3]
    for part in functions.split("; "):
        (path,) = re.findall(r"`([\w/]+\.py)`", part)
        text = source(path)
        for name in re.findall(r"`([A-Za-z_]\w*)`", part.partition(":")[2]):
            assert re.search(rf"\b{name}\b", text), (path, name)
    assert "`tests/" in tests
    for path in re.findall(r"`((?:tests|examples)/[\w/]+\.py)`", tests):
        source(path)


@pytest.mark.parametrize("name", EQUATIONS)
def test_every_equation_is_mapped(name):
    names = " ".join(row[0] for row in ROWS)
    assert name in names or name.removeprefix("Eq. ") in names


def test_every_lemma_is_mapped():
    names = [re.findall(r"Lemmas? ([\d, ]+)", row[0]) for row in ROWS]
    assert sorted({number for found in names for text in found for number in re.findall(r"\d", text)}) == LEMMAS
