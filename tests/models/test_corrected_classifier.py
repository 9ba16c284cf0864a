"""CorrectedClassifier: the formula, classifiers, containers and the checks of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.metrics import log_loss
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ccmn.data import make_noisy_multilabel
from ccmn.metrics import hamming_loss
from ccmn.models import CorrectedClassifier, load_model
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise, TransitionNoise
from helpers import LABELS_ONLY, rewrite_model, sklearn_checks

NOISE = ClassConditionalNoise([0.1, 0.2, 0.3], [0.5, 0.3, 0.1])


@pytest.fixture(scope="module")
def task():
    return make_noisy_multilabel(1200, 5, 3, strength=8, noise=NOISE, random_state=0)


@sklearn_checks(
    [
        CorrectedClassifier(noise=None),
        CorrectedClassifier(random_state=0),
        CorrectedClassifier(LogisticRegression(), None),
        CorrectedClassifier(LogisticRegression(), "partial"),
    ],
    LABELS_ONLY,
)
@pytest.mark.filterwarnings("ignore")
def test_sklearn(estimator, check):
    check(estimator)


def test_formula(task):
    """The noise is inverted in the calibrated probabilities, which are those without noise."""
    weak = LogisticRegression(C=1e-3)
    model, plain = (
        CorrectedClassifier(weak, noise, random_state=0).fit(task.X, task.Y_noisy) for noise in (NOISE, None)
    )
    noisy = (1 + plain.decision_function(task.X)) / 2
    eta = (noisy - NOISE.rho_neg) / (1 - NOISE.rho_pos - NOISE.rho_neg)
    np.testing.assert_allclose(model.decision_function(task.X), 2 * eta - 1, atol=1e-9)
    inside = (eta > 0.05) & (eta < 0.95)
    np.testing.assert_allclose(model.predict_proba(task.X)[inside], eta[inside], atol=1e-9)
    np.testing.assert_array_equal(model.predict(task.X), eta >= 0.5)


class Oracle(ClassifierMixin, BaseEstimator):
    """Classifier that knows P(noisy label = 1 | x): the last column of the features."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X):
        return np.stack([1 - X[:, -1], X[:, -1]], 1)


def test_calibrated_probabilities_are_inverted_exactly():
    rng = np.random.default_rng(0)
    eta = expit(3 * rng.normal(size=4000) - 1)[:, None]
    noisy = (0.3 + 0.4 * eta > rng.random(eta.shape)).astype(int)
    model = CorrectedClassifier(Oracle(), ClassConditionalNoise([0.3], [0.3])).fit(0.3 + 0.4 * eta, noisy)
    y = eta > rng.random(eta.shape)
    assert log_loss(y, model.predict_proba(0.3 + 0.4 * eta)) - log_loss(y, eta) < 0.005


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


@pytest.mark.parametrize(("noise", "kind"), [("partial", PartialNoise), ("missing", MissingNoise)])
@pytest.mark.filterwarnings("ignore:Noise rates of label")
def test_estimated_rates(noise, kind):
    true = kind([0.3, 0.4])
    data = make_noisy_multilabel(1500, 4, 2, strength=20, noise=true, random_state=0)
    model = CorrectedClassifier(LogisticRegression(), noise, random_state=0).fit(data.X, data.Y_noisy)
    assert isinstance(model.noise_, kind)
    assert "probabilities_only" not in [flag.code for flag in model.rates_.flags]
    assert np.abs(model.noise_.rho_pos + model.noise_.rho_neg - [0.3, 0.4]).max() < 0.15
    again = CorrectedClassifier(LogisticRegression(), noise, random_state=0).fit(data.X, data.Y_noisy)
    assert again.noise_ == model.noise_


def test_texts():
    rng = np.random.default_rng(0)
    Y = (rng.random((400, 2)) < 0.4).astype(int)
    words = [("wave salt ", "cloud blue ")[j] for j in range(2)]
    texts = ["there is " + "".join(words[j] * y for j, y in enumerate(row)) + "to see" for row in Y]
    noisy = PartialNoise([0.6, 0.6]).corrupt(Y, random_state=0)
    for X in (texts, np.array(texts), pd.Series(texts, index=range(7, 407))):
        model = CorrectedClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression()), "partial", random_state=0)
        assert (model.fit(X, noisy).predict(X) == Y).mean() > 0.95
    assert "probabilities_only" in [flag.code for flag in model.rates_.flags]
    Y_missing = noisy.astype(float)
    Y_missing[:50, 0] = np.nan
    assert model.fit(texts, Y_missing).predict(texts).shape == (400, 2)


@pytest.fixture(scope="module")
def default(task):
    X, Y = pd.DataFrame(task.X[:300], columns=list("abcde")), pd.DataFrame(task.Y_noisy[:300], columns=["x", "y", "z"])
    return CorrectedClassifier(noise=NOISE, random_state=0).fit(X, Y)


@pytest.mark.parametrize("name", ["model.ccmn", "folder"])
def test_saved_default_predicts_the_same(default, task, tmp_path, name):
    default.save(tmp_path / name)
    loaded = load_model(tmp_path / name)
    X = pd.DataFrame(task.X, columns=list("abcde"))
    np.testing.assert_array_equal(loaded.predict_proba(X), default.predict_proba(X))
    assert type(loaded) is CorrectedClassifier
    assert loaded.get_params() == {**default.get_params(), "noise": loaded.noise}
    assert loaded.noise == loaded.noise_ == ClassConditionalNoise(NOISE.rho_pos, NOISE.rho_neg)
    assert (loaded.n_features_in_, loaded.label_names_) == (5, ("x", "y", "z"))
    assert loaded.feature_names_in_.tolist() == list("abcde")


def test_sparse_default_is_saved_and_exported(tmp_path):
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(200, 300, 0.05, random_state=0, format="csr")
    Y = (X @ rng.normal(size=(300, 3)) > 0).astype(int)
    clf = CorrectedClassifier(noise=None, random_state=0).fit(X, scipy.sparse.csr_array(Y))
    clf.save(tmp_path / "m.ccmn")
    loaded = load_model(tmp_path / "m.ccmn")
    np.testing.assert_array_equal(loaded.decision_function(X), clf.decision_function(X))
    module = loaded.to_torch()
    np.testing.assert_allclose(module(torch.tensor(X.toarray())).numpy(), clf.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, a: d.update(thresholds=[0.0]), "thresholds must be a list of 3 finite numbers"),
        (lambda d, a: d["parameters"].update(estimator=1.5), "estimator must be null; got 1.5"),
        (lambda d, a: d.update(thresholds=[0.0, 0.0, -np.inf]), "thresholds must be a list of 3 finite numbers"),
        (lambda d, a: d.update({"class": "Pipeline"}), "class must be CCMNClassifier or CorrectedClassifier"),
        (lambda d, a: d["parameters"].update(cv=0), "cv must be an integer"),
        (lambda d, a: a.update(coef=a["coef"][:, :2]), "coef must be finite numbers of shape"),
        (lambda d, a: a.update(coef=a["coef"] * np.nan), "coef must be finite numbers of shape"),
        (lambda d, a: a.update(curve=-a["curve"]), "curve must be 3 increasing functions"),
        (lambda d, a: a.update(scale=-a["scale"]), "scale must be positive"),
        (lambda d, a: a.update(share=np.array([2.0])), "share must be a number from 0 to 1"),
        (lambda d, a: a.update(other=a["mean"]), "weights must not contain 'other'"),
        (lambda d, a: a.pop("intercept"), "field 'intercept' is missing"),
        (lambda d, a: a.update(feature=a["feature"] + 9), "feature of the forest"),
    ],
)
def test_damaged_model_is_named(default, tmp_path, change, message):
    default.save(tmp_path / "m.ccmn")
    rewrite_model(tmp_path / "m.ccmn", change)
    with pytest.raises(ValueError, match=f"not a valid ccmn model: .*{message}"):
        load_model(tmp_path / "m.ccmn")


def test_other_classifiers_are_neither_saved_nor_exported(task, tmp_path):
    clf = CorrectedClassifier(LogisticRegression(), NOISE).fit(task.X, task.Y_noisy)
    with pytest.raises(TypeError, match=r"save requires estimator=None; got LogisticRegression.*skops"):
        clf.save(tmp_path / "m.ccmn")
    with pytest.raises(TypeError, match="to_torch requires estimator=None"):
        clf.to_torch()


@pytest.mark.parametrize("estimator", [None, LogisticRegression()])
def test_thresholds_for_f1_are_those_of_the_out_of_fold_predictions(task, estimator):
    fixed, f1 = (
        CorrectedClassifier(estimator, NOISE, threshold=threshold, random_state=0).fit(task.X, task.Y_noisy)
        for threshold in ("fixed", "f1")
    )
    shift = fixed.decision_function(task.X) - f1.decision_function(task.X)
    assert np.ptp(shift, axis=0).max() < 1e-9
    assert np.abs(shift).max() > 0.01
    np.testing.assert_allclose(f1.predict_proba(task.X), fixed.predict_proba(task.X))


@pytest.mark.parametrize("estimator", [None, LogisticRegression()])
def test_label_sets_votes_trusted_rows_and_weights(task, estimator):
    clf = CorrectedClassifier(estimator, random_state=0)
    sets = [[f"label {j}" for j in np.flatnonzero(row)] for row in task.Y_noisy]
    matrix = clone(clf).fit(task.X, task.Y_noisy)
    np.testing.assert_array_equal(clone(clf).fit(task.X, sets).predict(task.X), matrix.predict(task.X))
    few = clone(clf).fit(task.X, task.Y_noisy, trusted=(range(200), task.Y[:200]))
    assert few.rates_.se_neg.mean() < matrix.rates_.se_neg.mean()
    votes = np.stack([ClassConditionalNoise(0.2, 0.1, n_labels=3).corrupt(task.Y, random_state=a) for a in range(3)], 1)
    voted = clone(clf).fit(task.X, votes)
    assert voted.inferred_.proba.shape == (1200, 3)
    assert (voted.predict(task.X) == task.Y).mean() > 0.85
    weights = np.repeat([1.0, 0.0], 600)
    part, weighted = (CorrectedClassifier(estimator, NOISE, random_state=0) for _ in range(2))
    part.fit(task.X[:600], task.Y_noisy[:600])
    weighted.fit(task.X, task.Y_noisy, weights)
    assert (part.predict(task.X) == weighted.predict(task.X)).mean() > 0.95


def test_many_labels_recommend_the_other_class(monkeypatch):
    monkeypatch.setattr("ccmn.models.corrected_classifier.MAX_RECOMMENDED_LABELS", 10)
    Y = np.random.default_rng(0).integers(0, 2, (60, 11))
    with pytest.warns(UserWarning, match="meant for up to 10 labels; y has 11. CCMNClassifier"):
        CorrectedClassifier(noise=None, random_state=0).fit(np.arange(120.0).reshape(60, 2), Y)


def test_error_messages(task):
    X, Y, known = task.X, task.Y_noisy, r"noise must be 'both', 'partial', 'missing' or a ClassConditionalNoise"
    with pytest.raises(TypeError, match=r"must have predict_proba; Perceptron has none\. Wrap it in"):
        CorrectedClassifier(Perceptron(), NOISE).fit(X, Y)
    for noise, rows, labels, message in (
        *((noise, X, Y, known) for noise in ("estimate", 0.3, TransitionNoise(np.eye(3)))),
        (NOISE, X, Y[:, :2], "noise model with 2 labels, as y; got 3"),
        (NOISE, X, Y[:, 0], r"got one class per row. A single label is y.reshape\(-1, 1\).*TransitionNoise"),
        (NOISE, X, 2 * Y.astype(int) - 1, "y must be 0 or 1"),
        (NOISE, X, np.full(Y.shape, np.nan), "only NaN"),
        (NOISE, X[1:], Y, "as many rows in y as in X, 1199; got 1200"),
    ):
        with pytest.raises(ValueError, match=message):
            CorrectedClassifier(DummyClassifier(), noise).fit(rows, labels)


def test_verified_rows_weigh_as_much_as_several_noisy_ones():
    noise = ClassConditionalNoise([0.3, 0.3], [0.3, 0.3])
    task = make_noisy_multilabel(1500, 20, 2, strength=6.0, noise=noise, random_state=0)
    train, new, rows = slice(0, 1000), slice(1000, 1500), np.arange(300)

    def error(**trusted):
        clf = CorrectedClassifier(noise=noise, random_state=0).fit(task.X[train], task.Y_noisy[train], **trusted)
        return hamming_loss(task.Y[new], clf.predict(task.X[new]))

    assert error(trusted=(rows, task.Y[rows])) < error() - 0.02


def test_declared_added_labels_are_corrected_even_if_features_are_weak():
    task = make_noisy_multilabel(1500, 5, 4, strength=0.5, noise=PartialNoise(0.4, n_labels=4), random_state=0)
    declared, unknown = (
        CorrectedClassifier(noise=noise, random_state=0).fit(task.X, task.Y_noisy).predict_proba(task.X).mean()
        for noise in ("partial", "both")
    )
    assert declared < unknown
