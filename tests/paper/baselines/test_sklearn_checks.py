"""scikit-learn's estimator checks, cloning and model selection."""

from __future__ import annotations

import pytest

from ccmn.paper.baselines import BASELINES, PMLLRS
from helpers import sklearn_checks

EXPECTED = {
    "check_classifiers_classes": "multilabel only: the check fits a 1-d target",
    "check_classifiers_train": "multilabel only: the check expects a 1-d prediction for a one-column target",
    "check_estimators_dtypes": "labels are 0/1: the check uses a column of 1 and 2",
    "check_classifier_data_not_an_array": "labels are 0/1: the check uses a column of 1 and 2",
    "check_fit2d_1feature": "labels are 0/1: the check uses a column of 1 and 2",
}


@pytest.mark.filterwarnings("ignore")
@sklearn_checks(
    [
        # PML-LRS needs many iterations to converge on the random targets of the checks.
        *(entry.make() for name, entry in BASELINES.items() if name != "PMLLRS"),
        PMLLRS(max_iter=200),
    ],
    EXPECTED,
)
def test_check_estimator(estimator, check):
    check(estimator)
