"""Size of the repository: statements, lines, constants, public names, and how many functions one call executes.

``python tests/size.py`` prints the measurements and fails if one exceeds its limit. The limits only ever decrease.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ccmn"
PARTS = ("data", "app", "paper")
"""Folders with a limit of their own; everything else is the library."""
STATISTICS = ("estimation", "models", "audit")
DOCSTRING_OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

LIMITS = {
    "statements": 14_900,
    "lines of the library": 15_000,
    "lines of data": 4500,
    "lines of app": 6600,
    "lines of paper": 3950,
    "files over 600 lines": 0,
    "numeric constants": 265,
    "float literals of the statistics": 65,
    "public names": 70,
    "functions of default fit": 74,
    "modules of default fit": 17,
    "functions of fit with the ranking loss": 94,
    "modules of fit with the ranking loss": 19,
    "functions of one ranking loss": 13,
    "modules of one ranking loss": 5,
    "lines of tests": 21_000,
    "imports of inner modules in tests": 63,
    "lines of benchmarks": 2200,
    "benchmark scripts": 13,
    "words of the README": 950,
    "words of the documentation": 20_000,
    "make targets": 10,
}
"""Largest allowed value of each measurement."""


def lines_of(pattern: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in ROOT.glob(pattern))


def words_of(*patterns: str) -> int:
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return sum(len(path.read_text().split()) for path in paths if not {"_build", "generated"} & set(path.parts))


def is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def constants_of(tree: ast.Module) -> int:
    """Return the number of upper-case names of a module that hold numbers."""
    count = 0
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and any(map(is_number, ast.walk(node.value))):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            count += sum(name.id.lstrip("_").isupper() for name in names)
    return count


def source_measures() -> dict[str, int]:
    found = {
        "statements": 0,
        "numeric constants": 0,
        "float literals of the statistics": 0,
        **{f"lines of {part}": 0 for part in ("the library", *PARTS)},
        "files over 600 lines": 0,
    }
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        docstrings = {id(n.body[0]) for n in ast.walk(tree) if isinstance(n, DOCSTRING_OWNERS) and ast.get_docstring(n)}
        found["statements"] += sum(isinstance(n, ast.stmt) and id(n) not in docstrings for n in ast.walk(tree))
        found["numeric constants"] += constants_of(tree)
        folder, length = path.relative_to(SOURCE).parts[0], len(path.read_text().splitlines())
        found[f"lines of {folder if folder in PARTS else 'the library'}"] += length
        found["files over 600 lines"] += length > 600 and "cuda" not in path.name
        if folder in STATISTICS:
            floats = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, float)]
            found["float literals of the statistics"] += sum(
                value not in (0.0, 0.5, 1.0, 2.0) and not 0 < abs(value) <= 1e-6 for value in floats
            )
    return found


def inner_imports() -> int:
    """Return how often tests import a module below the packages of ccmn, or one whose name starts with "_"."""
    count = 0
    for path in ROOT.glob("tests/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            if isinstance(node, ast.ImportFrom):
                package = node.module or ""
                below = SOURCE.joinpath(*package.split(".")[1:])
                modules = [f"{package}.{name}" for name in names if (below / f"{name}.py").exists()]
                names = [package, *(modules if package.startswith("ccmn.") else [])]
            for parts in (name.split(".") for name in names):
                public = parts[:2] == ["ccmn", "paper"] and len(parts) <= 3
                inner = len(parts) >= 3 or any(part.startswith("_") for part in parts)
                count += parts[0] == "ccmn" and inner and not public
    return count


def public_names() -> int:
    """Return the number of names in the ``__all__`` of ccmn, its packages and those of ccmn.paper and ccmn.app."""
    import ccmn
    import ccmn.app
    import ccmn.paper

    modules = ["ccmn", *(f"ccmn.{m.name}" for m in pkgutil.iter_modules(ccmn.__path__) if not m.name.startswith("_"))]
    for parent in (ccmn.paper, ccmn.app):
        modules += [f"{parent.__name__}.{m.name}" for m in pkgutil.iter_modules(parent.__path__) if m.ispkg]
    names = set()
    for module in map(importlib.import_module, modules):
        listed = getattr(module, "__all__", ())
        names |= {name for name in listed if not inspect.ismodule(getattr(module, name, None))}
    return len(names)


def functions_of(call: Callable[[], object]) -> tuple[int, int]:
    """Return the numbers of functions and of modules of ccmn that a call executes."""
    seen = set()

    def profile(frame: object, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and not code.co_name.startswith("<"):
            seen.add((code.co_filename, getattr(code, "co_qualname", code.co_name)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sys.setprofile(profile)
            threading.setprofile(profile)
            call()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return len(seen), len({file for file, _ in seen})


def walks() -> dict[str, int]:
    import numpy as np
    import torch

    import ccmn

    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)).astype("f4")
    Y = (X @ rng.normal(size=(6, 4)) > 0.3).astype(int)
    noise = ccmn.ClassConditionalNoise(0.2, 0.1, n_labels=4)
    noisy = noise.corrupt(Y, random_state=0)
    loss, scores, labels = ccmn.RankingLoss(noise=noise), torch.zeros(5, 5, requires_grad=True), torch.tensor(noisy[:5])
    calls = {
        "default fit": lambda: ccmn.CorrectedClassifier(random_state=0).fit(X, noisy),
        "fit with the ranking loss": lambda: ccmn.CCMNClassifier(noise, epochs=3, random_state=0).fit(X, noisy),
        "one ranking loss": lambda: loss(scores, labels),
    }
    calls["default fit"]()  # imports and caches
    found = {}
    for name, call in calls.items():
        found[f"functions of {name}"], found[f"modules of {name}"] = functions_of(call)
    return found


def measure() -> dict[str, int]:
    return {
        **source_measures(),
        "public names": public_names(),
        **walks(),
        "lines of tests": lines_of("tests/**/*.py"),
        "imports of inner modules in tests": inner_imports(),
        "lines of benchmarks": lines_of("benchmarks/*.py"),
        "benchmark scripts": len(list(ROOT.glob("benchmarks/*.py"))),
        "words of the README": words_of("README.md"),
        "words of the documentation": words_of("docs/**/*.md", "docs/**/*.rst"),
        "make targets": len(re.findall(r"^[a-z][a-z-]*:", (ROOT / "Makefile").read_text(), re.MULTILINE)),
    }


if __name__ == "__main__":
    measured = measure()
    for what, value in measured.items():
        print(f"{what}: {value}" + (f" (limit {LIMITS[what]})" if what in LIMITS else ""))
    if any(value > LIMITS.get(what, value) for what, value in measured.items()):
        sys.exit("a limit is exceeded: delete something, or say in the commit why the limit must increase")
