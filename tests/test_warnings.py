"""Category and place of warnings."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

import ccmn
from ccmn import CCMNClassifier, CorrectedClassifier, estimate_noise

RNG = np.random.default_rng(0)
X = RNG.normal(size=(593, 72)).astype("f4")
Y = (X @ RNG.normal(size=(72, 6)) + 3 * RNG.normal(size=(593, 6)) > 3).astype(int)


def test_category_and_line_of_the_caller():
    with pytest.warns(ccmn.NoiseWarning, match="below the minimum of 100") as caught:
        estimate_noise(X[:60], Y[:60])
    assert caught[0].filename == __file__


def test_ordinary_data_give_at_most_one_warning():
    grid = GridSearchCV(CorrectedClassifier(random_state=0), {"threshold": ["fixed", "f1"]}, cv=2)
    with warnings.catch_warnings(record=True) as caught:
        CorrectedClassifier(random_state=0).fit(X, Y)
        grid.fit(X, Y)
    assert not caught


def test_a_search_warns_once():
    search = GridSearchCV(CCMNClassifier(None, epochs=1, random_state=0), {"weight_decay": [0, 1e-4]}, cv=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X[:100], Y[:100])
    assert [warning.category for warning in caught] == [ccmn.NoiseWarning]
