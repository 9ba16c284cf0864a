"""Thresholds and the catalog of the partial multi-label methods."""

from __future__ import annotations

import pytest

from ccmn.paper import baselines
from ccmn.paper.baselines import BASELINES, PARTICLE, PartialLabelClassifier
from helpers import run_bare


def test_catalog_names_are_those_of_the_table():
    assert list(BASELINES) == ["PMLNI", "PARVLS", "PARMAP", "PMLLRS", "fPML", "ridge", "logistic"]
    assert BASELINES["PARMAP"].make(k=3).get_params()["k"] == 3
    assert (BASELINES["PARMAP"].make().variant, BASELINES["PARVLS"].make().variant) == ("map", "vls")
    with pytest.raises(ValueError, match="'FPML'; did you mean 'fPML'"):
        BASELINES["FPML"]


def test_settings_and_grids_are_constructor_parameters():
    for entry in BASELINES.values():
        assert {*entry.settings, *entry.search_grid} <= set(entry.estimator().get_params())


def test_every_estimator_is_in_the_catalog():
    found = {c for c in vars(baselines).values() if isinstance(c, type) and issubclass(c, PartialLabelClassifier)}
    assert found - {PartialLabelClassifier} == {entry.estimator for entry in BASELINES.values()}
    assert PARTICLE in found


def test_baselines_import_only_the_base_libraries():
    code = """
import ccmn.paper.baselines
import sys
assert "ccmn.models" not in sys.modules
print("fine")
"""
    assert run_bare(code) == "fine"
