"""Docstrings of all public functions and classes follow the numpydoc standard."""

import dataclasses
import importlib
import inspect

import pytest

validation = pytest.importorskip("numpydoc.validate", reason="numpydoc is not installed: pip install numpydoc")

PACKAGES = (
    *("ccmn", "ccmn.audit", "ccmn.data", "ccmn.estimation", "ccmn.losses", "ccmn.metrics"),
    *("ccmn.models", "ccmn.noise", "ccmn.paper", "ccmn.paper.baselines", "ccmn.paper.theory", "ccmn.training"),
    "ccmn.votes",
)
CODES = {
    "GL08": "no docstring",
    "SS03": "the summary does not end with a period",
    "SS05": "the summary does not start with an imperative verb",
    "PR01": "parameters are not documented",
    "PR02": "documented parameters do not exist",
    "PR03": "parameters are in another order",
    "PR04": "a parameter has no type",
    "RT01": "no Returns section",
    "RT03": "the return value has no description",
    "EX01": "no Examples section",
}
"""Checks of numpydoc that are required, and their meanings."""
WITHOUT_EXAMPLES = ("ccmn.data.shards.", "ccmn.paper.", "ccmn.training.")
"""Examples would need files, processes or a server; the documentation pages show how to use these names."""


def public_objects() -> dict[str, object]:
    """Return the public functions and classes by the name of their definition."""
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("ccmn."):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


OBJECTS = public_objects()


def is_record(value: object) -> bool:
    """Return whether a value is a dataclass or a named tuple, whose fields have docstrings of their own."""
    return dataclasses.is_dataclass(value) or hasattr(value, "_fields")


def needs_example(name: str) -> bool:
    """Return whether an object needs an example: not records, abstract classes and functions of files."""
    value, short = OBJECTS[name], name.rpartition(".")[2]
    exempt = name.startswith(WITHOUT_EXAMPLES) or short.startswith(("read_", "write_"))
    return not exempt and not (inspect.isclass(value) and (inspect.isabstract(value) or is_record(value)))


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_docstring(name):
    errors = []
    for code, message in validation.validate(name)["errors"]:
        if code not in CODES or (code == "EX01" and not needs_example(name)):
            continue
        # Torch modules without a constructor take *args and **kwargs.
        if code == "PR01" and (is_record(OBJECTS[name]) or "**kwargs" in message):
            continue
        errors.append(f"{code}: {message}")
    assert not errors
