"""Partial multi-label methods: estimators that learn from candidate label sets.

A candidate set contains the true labels of a sample and possibly false ones. The methods of the paper's comparison are
available as scikit-learn estimators and by name:

>>> from ccmn.paper.baselines import BASELINES
>>> BASELINES["PMLLRS"].make(beta=0.01)
PMLLRS(beta=0.01)
"""

from ccmn._registry import Registry
from ccmn.paper.baselines.candidate_regression import CandidateLogistic, CandidateRidge
from ccmn.paper.baselines.fpml import FPML
from ccmn.paper.baselines.particle import PARTICLE
from ccmn.paper.baselines.pml_estimator import Baseline, PartialLabelClassifier
from ccmn.paper.baselines.pml_lrs import PMLLRS
from ccmn.paper.baselines.pml_ni import PMLNI

_ENTRIES = (
    Baseline("PMLNI", PMLNI),
    Baseline("PARVLS", PARTICLE, {"variant": "vls"}),
    Baseline("PARMAP", PARTICLE, {"variant": "map"}),
    # The noise part of PML-LRS is nonzero only for beta below 1.
    Baseline(
        "PMLLRS",
        PMLLRS,
        search_grid={
            "gamma": (1e-3, 1e-2, 1e-1, 1.0),
            "beta": (1e-2, 1e-1),
            "eta": (1e-1, 1.0, 10.0),
        },
    ),
    # The ranks are 2, and a quarter, half and all of the labels.
    Baseline("fPML", FPML, search_grid={"rank": (2, 0.25, 0.5, 1.0)}),
    Baseline("ridge", CandidateRidge),
    Baseline("logistic", CandidateLogistic),
)

BASELINES: Registry[Baseline] = Registry("baseline", {entry.name: entry for entry in _ENTRIES})
"""The competing methods of table 3 under their names in the table, and two regressions without noise correction."""

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
