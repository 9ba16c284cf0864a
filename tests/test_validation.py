"""What all public functions share: checks of names, numbers, seeds and members of registries; warnings."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

import ccmn
from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier, estimate_noise, infer_labels
from ccmn.data import MultiLabelData
from ccmn.losses import SURROGATES
from ccmn.paper.baselines import PMLLRS

NOISE = ClassConditionalNoise(0.1, 0.1, n_labels=2)
Y = np.tile([[0, 1], [1, 1]], (20, 1))


def labels_named(names):
    return ClassConditionalNoise([0.1, 0.2], [0.1, 0.2], label_names=names).label_names


def features_named(names):
    return MultiLabelData(X=np.eye(2), Y=np.eye(2), feature_names=names).feature_names


@pytest.mark.parametrize(("named", "what"), [(labels_named, "label"), (features_named, "feature")])
def test_names_are_unique_and_complete(named, what):
    assert named(["sea", 7]) == ("sea", "7")
    assert named(None) is None
    with pytest.raises(ValueError, match=rf"{what}_names must give one name per {what} \(2\); got 3 names"):
        named(["sea", "sky", "sun"])
    for wrong in ("ab", 5):
        with pytest.raises(ValueError, match=f"one name per {what}.*got {wrong!r}"):
            named(wrong)
    with pytest.raises(ValueError, match=f"{what}_names must be unique; '1' occurs more than once"):
        named([1, "1"])


def test_messages_name_at_most_five_labels():
    with pytest.raises(ValueError, match=r"labels 0, 1, 2, 3, 4 and 2 more \(of 7\)"):
        ClassConditionalNoise([0.5] * 7, [0.6] * 7)
    with pytest.raises(ValueError, match=r"label 'sky' \(of 2\)"):
        ClassConditionalNoise([0.1, 0.5], [0.1, 0.6], label_names=["sea", "sky"])


@pytest.mark.parametrize(("value", "message"), [("much", "must be a number"), (0, "above 0; got 0"), (np.nan, "nan")])
def test_numbers_outside_an_open_interval(value, message):
    with pytest.raises(ValueError, match=f"tol .*{message}"):
        PMLLRS(tol=value).fit(np.eye(40), Y)


def test_random_states():
    def drawn(seed):
        return NOISE.corrupt(np.zeros((99, 2)), random_state=seed).tolist()

    for make in (lambda: 0, lambda: np.int64(3), lambda: np.random.SeedSequence(5), lambda: np.random.RandomState(0)):
        assert drawn(make()) == drawn(make())
    assert drawn(None) != drawn(None)
    rng = np.random.default_rng(0)
    assert drawn(rng) != drawn(rng)  # the stream of a generator continues
    for wrong, error in ((-1, ValueError), ("0", TypeError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="random_state must"):
            infer_labels(np.zeros((3, 2, 1)), random_state=wrong)


def test_registries_are_mappings_that_name_their_members():
    assert "hinge" in SURROGATES
    assert len(SURROGATES) == len(list(SURROGATES)) == 4
    assert repr(SURROGATES).startswith("Registry(surrogate: ")
    for wrong, message in (("hing", "'hing'; did you mean 'hinge'\\?"), ("xyz", "'xyz'\\."), (7, "7")):
        with pytest.raises(ValueError, match=f"unknown surrogate {message}.*Known: .*square"):
            SURROGATES[wrong]


# -- Category and place of warnings

RNG = np.random.default_rng(0)
X = RNG.normal(size=(593, 72)).astype("f4")
LABELS = (X @ RNG.normal(size=(72, 6)) + 3 * RNG.normal(size=(593, 6)) > 3).astype(int)


def test_category_and_line_of_the_caller():
    with pytest.warns(ccmn.NoiseWarning, match="below the minimum of 100") as caught:
        estimate_noise(X[:60], LABELS[:60])
    assert caught[0].filename == __file__


def test_ordinary_data_give_at_most_one_warning():
    grid = GridSearchCV(CorrectedClassifier(random_state=0), {"threshold": ["fixed", "f1"]}, cv=2)
    with warnings.catch_warnings(record=True) as caught:
        CorrectedClassifier(random_state=0).fit(X, LABELS)
        grid.fit(X, LABELS)
    assert not caught


def test_a_search_warns_once():
    search = GridSearchCV(CCMNClassifier(None, epochs=1, random_state=0), {"weight_decay": [0, 1e-4]}, cv=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X[:100], LABELS[:100])
    assert [warning.category for warning in caught] == [ccmn.NoiseWarning]
