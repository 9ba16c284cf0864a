"""The default model: the average of a logistic regression and a random forest, corrected for noise."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.multioutput import MultiOutputClassifier

from ccmn import ClassConditionalNoise, CorrectedClassifier, PartialNoise, load_model
from ccmn.data import make_noisy_multilabel
from ccmn.metrics import hamming_loss
from ccmn.models import average_model, persistence
from ccmn.models.average_model import _folds, _linear_share, log_odds
from ccmn.models.training_data import Sample, relative_information, split
from ccmn.training.forest import DEFAULT_TREES, TRIAL_TREES, fit_forest

NOISE = ClassConditionalNoise([0.3, 0.1, 0.0], [0.1, 0.2, 0.2])
TASK = make_noisy_multilabel(400, 6, 3, strength=6, noise=NOISE, random_state=0)
X, Y, Z = TASK.X[:250], TASK.Y[:250], TASK.Y_noisy[:250]
X_TEST, Y_TEST, Z_TEST = TASK.X[250:], TASK.Y[250:], TASK.Y_noisy[250:]


@pytest.fixture(scope="module")
def fitted():
    return CorrectedClassifier(noise=NOISE, random_state=0).fit(X, Z)


def test_probabilities_are_the_corrected_average_of_both_models(fitted):
    model = fitted._model
    share = model.arrays["linear_share"][0]
    assert 0 <= share < 1
    linear = expit(X_TEST @ model.arrays["weight"] + model.arrays["bias"])
    mean = share * linear + (1 - share) * model.forest.predict(X_TEST)
    slope, offset = model.arrays["platt"]
    noisy = expit(slope * logit(mean) + offset)
    true = (noisy - NOISE.rho_neg) / (1 - NOISE.rho_pos - NOISE.rho_neg)
    inside = (true > 0.06) & (true < 0.94)  # outside, probabilities approach 0 and 1
    assert inside.mean() > 0.3
    np.testing.assert_allclose(fitted.predict_proba(X_TEST)[inside], true[inside], atol=1e-6)
    assert (fitted.predict(X_TEST) == (true >= 0.5)).all()


def test_correction_outperforms_no_correction():
    noise = PartialNoise(0.6, n_labels=3)
    labels = noise.corrupt(Y, random_state=0)
    corrected, plain = (
        CorrectedClassifier(noise=given, random_state=0).fit(X, labels).predict(X_TEST) for given in (noise, None)
    )
    assert hamming_loss(Y_TEST, corrected) < hamming_loss(Y_TEST, plain) - 0.1


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array])
def test_loaded_model_predicts_exactly_the_same(tmp_path, wrap):
    clf = CorrectedClassifier(noise=NOISE, threshold="f1", random_state=0).fit(wrap(X), Z)
    clf.save(tmp_path / "m.ccmn")
    again = load_model(tmp_path / "m.ccmn")
    for method in ("decision_function", "predict", "predict_proba"):
        assert np.array_equal(getattr(again, method)(wrap(X_TEST)), getattr(clf, method)(wrap(X_TEST)))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("feature", lambda a: a.update(feature=a["feature"] + 100)),
        ("feature", lambda a: a.update(feature=a["feature"][::-1])),
        ("threshold", lambda a: a.update(feature=a["feature"][:-1])),
        ("values", lambda a: a.update(feature=np.full_like(a["feature"], 0))),
        ("linear_share", lambda a: a.pop("feature")),
        ("threshold", lambda a: a.update(threshold=a["threshold"][:-1])),
        ("threshold", lambda a: a["threshold"].__setitem__(0, np.nan)),
        ("values", lambda a: a["values"].__setitem__((0, 0), 2)),
        ("values", lambda a: a.update(values=a["values"][:, :2])),
        ("values", lambda a: a.update(values=a["values"].astype(np.float64))),
        ("weight", lambda a: a["weight"].__setitem__((0, 0), np.inf)),
        ("linear_share", lambda a: a.pop("linear_share")),
        ("linear_share", lambda a: a.update(linear_share=np.array([1.5]))),
        ("linear_share", lambda a: a.update(linear_share=np.array([np.nan]))),
        ("platt", lambda a: a.update(platt=a["platt"][:, :2])),
        ("platt", lambda a: a["platt"].__setitem__((0, 0), 0)),
        ("platt", lambda a: a["platt"].__setitem__((1, 0), np.nan)),
        ("projection", lambda a: a.update(projection=np.ones((2, 2), dtype=np.float32))),
        ("extra", lambda a: a.update(extra=np.ones(1))),
    ],
)
def test_damaged_arrays_are_named(tmp_path, fitted, name, change):
    fitted.save(tmp_path / "m.ccmn")
    description, arrays = persistence.read_model(tmp_path / "m.ccmn")
    arrays = {key: array.copy() for key, array in arrays.items()}
    change(arrays)
    persistence.write_model(tmp_path / "m.ccmn", description, arrays)
    with pytest.raises(ValueError, match=rf"not a valid ccmn model: .*{name}"):
        load_model(tmp_path / "m.ccmn")


def test_scaling_corrects_probabilities_that_are_too_close_to_the_mean():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(4000, 20))
    labels = (2 * features[:, :3] + rng.logistic(size=(4000, 3)) > 2).astype(int)
    clf = CorrectedClassifier(noise=None, random_state=0).fit(features[:700], labels[:700])
    probabilities = clf.predict_proba(features[700:])
    slope, offset = clf._model.arrays["platt"]
    assert (slope > 1.05).all()
    unscaled = expit((logit(probabilities) - offset) / slope)
    errors = [log_loss(labels[700:].ravel(), p.ravel()) for p in (probabilities, unscaled)]
    assert errors[0] < errors[1]


def test_containers_of_features(fitted):
    expected = fitted.decision_function(X_TEST)
    np.testing.assert_allclose(fitted.decision_function(X_TEST[:7]), expected[:7], atol=1e-6)
    frame = CorrectedClassifier(noise=NOISE, random_state=0).fit(pd.DataFrame(X).add_prefix("x"), pd.DataFrame(Z))
    assert np.array_equal(frame.decision_function(pd.DataFrame(X_TEST).add_prefix("x")), expected)
    csr = CorrectedClassifier(noise=NOISE, random_state=0).fit(scipy.sparse.csr_matrix(X), Z)
    assert "projection" in csr._model.arrays
    agreement = (csr.predict(scipy.sparse.csr_matrix(X_TEST)) == fitted.predict(X_TEST)).mean()
    assert agreement > 0.85


def test_same_random_state_same_model(fitted):
    again = CorrectedClassifier(noise=NOISE, random_state=0).fit(X, Z)
    other = CorrectedClassifier(noise=NOISE, random_state=1).fit(X, Z)
    assert np.array_equal(again.decision_function(X_TEST), fitted.decision_function(X_TEST))
    assert not np.array_equal(other.decision_function(X_TEST), fitted.decision_function(X_TEST))


def test_copies(fitted):
    expected = fitted.predict_proba(X_TEST)
    buffer = io.BytesIO()
    joblib.dump(fitted, buffer)
    buffer.seek(0)
    for twin in (pickle.loads(pickle.dumps(fitted)), joblib.load(buffer), copy.deepcopy(fitted)):
        assert np.array_equal(twin.predict_proba(X_TEST), expected)
    assert not hasattr(clone(fitted), "classes_")


def test_one_label():
    clf = CorrectedClassifier(noise=ClassConditionalNoise([0.3], [0.1]), random_state=0).fit(X, Z[:, :1])
    assert clf.predict_proba(X_TEST).shape == (150, 1)
    assert hamming_loss(Y_TEST[:, :1], clf.predict(X_TEST)) < 0.2


def test_unobserved_labels():
    partly = np.where(np.random.default_rng(5).random(Z.shape) < 0.3, np.nan, Z)
    clf = CorrectedClassifier(noise=NOISE, random_state=0).fit(X, partly)
    assert clf._model.forest is not None
    assert hamming_loss(Y_TEST, clf.predict(X_TEST)) < 0.3
    partly[:, 1] = np.nan  # a label that was never observed
    p = CorrectedClassifier(noise=NOISE, random_state=0).fit(X, partly).predict_proba(X_TEST)
    assert np.isfinite(p).all()


@pytest.mark.parametrize("n", [1, 5, 30, 60])
def test_few_rows(n):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rates are not estimated
        clf = CorrectedClassifier(random_state=0).fit(X[:n], Z[:n])
    assert (clf._model.forest is not None) == (n >= 50)
    p = clf.predict_proba(X_TEST)
    assert p.shape == (150, 3)
    assert ((p > 0) & (p < 1)).all()


@pytest.mark.parametrize("value", [0, 1])
def test_constant_labels(value):
    labels = Z.copy()
    labels[:, 1] = value
    clf = CorrectedClassifier(noise=None, random_state=0).fit(X, labels)
    assert (clf.predict(X_TEST)[:, 1] == value).all()


def test_sample_weights():
    """The labels of rows with a small weight are wrong."""
    weights, wrong = np.ones(250), Y.copy()
    weights[::2], wrong[::2] = 1e-3, 1 - Y[::2]
    weighted = CorrectedClassifier(noise=None, random_state=0).fit(X, wrong, weights)
    plain = CorrectedClassifier(noise=None, random_state=0).fit(X, wrong)
    assert hamming_loss(Y_TEST, weighted.predict(X_TEST)) < 0.25 < hamming_loss(Y_TEST, plain.predict(X_TEST))


def test_trusted_rows_partly_verified():
    verified = np.full(Y.shape, np.nan)
    verified[:150, :2] = Y[:150, :2]
    losses = []
    for trusted in (None, verified):
        predicted = CorrectedClassifier(noise=NOISE, random_state=0).fit(X, Z, trusted=trusted).predict(X_TEST)
        losses.append(hamming_loss(Y_TEST[:, :2], predicted[:, :2]))
    assert losses[1] < losses[0]


def test_f1_thresholds():
    """Thresholds are selected on predictions of rows that the models have not seen."""
    clf = CorrectedClassifier(noise=NOISE, threshold="f1", random_state=0).fit(X, Z)
    assert clf._curve.thresholds.any()
    assert ((clf.predict_proba(X_TEST) >= 0.5) == clf.predict(X_TEST)).all()


def test_interrupted_fit_leaves_no_model(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    clf = CorrectedClassifier(noise=NOISE, random_state=0).fit(X, Z)
    monkeypatch.setattr("ccmn.models.average_model.fit_forest", interrupt)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X, Z)
    with pytest.raises(ValueError, match="not fitted"):
        clf.predict(X)


def test_share_of_the_linear_model_equals_a_grid_search():
    rng = np.random.default_rng(0)
    f, forest = rng.normal(size=(300, 3)), rng.uniform(0.05, 0.95, (300, 3))
    mix = 0.3 * expit(f) + 0.7 * forest
    p = NOISE.debias((rng.random(mix.shape) < mix).astype(np.float32))
    p[:20, 0] = np.nan
    share = _linear_share(Sample(f, p), NOISE, f, forest)
    # The square risk of the noisy labels, whose unit is the same for all labels.
    slope = 1 - NOISE.rho_pos - NOISE.rho_neg
    noisy = p * slope + NOISE.rho_neg
    grid = np.linspace(0, 1, 1001)
    risks = [np.nansum((noisy - a * expit(f) - (1 - a) * expit(log_odds(forest))) ** 2) for a in grid]
    assert share == pytest.approx(grid[np.argmin(risks)], abs=1e-3)
    assert 0.1 < share < 0.5


def test_relative_information_equals_a_simulation():
    """The variances of the debiased and of the true labels, from many rows."""
    rng = np.random.default_rng(0)
    noise = ClassConditionalNoise([0.3, 0.0, 0.2, 0.0], [0.1, 0.4, 0.0, 0.0])
    true = (rng.random((200_000, 4)) < [0.3, 0.1, 0.5, 0.2]).astype(np.float32)
    noisy = noise.corrupt(true, random_state=1).astype(np.float32)
    expected = noise.debias(noisy).var(0, dtype=np.float64) / true.var(0, dtype=np.float64)
    found = relative_information(noise, noisy)
    np.testing.assert_allclose(found, expected, rtol=0.05)
    assert found[3] == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(relative_information(noise, scipy.sparse.csr_matrix(noisy)), found)
    noisy[:100_000, 0] = np.nan
    np.testing.assert_allclose(relative_information(noise, noisy)[0], expected[0], rtol=0.05)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.4])
def test_folds_cover_every_row_once(fraction, monkeypatch):
    rows = Sample(np.arange(103.0)[:, None], np.zeros((103, 2), dtype=np.float32))
    valid_rows = split(rows, fraction, 0).valid_rows
    folds = _folds(rows, valid_rows)
    np.testing.assert_array_equal(np.sort(np.concatenate([held_out for _, held_out in folds])), np.arange(103))
    np.testing.assert_array_equal(folds[0][1], valid_rows)
    for train, held_out in folds:
        assert not np.isin(held_out, train.X).any()
        assert len(train.X) + len(held_out) == 103
    monkeypatch.setattr(average_model, "MAX_SELECTION_ROWS", 100)
    assert len(_folds(rows, valid_rows)) == 1
    few = rows.take(np.arange(40))
    assert [len(train.X) for train, _ in _folds(few, split(few, fraction, 0).valid_rows)] == [40]


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array])
def test_model_is_linear_if_the_forest_has_no_share(monkeypatch, wrap):
    kept = CorrectedClassifier(noise=NOISE, random_state=0).fit(wrap(X), Z)
    assert kept._model.forest is not None
    monkeypatch.setattr(average_model, "_linear_share", lambda *args: 1.0)
    grown = []
    monkeypatch.setattr(
        average_model, "fit_forest", lambda *args, **kwargs: grown.append(fit_forest(*args, **kwargs)) or grown[0]
    )
    clf = CorrectedClassifier(noise=NOISE, random_state=0).fit(wrap(X), Z)
    assert set(clf._model.arrays) == {"weight", "bias", "platt"}
    assert grown[0][0].n_trees == TRIAL_TREES
    for name in ("weight", "bias"):
        np.testing.assert_array_equal(clf._model.arrays[name], kept._model.arrays[name])


@pytest.mark.parametrize("useless", [True, False])
def test_forest_stops_after_the_trial_if_it_is_useless(useless):
    calls = []

    def is_useless(forest, oob):
        calls.append((forest.n_trees, oob.shape))
        return useless

    forest, oob = fit_forest(X, Z, random_state=0, is_useless=is_useless)
    assert calls == [(TRIAL_TREES, Z.shape)]
    assert forest.n_trees == (TRIAL_TREES if useless else DEFAULT_TREES)
    expected, expected_oob = fit_forest(X, Z, random_state=0, n_trees=forest.n_trees)
    np.testing.assert_array_equal(forest.values, expected.values)
    np.testing.assert_array_equal(oob, expected_oob)


def test_separable_labels_are_predicted_as_well_as_by_logistic_regression():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3000, 5))
    labels = (features @ rng.normal(size=(5, 3)) > [2.0, -1.5, 1.0]).astype(int)  # thresholds far from the mean
    clf = CorrectedClassifier(random_state=0).fit(features[:1000], labels[:1000])
    baseline = MultiOutputClassifier(LogisticRegression(C=1e5, max_iter=1000)).fit(features[:1000], labels[:1000])
    errors = [(model.predict(features[1000:]) != labels[1000:]).mean() for model in (clf, baseline)]
    assert errors[0] <= errors[1] + 0.003
    assert errors[0] < 0.01


def test_probabilities_of_rare_labels_without_noise_are_small():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6000, 5))
    labels = (features[:, :1] + rng.logistic(size=(6000, 1)) > 5.5).astype(int)
    assert 0.002 < labels.mean() < 0.02
    clf = CorrectedClassifier(noise=None, random_state=0).fit(features[:3000], labels[:3000])
    assert clf.predict_proba(features[3000:])[:, -1].mean() < 2 * labels.mean()


@pytest.mark.parametrize("n", [300, 1500])
def test_clean_labels_with_weak_features_are_not_harmed(n):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n + 2000, 20))
    true = expit(features @ rng.normal(size=(20, 4)) * 0.3 / np.sqrt(20) - rng.uniform(0, 2, 4))
    labels = (rng.random(true.shape) < true).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the rates are poorly identified
        plain, default = (
            CorrectedClassifier(noise=noise, random_state=0).fit(features[:n], labels[:n]) for noise in (None, "both")
        )
    losses = [log_loss(labels[n:].ravel(), clf.predict_proba(features[n:]).ravel()) for clf in (plain, default)]
    assert losses[1] < losses[0] + 0.03  # before, 0.06 to 0.12 worse
