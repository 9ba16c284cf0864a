"""CorrectedClassifier: the formula, classifiers, containers and the checks of scikit-learn."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ccmn.data import load_digit_scenes, make_noisy_multilabel
from ccmn.metrics import hamming_loss
from ccmn.models.corrected_classifier import MARGIN, CorrectedClassifier, clip_in_order
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise, TransitionNoise
from helpers import sklearn_checks

NOISE = ClassConditionalNoise([0.1, 0.2, 0.3], [0.5, 0.3, 0.1])
ONE_COLUMN = "multilabel only: the check expects a 1-d answer to a target of one column"
TWO_VALUES = "labels are 0/1: the check's one column holds 1 and 2"
EXPECTED = {
    "check_classifiers_classes": "multilabel only: the check fits a 1-d target",
    "check_decision_proba_consistency": "multilabel only: the check fits a 1-d target",
    "check_classifiers_train": ONE_COLUMN,
    "check_estimator_sparse_array": ONE_COLUMN,
    "check_estimator_sparse_matrix": ONE_COLUMN,
    "check_estimators_dtypes": TWO_VALUES,
    "check_classifier_data_not_an_array": TWO_VALUES,
    "check_fit2d_1feature": TWO_VALUES,
}


@pytest.fixture(scope="module")
def task():
    return make_noisy_multilabel(1200, 5, 3, strength=8, noise=NOISE, random_state=0)


@sklearn_checks(
    [CorrectedClassifier(LogisticRegression(), None), CorrectedClassifier(LogisticRegression(), "partial")],
    EXPECTED,
)
@pytest.mark.filterwarnings("ignore")
def test_sklearn(estimator, check):
    check(estimator)


def test_formula(task):
    model = CorrectedClassifier(LogisticRegression(), NOISE).fit(task.X, task.Y_noisy)
    noisy = np.column_stack([LogisticRegression().fit(task.X, y).predict_proba(task.X)[:, 1] for y in task.Y_noisy.T])
    eta = (noisy - NOISE.rho_neg) / (1 - NOISE.rho_pos - NOISE.rho_neg)
    proba = model.predict_proba(task.X)
    np.testing.assert_allclose(proba, np.clip(eta, 0, 1), atol=2 * MARGIN)
    assert ((proba > 0) & (proba < 1)).all()
    cut = (1 - NOISE.rho_pos + NOISE.rho_neg) / 2
    np.testing.assert_array_equal(model.predict(task.X), noisy >= cut)
    np.testing.assert_array_equal(model.predict(task.X), model.decision_function(task.X) >= 0)
    for j in range(3):
        order = np.argsort(noisy[:, j])
        assert (np.diff(proba[order, j]) >= 0).all()
        assert len(np.unique(proba[:, j])) == len(np.unique(noisy[:, j]))


def test_clip_in_order_keeps_the_order_at_both_ends():
    values = np.concatenate([np.linspace(-0.6, 1.7, 10_001), [-0.6, 1.7, 0.0, 1.0, MARGIN, 1 - MARGIN]])
    inside = clip_in_order(values, np.array(-0.6), np.array(1.7))
    assert (inside > 0).all()
    assert (inside < 1).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(inside[order])[np.diff(values[order]) > 0] > 0).all()
    assert (
        clip_in_order(np.array([0.0, 0.5, 1.0]), np.array(0.0), np.array(1.0)) == [MARGIN / 2, 0.5, 1 - MARGIN / 2]
    ).all()


def test_without_noise_probabilities_are_those_of_the_classifier(task):
    model = CorrectedClassifier(LogisticRegression(), None).fit(task.X, task.Y_noisy)
    plain = MultiOutputClassifier(LogisticRegression()).fit(task.X, task.Y_noisy)
    np.testing.assert_array_equal(model.predict(task.X), plain.predict(task.X))


@pytest.mark.parametrize("noise", [PartialNoise(0.6, n_labels=10), "partial"], ids=["known", "estimated"])
def test_outperforms_the_uncorrected_classifier_on_digit_scenes(noise):
    data = load_digit_scenes(2000)
    X, Y = data.X, data.Y
    noisy = PartialNoise(0.6, n_labels=10).corrupt(Y, random_state=0)
    plain, corrected = (
        CorrectedClassifier(LogisticRegression(C=0.01), how, random_state=0).fit(X[:1000], noisy[:1000])
        for how in (None, noise)
    )
    assert hamming_loss(Y[1000:], corrected.predict(X[1000:])) < 0.25
    assert hamming_loss(Y[1000:], plain.predict(X[1000:])) > 0.6


@pytest.mark.parametrize(
    "estimator",
    [
        GaussianNB(),
        HistGradientBoostingClassifier(max_iter=10),
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(10, min_samples_leaf=20, random_state=0),
        MLPClassifier((8,), learning_rate_init=0.02, max_iter=30, random_state=0),
        MultiOutputClassifier(LogisticRegression()),
        ClassifierChain(LogisticRegression()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_any_classifier(estimator, task):
    Y = task.Y_noisy.astype(float)
    model = CorrectedClassifier(estimator, NOISE).fit(task.X, Y)
    together = type(estimator).__name__ in (
        "RandomForestClassifier",
        "MLPClassifier",
        "MultiOutputClassifier",
        "ClassifierChain",
    )
    assert len(model.estimators_) == (1 if together else 3)
    accuracy = (model.predict(task.X) == task.Y).mean()
    plain = (CorrectedClassifier(estimator, None).fit(task.X, Y).predict(task.X) == task.Y).mean()
    assert accuracy > max(plain, 0.75)
    # Labels that are not observed everywhere are fitted one by one; constant labels are not fitted.
    Y[::4, 0] = np.nan
    Y[:, 1] = 0
    model = CorrectedClassifier(estimator, NOISE).fit(task.X, Y)
    assert len(model.estimators_) == 2
    proba = model.predict_proba(task.X)
    assert np.isfinite(proba).all()
    assert not model.predict(task.X)[:, 1].any()
    assert ((proba[:, 0] > 0.5) == task.Y[:, 0]).mean() > 0.75


def test_constant_labels_need_no_classifier():
    Y = np.tile([[1.0, 0.0, np.nan]], (9, 1))
    Y[0, 2] = 1
    model = CorrectedClassifier(LogisticRegression(), None).fit(np.arange(18.0).reshape(9, 2), Y)
    assert model.estimators_ == []
    assert model.predict(np.zeros((2, 2))).tolist() == [[1, 0, 1], [1, 0, 1]]


@pytest.mark.parametrize(("noise", "kind"), [("partial", PartialNoise), ("missing", MissingNoise)])
@pytest.mark.filterwarnings("ignore:Noise rates of label")
def test_estimated_rates(noise, kind):
    true = kind([0.3, 0.4])
    data = make_noisy_multilabel(1500, 4, 2, strength=20, noise=true, random_state=0)
    model = CorrectedClassifier(LogisticRegression(), noise, random_state=0).fit(data.X, data.Y_noisy)
    assert isinstance(model.noise_, kind)
    assert model.rates_.settings["scores"] == "out of fold"
    assert np.abs(model.noise_.rho_pos + model.noise_.rho_neg - [0.3, 0.4]).max() < 0.15
    again = CorrectedClassifier(LogisticRegression(), noise, random_state=0).fit(data.X, data.Y_noisy)
    assert again.noise_ == model.noise_


def test_estimated_rates_of_both_types(task):
    model = CorrectedClassifier(LogisticRegression(), random_state=0).fit(task.X, task.Y_noisy)
    assert (model.predict(task.X) == task.Y).mean() > 0.75
    assert set(model.rates_.method) == {"profile"}


def test_rates_are_estimated_from_out_of_fold_probabilities_without_numeric_features(task):
    texts = [" ".join(f"w{j}{'+' if v > 0 else '-'}" for j, v in enumerate(row)) for row in task.X]
    words = make_pipeline(TfidfVectorizer(token_pattern=r"\S+"), LogisticRegression())
    with pytest.warns(UserWarning, match="upper bounds"):
        model = CorrectedClassifier(words, random_state=0).fit(texts, task.Y_noisy)
    assert model.rates_.settings["scores"] == "pred_proba"


def test_containers(task):
    Y = task.Y_noisy
    expected = CorrectedClassifier(LogisticRegression(), NOISE).fit(task.X, Y).predict(task.X)
    for labels in (pd.DataFrame(Y), scipy.sparse.csr_array(Y), Y.tolist(), Y.astype(bool)):
        model = CorrectedClassifier(LogisticRegression(), NOISE).fit(task.X, labels)
        np.testing.assert_array_equal(model.predict(task.X), expected)
    X = pd.DataFrame(task.X, columns=list("abcde"))
    model = CorrectedClassifier(LogisticRegression(), NOISE).fit(X, Y)
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.n_features_in_ == 5
    sparse = CorrectedClassifier(LogisticRegression(), NOISE).fit(scipy.sparse.csr_array(task.X), Y)
    assert (sparse.predict(scipy.sparse.csr_array(task.X)) == expected).mean() > 0.99
    named = CorrectedClassifier(LogisticRegression(), None).fit(X, pd.DataFrame(Y, columns=["sea", "sky", "sun"]))
    assert named.noise_.label_names == ("sea", "sky", "sun")


def test_texts():
    rng = np.random.default_rng(0)
    Y = (rng.random((400, 2)) < 0.4).astype(int)
    words = [("wave salt ", "cloud blue ")[j] for j in range(2)]
    texts = ["there is " + "".join(words[j] * y for j, y in enumerate(row)) + "to see" for row in Y]
    noisy = PartialNoise([0.6, 0.6]).corrupt(Y, random_state=0)
    for X in (texts, np.array(texts), pd.Series(texts, index=range(7, 407))):
        model = CorrectedClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression()), "partial", random_state=0)
        assert (model.fit(X, noisy).predict(X) == Y).mean() > 0.95
    Y_missing = noisy.astype(float)
    Y_missing[:50, 0] = np.nan
    assert model.fit(texts, Y_missing).predict(texts).shape == (400, 2)


def test_clone_parameters_grid_search_and_pickle(task):
    model = CorrectedClassifier(LogisticRegression(C=2), NOISE)
    assert clone(model).get_params()["estimator__C"] == 2
    assert model.set_params(estimator__C=3, noise=None).estimator.C == 3
    folds = KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(CorrectedClassifier(LogisticRegression(), NOISE), {"estimator__C": [1e-4, 1.0]}, cv=folds)
    search.fit(task.X, task.Y_noisy)
    assert search.best_params_["estimator__C"] in (1e-4, 1.0)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    held_out = cross_val_predict(model.set_params(noise=NOISE), task.X, task.Y_noisy, cv=folds)
    assert (held_out == task.Y).mean() > 0.75
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(task.X), search.predict_proba(task.X))


def test_single_label_is_a_column(task):
    model = CorrectedClassifier(LogisticRegression(), PartialNoise([0.5])).fit(task.X, task.Y_noisy[:, :1])
    assert model.predict_proba(task.X).shape == model.predict(task.X).shape == (1200, 1)
    forest = CorrectedClassifier(RandomForestClassifier(5), PartialNoise([0.5])).fit(task.X, task.Y_noisy[:, :1])
    assert forest.predict_proba(task.X).shape == (1200, 1)


@pytest.mark.parametrize("noise", [NOISE, "both"])
def test_bfloat16_tensors_are_converted_to_float32(task, noise):
    X, Y = torch.tensor(task.X[:300]).bfloat16(), task.Y_noisy[:300].astype(float)
    Y[:5, 0] = np.nan
    array = X.float().numpy()
    model, expected = (CorrectedClassifier(LogisticRegression(), noise, random_state=0).fit(x, Y) for x in (X, array))
    for method in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(model, method)(X), getattr(expected, method)(array))


def test_error_messages(task):
    X, Y = task.X, task.Y_noisy
    with pytest.raises(TypeError, match=r"must have predict_proba; Perceptron has none\. Wrap it in"):
        CorrectedClassifier(Perceptron(), NOISE).fit(X, Y)
    for noise in ("estimated", 0.3, TransitionNoise(np.eye(3))):
        with pytest.raises(ValueError, match=r"noise must be a model with rates per label.*or 'estimate'"):
            CorrectedClassifier(DummyClassifier(), noise).fit(X, Y)
    with pytest.raises(ValueError, match=r"y must have 3 labels.*got shape \(1200, 2\)"):
        CorrectedClassifier(DummyClassifier(), NOISE).fit(X, Y[:, :2])
    with pytest.raises(ValueError, match=r"got shape \(1200,\). A single label is y.reshape\(-1, 1\)"):
        CorrectedClassifier(DummyClassifier(), NOISE).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="y must be 0 or 1"):
        CorrectedClassifier(DummyClassifier(), NOISE).fit(X, 2 * Y.astype(int) - 1)
    with pytest.raises(ValueError, match="only NaN"):
        CorrectedClassifier(DummyClassifier(), NOISE).fit(X, np.full(Y.shape, np.nan))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CorrectedClassifier(DummyClassifier(), NOISE).fit(X[1:], Y)
    with pytest.raises(ValueError, match="cannot be estimated from 1 sample"):
        CorrectedClassifier(DummyClassifier()).fit(X[:1], Y[:1])
