"""CCMNClassifier: containers, losses, selection, validation, trusted rows, groups, checkpoints and errors."""

import errno
import os
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from scipy.special import expit
from scipy.stats import rankdata
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

from ccmn import CCMNClassifier, ClassConditionalNoise, PartialNoise, load_model
from ccmn.data import load_digit_scenes, make_noisy_multilabel
from ccmn.metrics import hamming_loss
from ccmn.models.training_data import Scaling
from ccmn.noise import GroupedNoise, TransitionNoise

DATA = load_digit_scenes(2000)
PARTIAL = PartialNoise(0.5, n_labels=10)
X, Y, X_TEST, Y_TEST = DATA.X[:1000], DATA.Y[:1000], DATA.X[1000:], DATA.Y[1000:]
Z = PARTIAL.corrupt(Y, random_state=0)
"""Half of the absent digits are in the candidate set."""
NOISE = ClassConditionalNoise([0.2, 0.1, 0.0], [0.1, 0.0, 0.2])
TASK = make_noisy_multilabel(400, 5, 3, strength=6, noise=NOISE, random_state=0)


def classifier(noise=PARTIAL, **parameters):
    return CCMNClassifier(noise, **{"epochs": 3, "random_state": 0, **parameters})


def wrong(clf, truth=Y_TEST):
    return hamming_loss(truth, clf.predict(X_TEST))


@pytest.mark.parametrize(
    ("loss", "surrogate"),
    [("hamming", "square"), ("hamming", "hinge"), ("hamming", "logistic"), ("hamming", "sigmoid"),
     ("ranking", "hinge"), ("ranking", "sigmoid"), ("ranking", "logistic")],
)  # fmt: skip
def test_corrected_losses_outperform_plain_losses(loss, surrogate):
    fits = [
        classifier(noise, loss=loss, surrogate=surrogate, epochs=15, lr=0.02).fit(X, Z) for noise in (None, PARTIAL)
    ]
    for clf in fits:
        p, scores = clf.predict_proba(X_TEST), clf.decision_function(X_TEST)
        assert 0 < p.min() <= p.max() < 1
        assert ((p >= 0.5) == clf.predict(X_TEST)).all()
        assert ((scores >= 0) == clf.predict(X_TEST)).all()
        assert (rankdata(scores, axis=1) == rankdata(p, axis=1)).all()
    assert wrong(fits[1]) < wrong(fits[0]) - 0.05


@pytest.mark.parametrize(("loss", "surrogate"), [("ranking", "sigmoid"), ("hamming", "square"), ("hamming", "hinge")])
def test_probabilities_are_calibrated(loss, surrogate):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1500, 8))
    true = (rng.random((1500, 3)) < expit(rows @ rng.normal(size=(8, 3)) * [0.5, 1, 2])).astype(int)
    clf = classifier(NOISE, loss=loss, surrogate=surrogate, lr=0.05, epochs=30)
    p = clf.fit(rows[:1000], NOISE.corrupt(true[:1000], random_state=0)).predict_proba(rows[1000:])
    bins, error = np.minimum((p * 5).astype(int), 4), true[1000:] - p
    assert sum(abs(error[bins == k].sum()) for k in range(5)) / error.size < 0.1


@pytest.mark.parametrize("loss", ["hamming", "ranking"])
@pytest.mark.parametrize("value", [0, 1])
def test_constant_labels_are_predicted(value, loss):
    """There are no pairs to rank: the threshold alone determines the prediction."""
    rows = np.random.default_rng(0).normal(size=(300, 6))
    clf = classifier(None, loss=loss, lr=0.05, epochs=40).fit(rows, np.full((300, 4), value))
    assert (clf.predict(rows) == value).mean() > 0.99


def test_custom_modules_may_share_gradients_leave_parameters_unused_and_keep_statistics():
    made = []

    class Twins(torch.nn.Module):
        def __init__(self, d, o):
            super().__init__()
            made.append(self)
            self.norm = torch.nn.BatchNorm1d(d)
            self.a, self.b = (torch.nn.Parameter(torch.zeros(o, d)) for _ in range(2))
            self.unused = torch.nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return self.norm(x) @ (self.a + self.b).T

    clf = classifier(None, loss="hamming", surrogate="logistic", model=Twins, lr=(1e-5, 0.1), epochs=12, batch_size=30)
    clf.fit(TASK.X[:120], TASK.Y_noisy[:120])
    for module in made:
        assert torch.equal(module.a, module.b)
        assert not module.unused.any()
    history = clf.history_[clf.history_["lr"] == 0.1]["hamming_loss"]
    best, batches = int(history.to_numpy().argmin()) + 1, len(range(0, 96, 30))
    assert int(made[1].norm.num_batches_tracked) == best * batches  # those of the selected epoch
    made[1].a.data[0, 0] = torch.inf  # an output that overflows belongs to one label
    assert np.isfinite(clf.decision_function(TASK.X)[:, 1:]).all()


@pytest.mark.parametrize(
    "parameters",
    [{"loss": "ranking"}, {"loss": "hamming"}, {"loss": "hamming", "surrogate": "logistic", "scale": False}],
)
def test_coefficients_of_linear_models(parameters):
    clf = classifier(NOISE, **parameters).fit(TASK.X, TASK.Y_noisy)
    expected = TASK.X @ clf.coef_.T + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(TASK.X), expected, rtol=1e-9, atol=1e-9)
    for model in ("mlp", torch.nn.Linear):
        other = classifier(NOISE, model=model)
        assert not hasattr(other, "coef_")
        assert not hasattr(other.fit(TASK.X, TASK.Y_noisy), "intercept_")


def test_parameters_set_after_fit_and_failed_fits():
    clf = classifier(None, loss="hamming").fit(X, Z)
    before = clf.decision_function(X_TEST)
    assert np.array_equal(clf.set_params(loss="ranking").decision_function(X_TEST), before)
    with pytest.raises(ValueError, match="rows in y"):
        clf.fit(X[:, :2], Z[:9])
    with pytest.raises(NotFittedError):
        clf.predict(X[:, :2])


SAVED = Path(__file__).parent / "saved"


@pytest.mark.parametrize("name", ["ranking_linear", "hamming_mlp"])
def test_models_that_were_saved_predict_the_same(name):
    """``saved/write.py`` has saved the models."""
    expected, clf = np.load(SAVED / "expected.npz"), load_model(SAVED / f"{name}.ccmn")
    np.testing.assert_allclose(clf.decision_function(expected["X"]), expected[f"{name}_s"], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(clf.predict_proba(expected["X"]), expected[f"{name}_p"], rtol=1e-12, atol=1e-12)


# -- Selection


@pytest.mark.parametrize("model", ["linear", lambda d, q: torch.nn.Linear(d, q)])
def test_selected_epoch_and_learning_rate(model):
    """The criterion on true labels is the plain Hamming loss of the selected epoch."""
    clf = classifier(loss="hamming", model=model, lr=(1e-4, 0.05, 0.05), epochs=30)  # each of them is trained once
    clf.fit(X, Z, validation=(X_TEST, Y_TEST), validation_is_clean=True)
    selected, history = clf.selected_, clf.history_
    assert (selected["criterion"], selected["lr"], selected["epochs"], len(history)) == ("hamming_loss", 0.05, 30, 60)
    row = history[(history["lr"] == selected["lr"]) & (history["epoch"] == selected["epoch"])].iloc[0]
    assert selected["value"] == row["hamming_loss"] == history["hamming_loss"].min()
    assert selected["loss"] == pytest.approx(row["loss"])
    assert selected["value"] == pytest.approx(wrong(clf), abs=1e-6)


def messages_of(clf, **arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(TASK.X[:200], TASK.Y[:200], validation=(TASK.X[200:], TASK.Y[200:]), validation_is_clean=True)
    return [str(w.message) for w in caught]


ADAM = {"loss": "hamming", "surrogate": "sigmoid", "scale": False}


def test_one_warning_names_the_edge_of_the_grid_and_the_last_epoch():
    (message,) = messages_of(classifier(None, **ADAM, lr=(1e-2, 1e-4, 1e-3), batch_size=10))
    assert "learning rate 0.01 is the largest of lr=[0.01, 0.0001, 0.001]; a larger one may be better." in message
    assert "The best epoch is the last one (3)" in message
    assert "Increase epochs" in message
    (message,) = messages_of(classifier(None, **ADAM, lr=(0.05, 50.0), epochs=60))
    assert "learning rate 0.05 is the smallest of lr=[0.05, 50.0]; a smaller one may be better." in message


@pytest.mark.parametrize(
    "parameters",
    [
        {"lr": 0.05, "epochs": 60},
        {"lr": (1e-6, 0.05, 50.0), "epochs": 60},
        {"lr": (1e-5, 0.3), "epochs": 60},  # the largest learning rate has converged before the last epochs
        {"lr": 0.05, "epochs": 1},  # with one epoch there is nothing to compare
        {"lr": (1e-12, 2e-12), "epochs": 5},  # these learning rates reach the same criterion
    ],
)
def test_no_warning_for_a_selection_inside_the_grid(parameters):
    assert messages_of(classifier(None, **ADAM, **parameters)) == []


def test_diverged_runs():
    rare = Z * (np.random.default_rng(0).random(Z.shape) < 0.1)
    clf = classifier(None, lr=(1e-3, 1e38)).fit(X, rare)
    assert np.isfinite(clf.decision_function(X_TEST)).all()

    class Overflow(torch.nn.Linear):
        def forward(self, features):
            return super().forward(features) / float(self.training)

    clf = classifier(None, model=Overflow, lr=(0.1, 0.01))
    with pytest.warns(UserWarning, match="diverged"):
        clf.fit(X, Z)
    assert clf.selected_["value"] == np.inf


# -- Weights, trusted rows and groups


@pytest.mark.parametrize(
    ("loss", "surrogate"), [("ranking", "sigmoid"), ("hamming", "square"), ("hamming", "logistic")]
)
def test_rows_without_weight_do_not_count(loss, surrogate):
    """With few rows of positive weight, all rows are used for training and validation, as without the other rows."""
    rows, weights = TASK.X[:60], np.repeat([1.0, 0.0], [20, 40])
    settings = {"loss": loss, "surrogate": surrogate, "epochs": 5, "batch_size": 60}
    clf = classifier(None, **settings).fit(rows, TASK.Y[:60], weights)
    few = classifier(None, **settings).fit(rows[:20], TASK.Y[:20])
    np.testing.assert_allclose(clf.decision_function(rows), few.decision_function(rows), atol=1e-3)
    assert clf.selected_["value"] == pytest.approx(few.selected_["value"])


def test_extreme_sample_weights():
    weights = np.full(60, 1e300)
    with pytest.raises(ValueError, match=r"sample_weight must be at most 1e\+100; got 1e\+300"):
        classifier(None).fit(X[:60], Z[:60], weights)
    assert np.isfinite(classifier(None).fit(X[:60], Z[:60], weights / 1e200).decision_function(X)).all()
    weights, many = np.repeat([1.0, 0.0], [60, 19_940]), np.random.default_rng(0).normal(size=(20_000, 2))
    with pytest.raises(ValueError, match="sample_weight cannot be combined"):
        classifier(None, correction="abs").fit(ROWS, LABELS, np.ones(60))
    with pytest.raises(ValueError, match="positive sample_weight in a validation row"):
        classifier(None, validation_fraction=1e-4).fit(many, many > 0, weights)


def test_trusted_rows():
    """Verified labels replace noisy ones; an array with NaN equals the pair of row numbers and labels."""
    rows = np.arange(500)
    common = {"loss": "hamming", "epochs": 20}
    without, pair = (classifier(**common).fit(X, Z, trusted=t) for t in (None, (rows, Y[rows])))
    assert wrong(pair) < wrong(without)
    verified = np.full(Y.shape, np.nan)
    assert np.array_equal(
        classifier(**common).fit(X, Z, trusted=verified).decision_function(X), without.decision_function(X)
    )
    verified[rows] = Y[rows]
    for given in (verified, pd.DataFrame(verified)):
        array = classifier(**common).fit(X, Z, trusted=given)
        assert np.array_equal(array.decision_function(X), pair.decision_function(X))
    some = Y[:4].astype(float)
    some[:, 1:] = np.nan
    one = classifier(**common).fit(X, Z, trusted=([0, 1, 2, 3], some))  # single labels can be verified
    assert not np.array_equal(one.decision_function(X), without.decision_function(X))


GROUPS = np.array(["site", "gold"])[(np.arange(1500) % 3 == 0).astype(int)].tolist()
GROUPED = GroupedNoise(
    {"site": ClassConditionalNoise(0.05, 0.6, n_labels=3), "gold": ClassConditionalNoise(0.0, 0.0, n_labels=3)}
)


def test_rates_per_group_outperform_no_correction(tmp_path):
    data = make_noisy_multilabel(1500, 5, 3, strength=8.0, random_state=0)
    noisy = GROUPED.corrupt(data.Y, GROUPS, random_state=1)
    settings = {"loss": "hamming", "lr": 0.05, "epochs": 30}
    known, estimated = (classifier(noise, **settings).fit(data.X, noisy, groups=GROUPS) for noise in (GROUPED, "both"))
    plain, right = classifier(None, **settings).fit(data.X, noisy), lambda clf: (clf.predict(data.X) == data.Y).mean()
    assert min(right(known), right(estimated)) > right(plain) + 0.05
    assert known.group_noise_ == GROUPED
    np.testing.assert_allclose(known.noise_.rho_neg, 0.4)
    assert estimated.rates_.rates["site"].rho_neg.mean() == pytest.approx(0.6, abs=0.12)
    known.save(tmp_path / "model.ccmn")
    loaded = load_model(tmp_path / "model.ccmn")
    assert loaded.noise == GROUPED
    np.testing.assert_array_equal(loaded.predict(data.X), known.predict(data.X))


# -- One class per row


@pytest.mark.parametrize(("loss", "surrogate"), [("hamming", "logistic"), ("hamming", "sigmoid"), ("ranking", "auto")])
def test_transition_matrix(loss, surrogate):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(800, 5))
    y = (rows @ rng.normal(size=(5, 4))).argmax(1)
    # Class 0 becomes class 1 with a probability above 1/2: training without noise correction fails.
    noise = TransitionNoise([[0.4, 0.6, 0, 0], [0, 1, 0, 0], [0, 0, 0.9, 0.1], [0, 0, 0.1, 0.9]])
    noisy = noise.corrupt(np.eye(4)[y], random_state=0).argmax(1)
    settings = {"loss": loss, "surrogate": surrogate, "epochs": 60}
    names = np.array(["ant", "bee", "cat", "dog"])
    corrected = classifier(noise, **settings).fit(rows, names[noisy])
    plain = classifier(TransitionNoise(np.eye(4)), **settings).fit(rows, names[noisy])
    assert corrected.score(rows, names[y]) > 0.85 > plain.score(rows, names[y])
    np.testing.assert_allclose(corrected.predict_proba(rows).sum(1), 1)
    # One-hot labels give the same model, which predicts exactly one label of every row.
    one_hot = classifier(noise, **settings).fit(rows, np.eye(4, dtype=int)[noisy])
    assert (one_hot.predict(rows).sum(1) == 1).all()
    np.testing.assert_array_equal(one_hot.predict(rows).argmax(1), names.searchsorted(corrected.predict(rows)))


@pytest.mark.parametrize("noise", [None, "both", NOISE])
def test_classes_need_a_transition_matrix(noise):
    with pytest.raises(ValueError, match=r"one class per row.*CCMNClassifier\(TransitionNoise\(T\)\)"):
        classifier(noise).fit(np.eye(6), list("abcabc"))


# -- Interruption and checkpoints


def interrupt(phase, done, *_):
    if done == 6:
        raise KeyboardInterrupt


def test_interrupted_fit_keeps_the_best_model_its_checkpoint_and_warns_once(tmp_path, monkeypatch):
    monkeypatch.setattr("ccmn.models.ccmn_classifier.show_phases", lambda *_: nullcontext(interrupt))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf = classifier(epochs=50, verbose=1).fit(X, Z, checkpoint=tmp_path / "state")
    assert ["the best model so far is kept" in str(w.message) for w in caught] == [True]
    assert len(clf.history_) == 18
    clf.save(tmp_path / "m.ccmn")
    assert (tmp_path / "state").exists()


ROWS, LABELS = TASK.X[:60].astype(np.float32), TASK.Y_noisy[:60]


def test_a_checkpoint_belongs_to_the_parameters_and_every_value_of_the_data(tmp_path):
    def fit(rows=ROWS, labels=LABELS, noise=NOISE, weight=None, validation=None, **parameters):
        clf = classifier(noise, **parameters)
        clf.fit(rows, labels, weight, validation=validation, checkpoint=tmp_path / "state")
        return clf

    fit()
    for same in ({"rows": np.asfortranarray(ROWS)}, {"verbose": 1}, {"labels": LABELS.astype(float)}):
        fit(**same)
    changed, flipped = ROWS.copy(), LABELS.copy()
    changed[-1, -1], flipped[0, 0] = np.nextafter(changed[-1, -1], np.float32(9)), 1 - flipped[0, 0]
    others = [
        {"rows": changed},
        {"rows": scipy.sparse.csr_array(ROWS)},
        {"labels": flipped},
        {"noise": ClassConditionalNoise([0.2, 0.1, 0.0], [0.1, 0.0, 0.20001])},
        {"weight": np.linspace(1, 2, 60)},
        {"validation": (ROWS, LABELS)},
        {"epochs": 4},
        {"model": "mlp"},
    ]
    for other in others:
        with pytest.raises(ValueError, match="belongs to a different fit"):
            fit(**other)


@pytest.mark.parametrize("model", ["linear", torch.nn.Linear])
def test_checkpoint_of_a_completed_fit_is_kept_until_the_model_is_saved(tmp_path, monkeypatch, model):
    def fit(path=None):
        return classifier(NOISE, model=model).fit(ROWS, LABELS, checkpoint=path)

    def disk_full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    clf, expected = fit(tmp_path / "state"), fit()
    written = sorted(file.name for file in tmp_path.iterdir())
    assert len(written) == (1 if model == "linear" else 3)  # one per learning rate
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", disk_full)
        with pytest.raises(OSError, match="No space left"):
            clf.save(tmp_path / "m.ccmn")
    assert sorted(file.name for file in tmp_path.iterdir()) == written
    with monkeypatch.context() as patch:
        criterion = "ccmn.training.selection.ValidationCriterion.__call__"
        patch.setattr(criterion, lambda *_: pytest.fail("trained an epoch"))
        again = fit(tmp_path / "state")
    assert np.array_equal(again.decision_function(ROWS), expected.decision_function(ROWS))
    assert again.history_.equals(expected.history_)
    assert again.selected_ == expected.selected_
    again.save(tmp_path / "m.ccmn")
    assert [file.name for file in tmp_path.iterdir()] == ["m.ccmn"]


# -- Scaling of features


def scaled(X, weights=None):
    """Return the features on which a network is trained."""
    return Scaling.of(X, weights).transform(X)


def test_mean_and_standard_deviation_without_tails():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1, 1e4, 1e-6] + [0, -2e4, 5e-6]
    expected = StandardScaler().fit_transform(X) / np.sqrt(3)  # rows have a mean squared norm of about 1
    np.testing.assert_allclose(scaled(X), expected, atol=0.1)
    with_outlier = X.copy()
    with_outlier[0] *= 1e6
    np.testing.assert_allclose(np.diff(scaled(with_outlier)[1:], axis=0), np.diff(expected[1:], axis=0), atol=0.2)


def test_constant_columns_keep_their_unit():
    X = np.column_stack((np.full(50, 7.0), np.arange(50.0), np.zeros(50), np.arange(50) == 3))
    np.testing.assert_allclose(scaled(X)[:, [0, 2]], 0, atol=1e-12)
    # A column that is almost always constant has no spread without its tails.
    assert 0.1 < abs(scaled(X)[3, 3]) < 10


def test_sparse_features_are_not_centered_and_keep_their_relation():
    X = scipy.sparse.random(200, 30, 0.1, format="csr", random_state=0)
    assert scaled(X).nnz == X.nnz
    assert np.ptp(scaled(X)[X.nonzero()] / X[X.nonzero()]) == pytest.approx(0)
    large = X.tolil()
    large[:, 0] = 1e5  # a column in another unit is scaled down
    assert 0.1 < np.sqrt(scaled(large.tocsr()).multiply(scaled(large.tocsr())).sum(1).mean()) < 2
    assert abs(scaled(large.tocsr())[:, [1]]).max() > 1e-3


# -- Errors


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "plugin"}, "loss must be 'hamming', 'ranking'; got 'plugin'"),
        ({"surrogate": "sigmod"}, "surrogate must be 'auto', .*'sigmoid'.* or a function; got 'sigmod'"),
        ({"model": "liner"}, "model must be 'linear', 'mlp' or a function"),
        ({"noise": "estimate"}, "noise must be 'both', 'partial', 'missing' or a noise model"),
        ({"epochs": 0}, r"epochs must be an integer in \[1, inf\]; got 0"),
        ({"lr": -0.1}, r"lr must be a number in .* or a list of positive numbers; got -0\.1"),
        *(({"lr": value}, "lr must be") for value in ("quick", None, (), [[0.1]], (0.1, np.inf))),
        *(({"weight_decay": value}, "weight_decay must be a number") for value in (-1, float("nan"), "auto")),
        ({"validation_fraction": 1.0}, r"validation_fraction must be a number in \(0, 1\)"),
        ({"device": "abacus"}, "device must be 'auto', 'cpu', 'cuda'"),
        ({"correction": "clip"}, "correction must be 'abs', 'relu' or None; got 'clip'"),
        ({"scale": "yes"}, "scale must be True or False; got 'yes'"),
        ({"noise": ClassConditionalNoise(0.1, 0.1, n_labels=2)}, "with 3 labels, as y; got 2"),
        ({"noise": GROUPED}, "group of every row"),
        ({"model": lambda d, o: torch.nn.ReLU()}, "trainable parameters; got none"),
    ],
)
def test_parameters_are_checked(parameters, message):
    with pytest.raises(ValueError, match=message):
        classifier(**{"noise": None, "epochs": 1, **parameters}).fit(ROWS, LABELS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full((60, 2), 2), "Unknown label type|must be 0 or 1"),
        (2 * LABELS.astype(int) - 1, "Unknown label type|For -1"),
        (np.zeros((60, 0)), r"got shape \(60, 0\)"),
        (np.linspace(0, 1, 60), "Unknown label type"),
        ([set()] * 60, "empty label sets"),
        (np.full((60, 2), np.nan), "only NaN"),
    ],
)
def test_labels_are_checked(labels, message):
    with pytest.raises(ValueError, match=message):
        classifier(None).fit(ROWS, labels)


FRAME = pd.DataFrame(LABELS, columns=["a", "b", "c"])


@pytest.mark.parametrize(
    ("noise", "arguments", "message"),
    [
        (None, {"validation": (ROWS, LABELS[:5])}, "in validation, 60; got 5"),
        (None, {"validation": (ROWS, LABELS[:, :2])}, "Expected 3 label columns .* got 2"),
        (None, {"validation": (ROWS, LABELS * np.nan)}, "validation must contain observed labels"),
        (None, {"validation_is_clean": True}, "validation_is_clean"),
        (None, {"y": FRAME, "validation": (ROWS, FRAME.rename(columns={"c": "z"}))}, "label 'z' is not among"),
        (
            ClassConditionalNoise(0.1, 0.1, n_labels=3, label_names=["b", "a", "c"]),
            {"y": FRAME},
            "use the same order",
        ),
        (NOISE, {"trusted": ([60], LABELS[:1])}, "from 0 to 59"),
        (NOISE, {"trusted": ([1, 2], LABELS[:1])}, "2 rows of trusted; got 1"),
        (NOISE, {"trusted": LABELS[:10].astype(float)}, r"trusted.*60"),
        (NOISE, {"trusted": LABELS[:, :2].astype(float)}, "Expected 3 label columns .* got 2"),
        (None, {"groups": ["a"] * 60}, "a GroupedNoise; got None"),
        ("both", {"groups": ["a"] * 60, "validation": (ROWS, LABELS)}, "clean validation rows"),
    ],
)
def test_arguments_of_fit_are_checked(noise, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        classifier(noise).fit(ROWS, **{"y": LABELS, **arguments})


def test_progress_is_printed_on_request(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier(None, lr=0.05, epochs=1).fit(ROWS, LABELS)
    assert capsys.readouterr().err == ""
    classifier(None, verbose=1).fit(ROWS, LABELS)
    assert "training: 3 of 3, loss" in capsys.readouterr().err
