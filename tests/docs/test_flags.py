"""The page on flags lists every flag and quotes every warning of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import ccmn
from pages import DOCS

PAGE = (DOCS / "flags.md").read_text()
SOURCE = Path(ccmn.__file__).parent
WARNING = SOURCE / "models" / "monitor.py"
"""Module that composes a warning which another module issues."""


def trees(folder):
    return {path: ast.parse(path.read_text()) for path in sorted((SOURCE / folder).rglob("*.py"))}


def is_note(node):
    """Return whether an expression can be the note of a pair (code, note)."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and " " in node.value
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Name) and node.id == "note")


def is_code(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch("[a-z_]+", node.value)


def flags_of(tree):
    """Yield the codes in ``Flag(code, note)`` and in pairs ``(code, note)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Flag" and node.args:
            pair = node.args[:2]
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
            pair = node.elts
        else:
            continue
        if len(pair) == 2 and is_code(pair[0]) and is_note(pair[1]):
            yield pair[0].value


def test_sections_match_the_flags():
    codes = {code for tree in trees("estimation").values() for code in flags_of(tree)}
    assert {"wide_interval", "not_class_conditional", "clipped"} <= codes
    assert set(re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)) == codes


@pytest.mark.parametrize("folder", ["audit", "models", "metrics", "noise", "review"])
def test_only_estimation_creates_flags(folder):
    calls = [n for tree in trees(folder).values() for n in ast.walk(tree) if isinstance(n, ast.Call)]
    assert not [node for node in calls if getattr(node.func, "id", None) == "Flag"]


def literals(node):
    """Return the constant parts of a string or f-string, in order."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return [str(part.value) for part in node.values if isinstance(part, ast.Constant)]
    return []


def warnings_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn" and literals(node.args[0]):
            yield literals(node.args[0])


@pytest.mark.parametrize("folder", ["estimation", "models", "noise", "baselines", "metrics", "audit", "training"])
def test_every_warning_is_quoted(folder):
    page = " ".join(PAGE.split())
    for path, tree in trees(folder).items():
        for pieces in warnings_of(tree):
            # Short pieces such as "of" would match anything.
            for piece in (" ".join(piece.split()).strip(" .,:=") for piece in pieces):
                assert len(piece) < 12 or piece in page, f"{path.name}: {piece!r} is not on the page"


def test_the_warning_about_negative_risks_is_quoted():
    text = [piece for node in ast.walk(ast.parse(WARNING.read_text())) for piece in literals(node)]
    assert any("The estimated training risk is negative" in piece for piece in text)
    assert "The estimated training risk is negative" in PAGE
