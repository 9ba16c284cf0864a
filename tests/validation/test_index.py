"""Every check stands in the index, and has one home."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import ccmn.validation


def test_every_check_is_in_the_index():
    homes = [
        importlib.import_module(f"ccmn.validation.{module.name}")
        for module in pkgutil.iter_modules(ccmn.validation.__path__)
    ]
    checks = {
        name
        for home in homes
        for name, function in inspect.getmembers(home, inspect.isfunction)
        if function.__module__ == home.__name__ and not name.startswith("_")
    }
    assert checks | {"FloatArray"} == set(ccmn.validation.__all__)
