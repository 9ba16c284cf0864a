"""The folder and its index say the same."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

import ccmn.metrics
from ccmn.metrics import METRICS

# What metrics are built of: per-row and per-block functions on tensors.
BUILDING_BLOCKS = ("_rows", "_from", "_over")
# Not metrics: what they share, what they are on soft labels (training chooses by it), scorers, and three at once.
OTHERS = (
    "__init__",
    "base",
    "corrected",
    "counting",
    "estimate",
    "exclusive",
    "expected",
    "posterior",
    "products",
    "scorers",
    "together",
)
FILES = [path.stem for path in Path(ccmn.metrics.__file__).parent.glob("*.py") if path.stem not in OTHERS]


def public_functions(file):
    module = import_module(f"ccmn.metrics.{file}")
    return {
        name: function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


@pytest.mark.parametrize("file", FILES)
def test_every_metric_is_in_the_index(file):
    functions = public_functions(file)
    metrics = {name: f for name, f in functions.items() if not name.endswith(BUILDING_BLOCKS)}
    assert metrics, f"{file}.py holds no metric"
    for name, function in metrics.items():
        assert name in METRICS, f"{file}.{name} has no row in METRICS"
        assert METRICS[name].function is function
    assert set(functions) <= set(ccmn.metrics.__all__)


def test_the_index_knows_nothing_else():
    assert set(METRICS) == {n for f in FILES for n in public_functions(f) if not n.endswith(BUILDING_BLOCKS)}


def test_rows_are_called_by_their_function_and_say_what_it_needs():
    for name, metric in METRICS.items():
        argument = list(inspect.signature(metric.function).parameters)[1]
        assert name == metric.name == metric.function.__name__
        assert argument == {"labels": "Y_pred", "scores": "scores"}[metric.needs]


def test_an_unknown_metric_names_the_known_ones():
    with pytest.raises(ValueError, match="unknown metric 'micro_f2'; did you mean 'micro_f1'"):
        METRICS["micro_f2"]


def test_every_metric_takes_noisy_labels():
    for metric in METRICS.values():
        assert inspect.signature(metric.function).parameters["noise"].default is None
