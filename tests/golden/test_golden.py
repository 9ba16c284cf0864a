"""Comparison of all public computations with stored values; make_golden.py computes and explains them."""

import json

import numpy as np
import pytest

from golden.make_golden import EXACT, PATH, TOLERANCE, compute

GOLDEN = json.loads(PATH.read_text())


def check(section, name, group, relative):
    expected, actual = GOLDEN[section][name], compute(group)
    assert list(actual) == list(expected)
    wrong = {key: (actual[key], expected[key]) for key in expected if not close(actual[key], expected[key], relative)}
    assert not wrong


def close(actual, expected, relative):
    """Return whether the entries are equal up to a share of the largest one, which is the norm of a large array."""
    error = np.abs(np.subtract(actual, expected)) if len(actual) == len(expected) else np.array([np.inf])
    return bool(error.max() <= relative * np.abs(expected).max())


@pytest.mark.parametrize("name", EXACT)
def test_exact_values(name):
    check("exact", name, EXACT[name], 1e-10)


@pytest.mark.parametrize("name", TOLERANCE)
def test_values_of_procedures(name):
    check("tolerance", name, TOLERANCE[name], 1e-6)
