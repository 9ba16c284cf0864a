"""Check that the tests notice changed operators and constants in the core of the library.

    python tests/mutation.py --mutants 60 --seed 0 --log /tmp/mutants.jsonl

Each mutant changes one operator or number in a copy of the package, and the tests of the same folder run with ``-x``;
goldens and doctests are not among them. A mutant that no test notices is printed with its line. The log continues a
run that was ended. Those that cannot change a result are listed in ``EQUIVALENT``.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
CORE = {
    "noise": "noise/*.py",
    "losses": "losses/**/*.py",
    "estimation": "estimation/[lp][io]*.py",  # link.py, likelihood.py and posterior.py
    "metrics": "metrics/*.py",
}
"""Folders of tests, and the files of the package that they test."""
SKIPPED = re.compile(r"cuda|__init__")
NOT_COMPUTED = ("annotation", "returns", "decorator_list")
OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
EQUIVALENT = {
    "math.isqrt(4 * order) - 1": "the same series from other products of polynomials",
    "damping = np.full(len(rho_pos), 0.002)": "other Newton steps to the same maximum",
    "np.maximum(surfaces.n[:, None, None], 2)": "a single row has a share of 0 or 1, without a sampling error",
    "sd**-4": "other Newton steps to the same maximum",
    "max(2, _MAX_BLOCK_PAIRS": "smallest number of labels in memory at once",
    "scores[..., -1:]).detach() / 4": "the sum depends only on differences of scores",
    "value[j][possible] = 1": "only differences of the log-likelihood of a label count",
    "prevalence = (ones.sum(1) * size.sum(1)": "another start of the Newton steps, which end at the same maximum",
    "MAX_PAIRS_WITHOUT_TILES = 2": "selects between two algorithms with the same result",
    "rows * q / (q - _MIN_ORDER)": "selects between two algorithms with the same result",
    '"cpu": 200000': "selects between two algorithms with the same result",
    "rng.random(labels.shape) <=": "a random number equals a rate with probability 2^-53",
    "pad(discounts.cumsum(0), (1, 1))": "no row counts more than k labels, so that the last entry is not read",
}
"""Parts of changed lines that change no result, with the reason."""


class Mutant(NamedTuple):
    """A change of one place of a file."""

    tests: str
    path: Path
    start: int
    end: int
    text: bytes

    def apply(self) -> tuple[bytes, str]:
        """Return the changed content, and the old and the new line."""
        old = self.path.read_bytes()
        new = old[: self.start] + self.text + old[self.end :]
        number = old[: self.start].count(b"\n")
        lines = [content.splitlines()[number].decode().strip() for content in (old, new)]
        return new, f"{self.path.relative_to(ROOT / 'src')}: {lines[0]} -> {lines[1]}"


def mutants() -> Iterator[Mutant]:
    """Yield all mutants of the core."""
    for tests, pattern in CORE.items():
        for path in sorted((ROOT / "src/ccmn").glob(pattern)):
            if not SKIPPED.search(str(path)):
                yield from (Mutant(tests, path, *place) for place in places(path.read_bytes()))


def places(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield start, end and new text of every operator and number, without annotations and error messages."""
    starts = [0, *(match.end() for match in re.finditer(b"\n", content))]

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    for node in walk(ast.parse(content)):
        pairs = []
        if isinstance(node, ast.BinOp):
            pairs = [(node.left, node.op, node.right)]
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            pairs = [(node.left, node.ops[0], node.comparators[0])]
        for left, operator, right in pairs:
            first, last = at(left.end_lineno, left.end_col_offset), at(right.lineno, right.col_offset)
            old, new = OPERATORS.get(type(operator), ("", ""))
            place = content[first:last].find(old.encode()) if old else -1
            if place >= 0:
                yield first + place, first + place + len(old), new.encode()
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            value = (not node.value) if isinstance(node.value, bool) else node.value * 2 if node.value else 1
            first, last = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
            yield first, last, repr(value).encode()


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes that compute something."""
    yield node
    for name, value in ast.iter_fields(node):
        for child in (value if isinstance(value, list) else [value]) if name not in NOT_COMPUTED else ():
            if isinstance(child, ast.AST) and not isinstance(child, (ast.Raise, ast.JoinedStr)):
                yield from walk(child)


def noticed(mutant: Mutant, seconds: float) -> bool:
    """Return whether a test of the folder fails, or runs into the time limit."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True)
        (Path(folder) / mutant.path.relative_to(ROOT / "src")).write_bytes(mutant.apply()[0])
        command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", f"tests/{mutant.tests}"]
        environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return True
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(done.stdout.decode()[-2000:])
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", nargs="+", choices=CORE, default=list(CORE))
    parser.add_argument("--seconds", type=float, default=600, help="time limit of the tests of one mutant")
    parser.add_argument("--log", type=Path, help="file with the results, which a second run continues")
    options = parser.parse_args()
    every = [mutant for mutant in mutants() if mutant.tests in options.folders]
    chosen = np.random.default_rng(options.seed).permutation(len(every))[: options.mutants]
    log = options.log.read_text().splitlines() if options.log and options.log.exists() else []
    known = dict(map(json.loads, log))
    for mutant in (every[i] for i in chosen):
        line = mutant.apply()[1]
        if line not in known:
            known[line] = noticed(mutant, options.seconds)
            if options.log:
                with options.log.open("a") as stream:
                    stream.write(json.dumps([line, known[line]]) + "\n")
    missed = [line for line, found in known.items() if not found]
    equivalent = {line for line in missed if any(part in line.partition(" -> ")[2] for part in EQUIVALENT)}
    print("\n".join(f"{'equivalent' if line in equivalent else 'missed'}: {line}" for line in missed))
    changing = len(known) - len(equivalent)
    print(f"{sum(known.values())} of {changing} mutants that change a result are noticed ({len(every)} in all)")
    sys.exit(sum(known.values()) < 0.9 * changing)


if __name__ == "__main__":
    main()
