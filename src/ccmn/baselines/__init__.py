"""Partial multi-label methods to compare with: one file (or folder) per method, this index, nothing else.

from ccmn.baselines import BASELINES
clf = BASELINES["PMLLRS"].make(beta=0.01).fit(X, candidates)
"""

from __future__ import annotations

from ccmn._registry import Catalogue
from ccmn.baselines.base import PartialLabelClassifier
from ccmn.baselines.entry import Baseline
from ccmn.baselines.fpml import FPML
from ccmn.baselines.logistic import CandidateLogistic
from ccmn.baselines.particle import PARTICLE
from ccmn.baselines.pml_lrs import PMLLRS
from ccmn.baselines.pml_ni import PMLNI
from ccmn.baselines.ridge import CandidateRidge

_ROWS = (
    Baseline("PMLNI", PMLNI),
    Baseline("PARVLS", PARTICLE, {"variant": "vls"}),
    Baseline("PARMAP", PARTICLE, {"variant": "map"}),
    # The sparse part acts only for beta below 1.
    Baseline(
        "PMLLRS",
        PMLLRS,
        search_grid={
            "gamma": (1e-3, 1e-2, 1e-1, 1.0),
            "beta": (1e-2, 1e-1),
            "eta": (1e-1, 1.0, 10.0),
        },
    ),
    # A float is a share of the labels: 2, a quarter, half and all of them.
    Baseline("fPML", FPML, search_grid={"rank": (2, 0.25, 0.5, 1.0)}),
    Baseline("ridge", CandidateRidge),
    Baseline("logistic", CandidateLogistic),
)

BASELINES: Catalogue[Baseline] = Catalogue("baseline", {row.name: row for row in _ROWS})
"""The rivals of table 3 under their names there, and two that take candidates at their word."""

__all__ = [
    "BASELINES",
    "FPML",
    "PARTICLE",
    "PMLLRS",
    "PMLNI",
    "Baseline",
    "CandidateLogistic",
    "CandidateRidge",
    "PartialLabelClassifier",
]
