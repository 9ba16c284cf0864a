"""Registry of the metrics, and scorers in scikit-learn tools."""

import pickle

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ccmn import CCMNClassifier, ClassConditionalNoise
from ccmn.data import make_noisy_multilabel
from ccmn.metrics import METRICS, make_noisy_scorer

NOISE = ClassConditionalNoise([0.2, 0.1, 0.1], [0.1, 0.2, 0.1])
TASK = make_noisy_multilabel(900, 6, 3, strength=6, noise=NOISE, random_state=0)


def ridge(**settings):
    return CCMNClassifier(noise=NOISE, loss="hamming", surrogate="square", epochs=20, random_state=0, **settings)


def test_all_metrics_in_cross_validate():
    scoring = {name: make_noisy_scorer(name, NOISE) for name in METRICS}
    found = cross_validate(ridge(), TASK.X, TASK.Y_noisy, scoring=scoring, cv=3, return_estimator=True)
    fold = TASK.X[:300], TASK.Y_noisy[:300], TASK.Y[:300]
    for name, metric in METRICS.items():
        scorer, clf = pickle.loads(pickle.dumps(scoring[name])), found["estimator"][0]
        given = clf.predict(fold[0]) if metric.needs == "labels" else clf.decision_function(fold[0])
        sign = 1 if metric.greater_is_better else -1
        estimate = metric.function(fold[1], given, noise=NOISE)
        assert found[f"test_{name}"][0] == sign * estimate == scorer(clf, *fold[:2])
        clean = make_noisy_scorer(name)
        assert clean(clf, fold[0], fold[2]) == sign * metric.function(fold[2], given)


def test_grid_search():
    """The smallest l2 of the path varies; the larger one is far too strong."""
    model = make_pipeline(StandardScaler(), ridge())
    grid = {"ccmnclassifier__weight_decay": [1e-4, 1e4]}
    search = GridSearchCV(model, grid, scoring=make_noisy_scorer("hamming_loss", NOISE), cv=3).fit(TASK.X, TASK.Y_noisy)
    assert search.best_params_ == {"ccmnclassifier__weight_decay": 1e-4}
    wrong = (search.predict(TASK.X) != TASK.Y).mean()
    assert -search.best_score_ == pytest.approx(wrong, abs=0.04)


def test_classifier_with_list_of_probabilities():
    forest = RandomForestClassifier(20, random_state=0).fit(TASK.X, np.column_stack([TASK.Y[:, :2], np.zeros(900)]))
    assert make_noisy_scorer("ranking_loss")(forest, TASK.X, TASK.Y) < 0
    expected = np.column_stack([p[:, 1] for p in forest.predict_proba(TASK.X)[:2]])
    scorer = make_noisy_scorer("macro_auc", ClassConditionalNoise(0.0, 0.0, n_labels=3))
    Y = np.column_stack([TASK.Y[:, :2], np.zeros(900)])
    assert scorer(forest, TASK.X, Y) == pytest.approx(METRICS["macro_auc"].function(TASK.Y[:, :2], expected))


def test_unknown_metric():
    with pytest.raises(ValueError, match="unknown metric 'hamming'; did you mean 'hamming_loss'"):
        make_noisy_scorer("hamming")
