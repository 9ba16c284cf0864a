"""scikit-learn's estimator checks, cloning and model selection."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import label_ranking_average_precision_score, make_scorer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from ccmn.paper.baselines import BASELINES, PMLLRS
from helpers import sklearn_checks
from paper.baselines import reference

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


def test_grid_search_in_a_pipeline():
    X, _, S = reference.make_task(n=40)
    scorer = make_scorer(label_ranking_average_precision_score, response_method="decision_function")
    grid = {f"pmllrs__{name}": values[:2] for name, values in BASELINES["PMLLRS"].search_grid.items()}
    search = GridSearchCV(
        make_pipeline(MinMaxScaler((-1, 1)), PMLLRS(max_iter=50)),
        grid,
        cv=KFold(2, shuffle=True, random_state=0),
        scoring=scorer,
    )
    with pytest.warns(UserWarning, match="max_iter=50"):
        search.fit(X, S)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X).shape == S.shape
