"""The index of the baselines: names, settings and grids that their estimators know."""

from __future__ import annotations

import pytest

from bare import run_bare
from ccmn import baselines
from ccmn.baselines import BASELINES, PARTICLE, PartialLabelClassifier


def test_names_are_those_of_the_table():
    assert list(BASELINES) == ["PMLNI", "PARVLS", "PARMAP", "PMLLRS", "fPML", "ridge", "logistic"]
    assert BASELINES["PARMAP"].make(k=3).get_params()["k"] == 3
    assert (BASELINES["PARMAP"].make().variant, BASELINES["PARVLS"].make().variant) == ("map", "vls")
    with pytest.raises(ValueError, match="unknown baseline 'FPML'; did you mean 'fPML'"):
        BASELINES["FPML"]


@pytest.mark.parametrize("name", BASELINES)
def test_settings_and_grids_are_parameters(name):
    row = BASELINES[name]
    known = set(row.estimator().get_params())
    assert row.name == name
    assert {*row.settings, *row.search_grid} <= known


def test_only_what_has_no_published_defaults_is_searched():
    assert {name for name, row in BASELINES.items() if row.search_grid} == {"PMLLRS", "fPML"}
    assert max(BASELINES["PMLLRS"].search_grid["beta"]) < 1


def test_every_estimator_is_in_the_index():
    found = {c for c in vars(baselines).values() if isinstance(c, type) and issubclass(c, PartialLabelClassifier)}
    assert found - {PartialLabelClassifier} == {row.estimator for row in BASELINES.values()}
    assert PARTICLE in found


def test_needs_the_four_libraries_alone():
    code = """
import ccmn.baselines
import sys
assert "ccmn.models" not in sys.modules
print("fine")
"""
    assert run_bare(code) == "fine"
