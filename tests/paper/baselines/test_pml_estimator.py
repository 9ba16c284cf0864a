"""Catalog of the partial multi-label methods, scikit-learn's checks, linear systems and proximal operators."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from ccmn.paper.baselines import BASELINES, PMLLRS
from ccmn.paper.baselines.pml_estimator import (
    ShiftedGram,
    shrink_singular_values,
    shrink_singular_values_tall,
    soft_threshold,
)
from helpers import LABELS_ONLY, sklearn_checks
from paper.baselines import reference

EXPECTED = (
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_estimators_dtypes",
    "check_classifier_data_not_an_array",
    "check_fit2d_1feature",
)


def test_catalog_names_are_those_of_the_table():
    assert list(BASELINES) == ["PMLNI", "PARVLS", "PARMAP", "PMLLRS", "fPML", "ridge", "logistic"]
    assert BASELINES["PARMAP"].make(k=3).get_params()["k"] == 3
    assert (BASELINES["PARMAP"].make().variant, BASELINES["PARVLS"].make().variant) == ("map", "vls")
    with pytest.raises(ValueError, match="'FPML'; did you mean 'fPML'"):
        BASELINES["FPML"]


@pytest.mark.filterwarnings("ignore")
@sklearn_checks(
    # PML-LRS needs many iterations to converge on the random targets of the checks.
    [*(entry.make() for name, entry in BASELINES.items() if name != "PMLLRS"), PMLLRS(max_iter=200)],
    {name: LABELS_ONLY[name] for name in EXPECTED},
)
def test_check_estimator(estimator, check):
    check(estimator)


SEEDS, WEIGHTS = st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 1.0, 3.0, 100.0, np.inf])


@pytest.mark.parametrize("shape", [(30, 5), (5, 30), (6, 6)])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_shifted_gram_solves_for_every_shift(shape, container):
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal(shape)
    Phi[:, -1] = Phi[:, 0]  # not of full rank
    M = rng.standard_normal((3, shape[1]))
    gram = ShiftedGram(container(Phi))
    for shift in (1e-3, 1.0, 50.0):
        expected = M @ np.linalg.inv(Phi.T @ Phi + shift * np.eye(shape[1]))
        assert gram.solve(M, shift) == pytest.approx(expected, rel=1e-8, abs=1e-8)
        assert gram.solver(shift)(M) == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert gram.solve(M, 0.0) == pytest.approx(M @ np.linalg.pinv(Phi.T @ Phi, rcond=1e-10), abs=1e-8)


@given(SEEDS, WEIGHTS)
def test_proximal_operators_match_their_definitions(seed, t):
    A = 2 * np.random.default_rng(seed).standard_normal((7, 3))
    assert soft_threshold(A, t) == pytest.approx(reference.soft(A, t), abs=1e-14)
    assert shrink_singular_values(A, t) == pytest.approx(reference.svt(A, t), abs=1e-12)
    assert shrink_singular_values_tall(A, t) == pytest.approx(reference.svt(A, t), abs=1e-11)
